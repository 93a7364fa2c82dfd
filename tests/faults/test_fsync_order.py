"""The system calls of a save, as strace sees them: the data is on the disk before its name, and then the name is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import environment

SAVE = """
import sys, torch
from pathlib import Path
from cutlayer.common.checkpoints import CheckpointOwner, CheckpointStore
from cutlayer.common.files import write_atomically
folder = Path(sys.argv[1])
CheckpointStore(folder, CheckpointOwner("lab", "job"), 2, print).save(7, {"weight": torch.ones(9)}, {})
write_atomically(folder / "result", b"data")
"""
_CALL = re.compile(r"^\d* *(fsync|fdatasync|rename\w*)\((.*)\) += 0$", re.MULTILINE)
_TEMPORARY = re.compile(r"(\.step-\d+)\.\d+|(\.result)\.\w+")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What was synced and named, in order, with paths below the folder."""
    folder = tmp_path_factory.mktemp("traced")
    trace = folder / "trace"
    strace = shutil.which("strace") or pytest.skip("strace is missing")
    options = ["-f", "-y", "-s", "200", "-e", "trace=fsync,fdatasync,rename,renameat,renameat2", "-o", trace]
    command = [strace, *options, sys.executable, "-c", SAVE, str(folder)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100, check=False)
    if "ptrace" in done.stderr or "PTRACE" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr
    found = _CALL.findall(trace.read_text())
    return [_TEMPORARY.sub(r"\1\2", f"{name} {_paths(args, folder)}") for name, args in found]


def _paths(args: str, folder: Path) -> str:
    paths = re.findall(rf'[<"]({re.escape(str(folder))}[^>"]*)[>"]', args)
    return " ".join(Path(path).relative_to(folder).as_posix() for path in paths)


def test_P04_a_checkpoint_is_synced_named_and_synced(calls: list[str]) -> None:
    checkpoint = [call for call in calls if "result" not in call and call != "fsync ."]
    assert checkpoint == [
        "fsync checkpoints/.step-000000007/state.safetensors",
        "fsync checkpoints/.step-000000007/manifest.json",
        "fsync checkpoints/.step-000000007",
        "rename checkpoints/.step-000000007 checkpoints/step-000000007",
        "fsync checkpoints",
    ]
    assert calls[0] == "fsync ."  # the name of the folder of checkpoints, which is new


def test_P04_a_result_is_synced_named_and_synced(calls: list[str]) -> None:
    assert calls[-3:] == ["fsync .result", "rename .result result", "fsync ."]
