"""All parties of a run as threads of the test's process, over real sockets: what a process adds is not under test.

Threads share torch's generator. So whatever seeds it and draws from it, for initial weights or dropout, does so alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cutlayer.common import run_files
from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.models import build
from cutlayer.label_party.process import LabelParty
from cutlayer.label_party.training import LabelTraining
from cutlayer.nonlabel_party.process import NonlabelParty
from cutlayer.nonlabel_party.training import BottomTraining
from support.runs import Run, changed, free_port, write

SECRET = "tests share this"

T = TypeVar("T")
_GENERATOR = threading.RLock()


def _alone(work: Callable[..., T]) -> Callable[..., T]:
    def alone(*args: Any, **kwargs: Any) -> T:
        with _GENERATOR:
            return work(*args, **kwargs)

    return alone


for owner, name in ((build, "build_checked"), (BottomTraining, "forward"), (LabelTraining, "step")):
    setattr(owner, name, _alone(getattr(owner, name)))


@dataclass
class Outcome:
    """How each party ended, None where it finished; and where the results are."""

    out: Path
    errors: dict[str, BaseException | None] = field(default_factory=dict)

    def error(self, party: str) -> str:
        """What the party says of its end."""
        return str(self.errors[party] or "")

    def log(self, party: str) -> str:
        """The party's log."""
        return (self.out / party / "log").read_text()

    def weights(self, party: str) -> bytes:
        """The party's trained model, as it is on the disk."""
        return (self.out / party / "model" / "model.safetensors").read_bytes()

    def require_success(self) -> Outcome:
        """Fail with all errors, if there is one."""
        errors = {party: repr(error) for party, error in self.errors.items() if error is not None}
        assert not errors, errors
        return self


class Parties:
    """Starts the parties of `run`; `wait` gives the outcome.

    Args:
        connect: makes the address to connect to from the label party's own, for a proxy between them.
        through: who connects to that; None for all.
        host: where the label party listens.
        at: for some parties, what is different in their own copy of the run file.
    """

    def __init__(
        self,
        folder: Path,
        run: Run,
        *,
        connect: Callable[[str], str] | None = None,
        through: Collection[str] | None = None,
        host: str = "127.0.0.1",
        at: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        sections = ["label_party", *(f"nonlabel_parties.{name}" for name in run["nonlabel_parties"])]
        run = changed(run, {f"{section}.id_secret": SECRET for section in sections})
        self._files = {
            name: run_files.load(write(folder, changed(run, (at or {}).get(name, {})), f"{name}.yaml"))
            for name in (LABEL_PARTY, *run["job"]["parties"])
        }
        self.address = f"{host}:{free_port()}"
        self.outcome = Outcome(folder / "out")
        self._reachable = connect(self.address) if connect else self.address
        self._through = through
        self.threads = [threading.Thread(target=self._run, args=(name,), daemon=True) for name in self._files]
        for thread in self.threads:
            thread.start()

    def wait(self, timeout: float = 60) -> Outcome:
        """All parties have ended."""
        deadline = time.monotonic() + timeout
        for thread in self.threads:
            thread.join(max(deadline - time.monotonic(), 0))
            assert not thread.is_alive(), f"a party did not end within {timeout} s"
        return self.outcome

    def _run(self, name: str) -> None:
        out, run_file = self.outcome.out, self._files[name]
        try:
            if name == LABEL_PARTY:
                LabelParty(run_file, out, self.address, events=False).run()
            else:
                direct = self._through is not None and name not in self._through
                address = self.address if direct else self._reachable
                NonlabelParty(run_file, name, out, address, events=False).run()
            self.outcome.errors[name] = None
        except BaseException as error:
            self.outcome.errors[name] = error


def train(folder: Path, run: Run, *, timeout: float = 60) -> Outcome:
    """Run all parties to their end."""
    return Parties(folder, run).wait(timeout)
