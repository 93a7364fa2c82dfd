"""Runs that are killed on the way, and what must be the same in the end as without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cutlayer.nonlabel_party.capture import Captured
from support.runs import BREAST_CANCER, Run, changed, start, summary, with_parties, write

PARTIES = ("label_party", "lab", "bank")
_OF_THIS_RUN = ("seconds", "samples_per_second", "parties")
_DIGEST_BYTES = 32


def run_to_kill(**job: Any) -> Run:
    """Two non-label parties that attack, noise with a fixed secret, and checkpoints every 20 of 370 steps."""
    changes = {
        "job.epochs": 10,
        "job.batch_size": 16,
        "job.checkpoint": {"every_steps": 20},
        "label_party.defense": {"name": "marvell", "max_leak_auc": 0.6},
        "label_party.noise_secret": "noise",
        "label_party.id_secret": "tests share this",
        "nonlabel_parties.lab.id_secret": "tests share this",
        "job.knowledge": {name: {"labelled_rows": 3} for name in ("lab", "bank")},
        "nonlabel_parties.lab.attacks": ["norm", "cosine", "history", "hint_cosine", "support.plugins:Remembering"],
        "nonlabel_parties.lab.capture": True,
        "restarts": 1000,
    }
    changes |= {f"job.{key}": value for key, value in job.items()}
    return with_parties(changed(BREAST_CANCER, changes), ["lab", "bank"])


def write_run(folder: Path, run: Run) -> Path:
    """Write the run file and its noise secret."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "noise").write_bytes(bytes(range(32)))
    return write(folder, run)


def begin(path: Path, out: Path) -> subprocess.Popen[str]:
    """Start `cutlayer run`."""
    return start("run", path, "--out", out)


def answered(out: Path) -> int:
    """The last step whose answers have left the label party."""
    files = list((out / "label_party" / "answered").glob("*"))
    return min((file.stat().st_size // _DIGEST_BYTES for file in files), default=0)


def wait_for_step(process: subprocess.Popen[str], out: Path, step: int) -> bool:
    """Wait until `step` was answered; False if the run ended before."""
    while answered(out) < step:
        if process.poll() is not None:
            return False
        time.sleep(0.001)
    return True


def kill(out: Path, parties: Iterable[str]) -> None:
    """SIGKILL to the processes of the parties, whichever run now."""
    for party in parties:
        with suppress(OSError, ValueError):
            pid = int((out / party / "lock").read_text())
            if str(out) in Path(f"/proc/{pid}/cmdline").read_text():
                os.kill(pid, signal.SIGKILL)


def kill_everything(process: subprocess.Popen[str], out: Path) -> None:
    """SIGKILL to the supervisor and all parties."""
    process.kill()
    kill(out, PARTIES)
    process.communicate()
    while any(_runs(out, party) for party in PARTIES):
        time.sleep(0.01)


def _runs(out: Path, party: str) -> bool:
    with suppress(OSError, ValueError):
        pid = int((out / party / "lock").read_text())
        return str(out) in Path(f"/proc/{pid}/cmdline").read_text()
    return False


def traces(out: Path) -> dict[str, Any]:
    """All that a run leaves but times, process ids and memory; tensors as bytes."""
    figures = {key: value for key, value in summary(out).items() if key not in _OF_THIS_RUN}
    found: dict[str, Any] = {"summary": figures, "metrics": (out / "metrics.jsonl").read_text()}
    for party in PARTIES:
        found[f"{party} model"] = (out / party / "model" / "model.safetensors").read_bytes()
        found[f"{party} history"] = json.loads((out / party / "party.json").read_text())["history"]
        for file in sorted((out / party).glob("capture/*.json")):
            header = json.loads(file.read_text())
            del header["sha256"]  # of parts, which may end at other steps
            found[f"{party} {file.name}"] = header
            found[f"{party} capture"] = _captured(file.parent)
        for file in sorted((out / party).glob("attacks/*.parquet")):
            found[f"{party} {file.name}"] = _table(file)
    found["audit"] = _table(out / "label_party" / "audit.parquet")
    found["defense"] = _table(out / "label_party" / "defense.parquet")
    found["samples"] = (out / "label_party" / "samples.safetensors").read_bytes()
    return found


def _table(file: Path) -> pa.Table:
    return pq.read_table(file).combine_chunks()


def _captured(folder: Path) -> pa.Table:
    Captured.open(folder)  # whose checksums are right
    parts = [pa.ipc.open_file(pa.OSFile(str(part))).read_all() for part in sorted(folder.glob("part-*.arrow"))]
    return pa.concat_tables(parts).combine_chunks()


def require_same(out: Path, undisturbed: Path, *, saved_elsewhere: bool = False) -> None:
    """Both runs left the same; one that has saved after other steps has a few other bytes around its messages."""
    got, expected = traces(out), traces(undisturbed)
    if saved_elsewhere:
        del got["summary"]["bytes"]["overhead"], expected["summary"]["bytes"]["overhead"]
    assert got.keys() == expected.keys(), got.keys() ^ expected.keys()
    different = [name for name in expected if got[name] != expected[name]]
    assert not different, f"{', '.join(different)} in {out}"
