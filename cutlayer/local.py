"""Starts every party of a run file as its own process on this machine, and sees them to their end."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from cutlayer.children import Child
from cutlayer.common import run_files
from cutlayer.common.config import PartySection, RunFile
from cutlayer.common.displays import make_display
from cutlayer.common.errors import ConfigError, UserError
from cutlayer.common.id_secret import ID_SECRET_VARIABLE, environment_secret
from cutlayer.common.job import LABEL_PARTY, Job
from cutlayer.common.process import INTERNAL_ERROR, print_error
from cutlayer.common.progress import Display
from cutlayer.common.run_state import RunState
from cutlayer.supervisor import Supervisor

_GRACE_S = 5.0
_NOWHERE = "127.0.0.1:9"  # given to parties whose label party has finished already
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - recognised, not bound


def party_command(name: str) -> list[str]:
    """How party `name` is started; the run file and options follow."""
    module = "label_party" if name == LABEL_PARTY else "nonlabel_party"
    return [sys.executable, "-m", f"cutlayer.{module}"]


def run(
    file: Path,
    out: Path | None,
    *,
    verbose: bool = False,
    events: bool = False,
    command: Callable[[str], Sequence[str]] = party_command,
    grace_s: float = _GRACE_S,
) -> int:
    """Run every party of `file`, each as its own process, and write `out`; returns the exit status.

    The status is 0; or 2 if a party failed by the user's mistake, whoever ended first; or that of the party that failed
    first (1 if a signal killed it); or 130 or 143 where a signal stopped the run.

    Args:
        out: an empty or new folder, or that of a run of this job, which then goes on; by default runs/<job name>,
            with -2, -3, ... where that is taken.
        events: tell a supervisor of this run what happens, and show no figures at the end.
        command: what starts a party, by its name.
        grace_s: how long the others may go on after a failure, and how long one may ignore SIGTERM.

    Raises:
        UserError: the file is wrong or lacks a party's section, or `out` is not empty.
    """
    run_file = _load(file)
    folder = results_folder(run_file.job, out)
    state = RunState(folder, run_file.job.digest(), run_file.setting())
    if state.finished:
        print(f"this run is finished; results are in {folder}")
        return 0
    state.begin()
    display = make_display(events)
    with closing(display), Supervisor(display, grace_s=grace_s, verbose=verbose) as supervisor:
        launch = _Launch(file, run_file, folder, supervisor, display, command, verbose=verbose)
        launch.begin()
        supervisor.wait()
    status = _explain(supervisor, folder, launch.restarts, verbose=verbose)
    if status == 0:
        _conclude(folder, quiet=events)
        state.finish()
    return status


class _Launch:
    """Starts the label party, when it listens the others, and again who was killed or failed by an internal error."""

    def __init__(
        self,
        file: Path,
        run_file: RunFile,
        folder: Path,
        supervisor: Supervisor,
        display: Display,
        command: Callable[[str], Sequence[str]],
        *,
        verbose: bool,
    ) -> None:
        self._run_file = run_file
        self._supervisor = supervisor
        self._display = display
        self._folder = folder
        self._address: str | None = None
        self.restarts = dict.fromkeys([LABEL_PARTY, *run_file.job.parties], 0)
        self._command = command
        self._options = [str(file), "--out", str(folder), "--events", *(["--verbose"] if verbose else [])]
        self._environment = dict(os.environ) | _made_up_secret(run_file)

    def begin(self) -> None:
        self._supervisor.on_listening = self._others
        self._supervisor.on_end = self._again
        self._party(LABEL_PARTY)

    def _others(self, address: str) -> None:
        first, self._address = self._address is None, address
        if first:
            for name in self._run_file.job.parties:
                self._party(name)

    def _again(self, child: Child, status: int) -> bool:
        """Start a party again that ended by an accident; whether that was done."""
        name = child.name
        if status == 0 and name == LABEL_PARTY and self._address is None:  # it has finished in an earlier run
            self._others(_NOWHERE)
        if not _accident(child, status) or self.restarts[name] >= self._run_file.restarts:
            return False
        self.restarts[name] += 1
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else "failed by an internal error"
        again = f"starting it again ({self.restarts[name]} of {self._run_file.restarts})"
        self._display.message(name, "info", f"{how}; {again}; its log is {self._folder / name / 'log'}")
        self._party(name)
        return True

    def _party(self, name: str) -> None:
        if name == LABEL_PARTY:
            listen = ["--listen", self._address] if self._address else []  # where the others look for it
            self._start(name, self._run_file.label_section(), listen)
            return
        host, _, port = (self._address or _NOWHERE).rpartition(":")
        reachable = f"{_LOOPBACK.get(host, host)}:{port}"
        self._start(name, self._run_file.nonlabel_section(name), ["--name", name, "--connect", reachable])

    def _start(self, name: str, section: PartySection, options: list[str]) -> None:
        threads = {"OMP_NUM_THREADS": str(section.threads)}
        self._supervisor.start(name, [*self._command(name), *self._options, *options], self._environment | threads)


def _load(file: Path) -> RunFile:
    """The run file, if it has a section for every party."""
    run_file = run_files.load(file)
    try:
        run_file.label_section()
        for name in run_file.job.parties:
            run_file.nonlabel_section(name)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}; `cutlayer run` starts every party and needs all sections") from error
    return run_file


def _made_up_secret(run_file: RunFile) -> dict[str, str]:
    """A key for the row ids where nobody has given one: all parties are on this machine, so it need hide nothing.

    It follows from the job, because it orders the rows: the same run file gives the same run again.
    """
    if environment_secret() or any(section.id_secret for section in run_file.sections().values()):
        return {}
    return {ID_SECRET_VARIABLE: run_file.job.digest().hex()}


def _accident(child: Child, status: int) -> bool:
    """Whether a party that ended so may do better when it is started again."""
    return status < 0 or (status == 1 and any(INTERNAL_ERROR in line for line in child.words))


def results_folder(job: Job, out: Path | None) -> Path:
    """An empty folder for the results, made if missing; or `out` as it is where it holds a run of this job."""
    if out is None:
        names = itertools.chain([job.name], (f"{job.name}-{number}" for number in itertools.count(2)))
        out = next(folder for folder in (Path("runs") / name for name in names) if _is_free(folder))
    elif not _is_free(out) and not RunState(out, job.digest()).begun:
        raise UserError(f"--out {out}: not empty, and results are not overwritten; give a new folder or remove it")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out}: cannot make this folder ({error.strerror}); give another --out DIR") from error
    return out


def _is_free(folder: Path) -> bool:
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def _explain(supervisor: Supervisor, folder: Path, restarts: Mapping[str, int], *, verbose: bool) -> int:
    """Say what went wrong, once for each party that failed by itself; returns the exit status of the run.

    Args:
        restarts: how often each party was started again.
    """
    if supervisor.signal is not None:
        name = signal.Signals(supervisor.signal).name
        print_error(
            f"stopped by {name}; what was written so far is in {folder}, and the same command goes on with --out"
        )
        return 128 + supervisor.signal
    for child, status in supervisor.failed:
        if not child.stopped_by_us:
            print_error(_story(child, status, folder, restarts[child.name], verbose=verbose))
    statuses = [status for _, status in supervisor.failed]
    if not statuses:
        return 0
    return UserError.exit_code if UserError.exit_code in statuses else max(statuses[0], 1)


def _story(child: Child, status: int, folder: Path, restarts: int, *, verbose: bool) -> str:
    how = f"failed with exit status {status}" if status > 0 else f"was killed by {signal.Signals(-status).name}"
    if restarts:
        how += f" after it had been started again {restarts} time{'s' if restarts > 1 else ''}"
    words = [] if verbose else [line.removeprefix("cutlayer: ") for line in child.words]
    return "\n".join([f"{child.name} {how}; its log is {folder / child.name / 'log'}", *words])


def _conclude(folder: Path, *, quiet: bool) -> None:
    """Put the parties' results together and, unless `quiet`, show them."""
    # Not before the parties are started: numpy and pyarrow start threads, and a process with threads should not fork.
    from cutlayer.closing import closing_table, console  # noqa: PLC0415
    from cutlayer.summary import merge  # noqa: PLC0415

    summary = merge(folder)
    if not quiet:
        console().print(closing_table(summary, folder))
