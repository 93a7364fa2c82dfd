"""Runs of a sweep on a Ray cluster, for those who outgrow one machine; needs the extra `cutlayer[ray]`.

Every machine of the cluster must see the sweep's folder, and the data, at the same paths.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from cutlayer.common.errors import Interrupted, UserError
from cutlayer.sweep.board import Board
from cutlayer.sweep.folder import SweepFolder
from cutlayer.sweep.local import reason_of, run_command
from cutlayer.sweep.plan import PlannedRun

try:
    import ray
except ImportError as error:
    raise UserError("engine ray needs Ray: pip install 'cutlayer[ray]', or take --engine local") from error

_LOOK_S = 0.5  # how long a signal may go unnoticed
_STOP_S = 20.0  # how long a run may take to end its parties
# A run ends with the worker that started it, however that ends: PR_SET_PDEATHSIG, which lasts through exec.
_END_WITH_PARENT = (
    "import ctypes, os, signal, sys\n"
    "ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))\n"
    "os.getppid() == int(sys.argv[1]) or sys.exit(1)\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


class RayEngine:
    """Hands runs to the cluster that RAY_ADDRESS names, or to one that it starts on this machine.

    Args:
        jobs: at most so many runs at a time; by default what the cluster carries.
    """

    def __init__(self, folder: SweepFolder, board: Board, jobs: int | None) -> None:
        self._folder = folder
        self._board = board
        self._jobs = jobs

    def __enter__(self) -> RayEngine:
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
        for number, handler in handlers.items():  # Ray has put its own in their place, which end the process
            signal.signal(number, handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ray.shutdown()

    def run(self, runs: Sequence[PlannedRun]) -> tuple[dict[str, str], int | None]:
        """Run all; the reasons of those that failed, by name, and the signal that stopped the sweep, if one did."""
        failures: dict[str, str] = {}
        waiting, going = deque(runs), dict[Any, PlannedRun]()
        try:
            while waiting or going:
                while waiting and len(going) < (self._jobs or len(runs)):
                    self._start(waiting.popleft(), going)
                for task in ray.wait(list(going), num_returns=1, timeout=_LOOK_S)[0]:
                    self._ended(task, going.pop(task), failures)
        except Interrupted as stop:
            _cancel(list(going))
            return failures, stop.signum
        return failures, None

    def _start(self, run: PlannedRun, going: dict[Any, PlannedRun]) -> None:
        command = run_command(self._folder.run_file(run.name).resolve(), self._folder.of(run.name).resolve())
        carry_out = ray.remote(num_cpus=run.cores, max_retries=0)(_carry_out)
        going[carry_out.remote(command[1:], os.getcwd(), [path for path in sys.path if path])] = run
        self._board.started(run.name)

    def _ended(self, task: Any, run: PlannedRun, failures: dict[str, str]) -> None:
        try:
            status, words = ray.get(task)
        except ray.exceptions.RayError as error:
            status, words = 1, [f"Ray lost it: {type(error).__name__}"]
        if status == 0:
            self._board.finished(run.name, self._folder.of(run.name))
        else:
            failures[run.name] = reason_of(words, status)
            self._board.failed(run.name, failures[run.name])


def _cancel(tasks: Sequence[Any]) -> None:
    """End the runs of `tasks`, and wait for it."""
    for task in tasks:
        ray.cancel(task)
    ray.wait(tasks, num_returns=len(tasks), timeout=_STOP_S) if tasks else None


def _carry_out(arguments: list[str], folder: str, python_path: list[str]) -> tuple[int, list[str]]:
    """In a worker: run this interpreter with `arguments` to its end; exit status, and the lines on stderr."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(python_path)}
    command = [sys.executable, "-c", _END_WITH_PARENT, str(os.getpid()), sys.executable, *arguments]
    process = subprocess.Popen(  # noqa: S603 - the command is ours
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, words = process.communicate()
    except BaseException:  # cancelled
        process.terminate()
        process.wait()
        raise
    return process.returncode, words.splitlines()
