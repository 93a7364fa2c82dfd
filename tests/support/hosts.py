"""The parties of a run, each started by its own command as on a host of its own: killed, and started again by hand."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from cutlayer.common.job import LABEL_PARTY
from support.forked import Fault, Forked
from support.kill_points import RUN
from support.kills import answered, require_same, write_run
from support.runs import Run, changed, free_port

KILLED = -signal.SIGKILL
TIMEOUTS = {"reconnect_s": 40, "stall_s": 60, "connect_s": 40, "keepalive_s": 1, "goodbye_s": 1}
_STEP = {LABEL_PARTY: "cutlayer.label_party.walk:Walk._step"}
_POLL_S = 0.002


class Hosts:
    """Parties of the run file at `path`, with their results in `out`. All are killed when the context ends.

    Args:
        run: what the file holds.
        faults: what happens to a party when it is started for the first time, the second time, ...
    """

    def __init__(
        self,
        path: Path,
        run: Run,
        out: Path,
        *,
        faults: Mapping[str, Sequence[Fault]] | None = None,
    ) -> None:
        self.out = out
        self.address = f"127.0.0.1:{free_port()}"
        self.connect = self.address  # through a proxy, where a test puts one there
        self.names = (LABEL_PARTY, *run["job"]["parties"])
        self.running: dict[str, Forked] = {}
        self.statuses: dict[str, list[int]] = {name: [] for name in self.names}
        self._path = path
        self._faults = {name: list(found) for name, found in (faults or {}).items()}
        self._everybody: list[Forked] = []
        out.parent.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._everybody:
            process.kill()

    def start(self, *names: str) -> None:
        """Start these parties; with no name, all."""
        for name in names or self.names:
            faults = self._faults.get(name)
            self.running[name] = self._started(name, self.out, faults.pop(0) if faults else None)

    def another(self, name: str, out: Path) -> Forked:
        """A second process of a party, with another folder of results."""
        return self._started(name, out, None)

    def _started(self, name: str, out: Path, fault: Fault | None) -> Forked:
        output = out.with_name(f"{out.name}-{name}.txt")
        process = Forked(*self._command(name), "--out", out, output=output, fault=fault)
        self._everybody.append(process)
        return process

    def kill(self, *names: str) -> None:
        """SIGKILL to these parties; with no name, to all."""
        for name in names or self.names:
            self.running[name].signal(signal.SIGKILL)
        for name in names or self.names:
            self.running[name].kill()

    def await_step(self, step: int, timeout: float = 60) -> None:
        """Wait until `step` was answered."""
        deadline = time.monotonic() + timeout
        while answered(self.out) < step:
            ended = {name: process.status for name, process in self.running.items() if process.status is not None}
            assert not ended, f"ended before step {step}: {ended}\n{self.outputs()}"
            assert time.monotonic() < deadline, f"step {step} was not answered:\n{self.outputs()}"
            time.sleep(_POLL_S)

    def finish(self, *names: str, timeout: float = 60) -> dict[str, int]:
        """Wait for the end of these parties, or of all; their exit statuses."""
        return {name: self.running[name].finish(timeout)[0] for name in names or self.names}

    def finish_whatever_happens(self, timeout: float = 90) -> None:
        """See the run to its end: who was killed is started again, as a person would; nobody fails otherwise."""
        deadline = time.monotonic() + timeout
        while self.running:
            assert time.monotonic() < deadline, f"the run did not end:\n{self.outputs()}"
            for name, process in list(self.running.items()):
                if process.status is not None:
                    self._ended(name, process.status)
            time.sleep(_POLL_S)

    def outputs(self, names: Iterable[str] = ()) -> str:
        """What these parties, or all, have said."""
        return "\n".join(f"--- {name}\n{self.running[name].output}" for name in names or self.running)

    def _ended(self, name: str, status: int) -> None:
        process = self.running.pop(name)
        self.statuses[name].append(status)
        assert status in (0, KILLED), f"{name} ended with status {status}:\n{process.output}\n{self.outputs()}"
        if status == KILLED:
            self.start(name)

    def _command(self, name: str) -> list[str | Path]:
        if name == LABEL_PARTY:
            return ["label-party", self._path, "--listen", self.address]
        return ["nonlabel-party", self._path, "--name", name, "--connect", self.connect]


def with_timeouts(**others: float) -> Run:
    """The run, with short timeouts; they are nobody's but a party's own, so the results are the same."""
    sections = ("label_party", "nonlabel_parties.lab", "nonlabel_parties.bank")
    return changed(RUN, {f"{section}.timeouts": TIMEOUTS | others for section in sections})


def at_step(party: str, step: int, number: signal.Signals = signal.SIGKILL) -> dict[str, list[Fault]]:
    """What happens to `party` right after it has done `step`."""
    return {party: [Fault("after", _STEP.get(party, "cutlayer.nonlabel_party.walk:Walk.step"), step, (number,))]}


def hosts_of(folder: Path, run: Run, faults: dict[str, list[Fault]]) -> Hosts:
    """The parties of `run`, with their results in `folder`/out."""
    return Hosts(write_run(folder, run), run, folder / "out", faults=faults)


def finish_well(hosts: Hosts, undisturbed: Path, *, saved_elsewhere: bool = False) -> None:
    """All end well, with what a run without a fault leaves."""
    assert set(hosts.finish().values()) == {0}, hosts.outputs()
    require_same(hosts.out, undisturbed, saved_elsewhere=saved_elsewhere)


def checkpoints(hosts: Hosts, party: str) -> list[int]:
    """The steps of which a party holds a checkpoint."""
    return sorted(int(path.name.removeprefix("step-")) for path in (hosts.out / party / "checkpoints").glob("step-*"))
