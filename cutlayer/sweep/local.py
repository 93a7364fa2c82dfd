"""Runs of a sweep on this machine, several side by side, each as `cutlayer run` in a process of its own."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from cutlayer.children import Child
from cutlayer.supervisor import Supervisor
from cutlayer.sweep.board import Board
from cutlayer.sweep.folder import SweepFolder
from cutlayer.sweep.plan import PlannedRun

_GRACE_S = 10.0  # more than a run takes to stop its own parties
_LAST_WORDS = 12  # lines of stderr that are the reason of a failure
_PREFIX = "cutlayer: "


def run_command(file: Path, out: Path) -> list[str]:
    """How a run is started, telling what happens as events."""
    return [sys.executable, "-m", "cutlayer.cli", "run", str(file), "--out", str(out), "--events"]


def reason_of(words: Sequence[str], status: int) -> str:
    """Why a run failed, from what it wrote to stderr."""
    lines = [line.removeprefix(_PREFIX) for line in words]
    return "\n".join(lines[-_LAST_WORDS:]) or f"ended with exit status {status} and said nothing"


def default_jobs(runs: Sequence[PlannedRun]) -> int:
    """How many runs this machine's cores can carry side by side."""
    return max(1, len(os.sched_getaffinity(0)) // max((run.cores for run in runs), default=1))


class LocalEngine:
    """Keeps `jobs` runs going until all have ended; a failed one does not end the others."""

    def __init__(self, folder: SweepFolder, board: Board, jobs: int) -> None:
        self._folder = folder
        self._board = board
        self._jobs = jobs
        self._waiting: deque[PlannedRun] = deque()
        self._failures: dict[str, str] = {}

    def run(self, runs: Sequence[PlannedRun]) -> tuple[dict[str, str], int | None]:
        """Run all; the reasons of those that failed, by name, and the signal that stopped the sweep, if one did."""
        self._waiting.extend(runs)
        with Supervisor(self._board.display_of("sweep"), grace_s=_GRACE_S, verbose=False) as supervisor:
            self._supervisor = supervisor
            supervisor.display_of = self._board.display_of
            supervisor.on_end = self._ended
            for _ in range(self._jobs):
                self._start_next()
            supervisor.wait()
        return self._failures, supervisor.signal

    def _start_next(self) -> None:
        if not self._waiting:
            return
        run = self._waiting.popleft()
        command = run_command(self._folder.run_file(run.name), self._folder.of(run.name))
        self._supervisor.start(run.name, command, os.environ | {"OMP_NUM_THREADS": "1"})
        self._board.started(run.name)

    def _ended(self, child: Child, status: int) -> bool:
        """A run has ended by itself, well or not. True: that does not end the sweep."""
        if status == 0:
            self._board.finished(child.name, self._folder.of(child.name))
        else:
            self._failures[child.name] = reason_of(child.words, status)
            self._board.failed(child.name, self._failures[child.name])
        self._start_next()
        return True
