"""No clock decides anything but timeouts, and those go by one that nobody sets."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support import kits
from support.processes import Background
from support.runs import BREAST_CANCER, ROOT, changed, free_port, write
from support.threads import SECRET, Outcome, train

from cutlayer.common.certificates import now

RUN = changed(
    BREAST_CANCER,
    {
        "job.epochs": 3,
        "job.batch_size": 128,
        "job.checkpoint": {"every_steps": 4},
        "nonlabel_parties.lab.attacks": ["norm"],
        "label_party.timeouts": {"reconnect_s": 5, "stall_s": 60, "goodbye_s": 2},
    },
)
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), Path("not installed"))
# What lab runs: with a clock that is as many days ahead as the file `clock` says. The library does it to all code, but
# not to the kernel, so that every wait of gRPC takes far too long, and it breaks time.sleep.
BY_FAKETIME = """
import threading, time
time.sleep = lambda seconds: threading.Event().wait(seconds) and None
"""
BY_PYTHON = """
import os, pathlib, sys, time
from datetime import datetime
from cutlayer.nonlabel_party import process
right_time, clock = time.time, pathlib.Path(os.environ["FAKETIME_TIMESTAMP_FILE"])
time.time = lambda: right_time() + 86400 * int(clock.read_text().removesuffix("d"))
class Wrong(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.fromtimestamp(time.time(), tz)
for name, module in list(sys.modules.items()):
    if name.startswith("cutlayer.") and getattr(module, "datetime", None) is datetime:
        module.datetime = Wrong
"""
MAIN = "from cutlayer.cli import main\nmain()\n"


def stamps(log: Path) -> list[timedelta]:
    """By how much the clock of a party was ahead at each line of its log, as seen from now."""
    return [datetime.fromisoformat(json.loads(line)["time"]) - now() for line in log.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("code", "library"),
    [
        pytest.param(BY_PYTHON, "", id="in Python"),
        pytest.param(
            *(BY_FAKETIME, str(FAKETIME)),
            marks=pytest.mark.skipif(not FAKETIME.exists(), reason="faketime is not installed"),
            id="faketime",
        ),
    ],
)
def test_P10_a_clock_that_is_wrong_and_is_set_back_changes_nothing(tmp_path: Path, code: str, library: str) -> None:
    kit = kits.make(tmp_path / "certs", parties=())
    for party in ("lab", "label_party"):
        kits.of_days(kit, party, -1, 800)
    address = f"127.0.0.1:{free_port()}"
    path, out, clock = write(tmp_path, kits.with_tls(RUN, kit)), tmp_path / "out", tmp_path / "clock"
    clock.write_text("+400d")
    secret = {"CUTLAYER_ID_SECRET": SECRET}
    options = {"LD_PRELOAD": library, "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    wrong = secret | {"FAKETIME_TIMESTAMP_FILE": str(clock)} | (options if library else {})
    lab_command = ("nonlabel-party", path, "--name", "lab", "--out", out, "--connect", address)
    with (
        Background("label-party", path, "--out", out, "--listen", address, variables=secret) as label,
        Background(sys.executable, "-c", code + MAIN, *lab_command, whole=True, variables=wrong) as lab,
    ):
        label.await_words("epoch 1,", timeout=200)
        clock.write_text("+2d")
        ends = [party.finish(100) for party in (label, lab)]
    assert [status for status, _ in ends] == [0, 0], ends
    ahead = stamps(out / "lab" / "log")
    assert ahead[0] > timedelta(days=399)  # the clock was wrong indeed
    assert ahead[-1] < timedelta(days=3)
    undisturbed = train(tmp_path / "undisturbed", RUN).require_success()
    for party in ("label_party", "lab"):
        assert Outcome(out).weights(party) == undisturbed.weights(party)


def ban(code: str, file: str) -> str:
    """What ruff says of `code`, were it in `file`."""
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251", "--stdin-filename", file, "-"]
    return subprocess.run(command, input=code, capture_output=True, text=True, cwd=ROOT, check=False).stdout


@pytest.mark.parametrize(
    "code",
    [
        "import time\ntime.time()\n",
        "from time import time_ns\n",
        "from datetime import datetime\ndatetime.now()\n",
        "import datetime\ndatetime.datetime.utcnow()\n",
        "from datetime import date\ndate.today()\n",
    ],
)
def test_P10_ruff_refuses_a_clock_that_can_be_set(code: str) -> None:
    assert "TID251" in ban(code, "common/any.py")


def test_P10_only_log_scalars_and_certificates_look_at_the_date() -> None:
    code = [file for folder in ("common", "label_party", "nonlabel_party") for file in (ROOT / folder).rglob("*.py")]
    code += (ROOT / "cutlayer").glob("*.py")
    exempt = {file.name for file in code if "noqa: TID251" in file.read_text()}
    assert exempt == {"certificates.py", "scalars.py", "telemetry.py"}
