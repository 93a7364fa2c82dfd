"""Kills at random moments, of any party or of all with their supervisor: in the end the same bits as without.

    CUTLAYER_KILLS=100 scripts/test tests/faults/test_kills.py -s --timeout 3600

kills a hundred times, over as many runs as that takes; CUTLAYER_KILLS_SEED repeats a choice of moments.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from support.kills import PARTIES, begin, kill, kill_everything, require_same, run_to_kill, write_run
from support.runs import cutlayer, finish

RUN = run_to_kill()
KILLS = int(os.environ.get("CUTLAYER_KILLS", "4"))
_LONGEST_WAIT_S = 9.0  # a party takes about five seconds to be back


@pytest.mark.slow
def test_P01_random_kills(tmp_path: Path) -> None:
    seed = os.environ.get("CUTLAYER_KILLS_SEED", str(random.SystemRandom().randrange(10**6)))
    print(f"CUTLAYER_KILLS_SEED={seed}")
    draw = random.Random(seed)
    path, killed, runs = write_run(tmp_path, RUN), 0, 0
    assert cutlayer("run", path, "--out", tmp_path / "undisturbed").returncode == 0
    while killed < KILLS:
        runs += 1
        out = tmp_path / f"run-{runs}"
        killed += _run_with_kills(path, out, draw, min(KILLS - killed, 8))
        require_same(out, tmp_path / "undisturbed")
        print(f"run {runs}: {killed} kills so far, the same bits")


def _run_with_kills(path: Path, out: Path, draw: random.Random, kills: int) -> int:
    """How often the run was killed before it finished, at most `kills` times."""
    process, killed = begin(path, out), 0
    while killed < kills and not _ends_within(process, draw.uniform(1.0, _LONGEST_WAIT_S)):
        who = draw.choice([*PARTIES, "all", "everything"])
        if who == "everything":
            kill_everything(process, out)
            process = begin(path, out)
        else:
            kill(out, PARTIES if who == "all" else [who])
        killed += 1
    status, output = finish(process, timeout=200)
    assert status == 0, output
    return killed


def _ends_within(process: subprocess.Popen[str], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return True
        time.sleep(0.01)
    return False
