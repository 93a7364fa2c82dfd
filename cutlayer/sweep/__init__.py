"""`cutlayer sweep`: a grid over the keys of a run file, several runs side by side, one table of results."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from cutlayer.common.errors import CutlayerError, UserError
from cutlayer.common.files import DirectoryLock
from cutlayer.common.process import print_error
from cutlayer.sweep.board import Board
from cutlayer.sweep.folder import SweepFolder
from cutlayer.sweep.local import LocalEngine, default_jobs
from cutlayer.sweep.plan import ENGINES, PlannedRun, load


def sweep(file: Path, out: Path | None = None, jobs: int | None = None, engine: str | None = None) -> int:
    """Run every combination that the sweep file asks for, but those that have finished before; the exit status.

    The status is 0, or 1 where a run failed, or 130 or 143 where a signal stopped the sweep.

    Args:
        out: folder of the sweep, which goes on where it stopped; by default sweeps/<name of the file>.
        jobs: runs side by side; by default what the cores carry.
        engine: in place of the file's.

    Raises:
        UserError: the file or a combination is wrong, or `out` is not a folder of this sweep.
    """
    plan = load(file)
    require_plugins(plan.runs)
    folder = SweepFolder(out or Path("sweeps") / file.stem)
    failures, stopped_by = complete(folder, plan.runs, jobs, engine or plan.engine)
    return _conclude(folder, plan.runs, failures, stopped_by)


def complete(
    folder: SweepFolder,
    runs: Sequence[PlannedRun],
    jobs: int | None = None,
    engine: str = ENGINES[0],
    console: Console | None = None,
) -> tuple[dict[str, str], int | None]:
    """Run what has not finished in `folder`; the reasons of runs that failed, and the signal that stopped it all.

    Raises:
        UserError: `folder` is in use, or holds runs of another run file.
    """
    with DirectoryLock(folder.path):
        folder.prepare(runs)
        open_runs = [run for run in runs if not folder.finished(run)]
        folder.await_leftovers(open_runs)
        return _run(folder, runs, open_runs, jobs, engine, console)


def require_plugins(runs: Sequence[PlannedRun]) -> None:
    """Make every defense, attack and data source of `runs` once, without reading data.

    Raises:
        UserError: one does not exist, has no such option, or does not fit the task; each line names a run.
    """
    content = json.dumps({run.name: run.content for run in runs}, default=str)
    command = [sys.executable, "-m", "cutlayer.sweep.plugin_check"]
    found = subprocess.run(command, input=content, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if found.returncode != 0:
        raise CutlayerError("the plugins of the sweep could not be looked at; the reason is above")
    if problems := json.loads(found.stdout):
        raise UserError("\n".join(f"run {name}: {problem}" for name, problem in problems))


def _run(
    folder: SweepFolder,
    runs: Sequence[PlannedRun],
    open_runs: Sequence[PlannedRun],
    jobs: int | None,
    engine: str,
    console: Console | None,
) -> tuple[dict[str, str], int | None]:
    """Run what is open; the reasons of the runs that failed, and the signal that stopped it all."""
    if engine not in ENGINES:
        raise UserError(f"--engine: expected {' or '.join(ENGINES)}, got {engine!r}")
    if engine == "ray":
        from cutlayer.sweep.ray_engine import RayEngine  # noqa: PLC0415 - an extra

        with Board(len(runs), len(runs) - len(open_runs), console) as board, RayEngine(folder, board, jobs) as ray:
            return ray.run(open_runs)
    with Board(len(runs), len(runs) - len(open_runs), console) as board:
        return LocalEngine(folder, board, jobs or default_jobs(open_runs)).run(open_runs)


def _conclude(folder: SweepFolder, runs: Sequence[PlannedRun], failures: dict[str, str], stopped_by: int | None) -> int:
    """Write the table of what has finished, and say what has not; returns the exit status."""
    # pyarrow starts threads, and a process with threads should not fork
    from cutlayer.sweep.results import write_results  # noqa: PLC0415

    finished = [(run, folder.summary(run.name)) for run in runs if folder.finished(run)]
    write_results(folder.results, finished)
    print(f"{len(finished)} of {len(runs)} runs finished; results: {folder.results}")
    if others := folder.others(runs):
        print(f"not in it: {len(others)} in {folder.path / 'runs'} that this grid does not have, such as {others[0]}")
    if stopped_by is not None:
        print_error(f"sweep stopped by {signal.Signals(stopped_by).name}; the same command goes on where it stopped")
        return 128 + stopped_by
    for name, reason in failures.items():
        print_error(f"run {name} failed: {reason}")
    return 1 if failures else 0
