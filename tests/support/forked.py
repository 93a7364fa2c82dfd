"""Commands of `cutlayer` as processes of their own that start at once: forked where torch and gRPC are loaded already.

What such a process does from there on is what `cutlayer ARGS` does: real sockets, files, signals and exit status. It
may be given a fault: a place at which it kills itself.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, wraps
from itertools import count
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any, Literal

import psutil

from support.runs import environment

_PRELOADED = [  # the last one is needed by every party of the tests, but loaded late
    "cutlayer.cli",
    "cutlayer.label_party.process",
    "cutlayer.nonlabel_party.process",
    "sklearn.datasets",
]
_POLL_S = 0.01


@dataclass(frozen=True)
class Fault:
    """Signals to its own process `when` function `where`, module:name, is called for the `nth` time."""

    when: Literal["before", "after"]
    where: str
    nth: int = 1
    signals: tuple[signal.Signals, ...] = (signal.SIGKILL,)

    def __str__(self) -> str:
        return f"{self.when} {self.where.removeprefix('cutlayer.')} {self.nth}"


class Forked:
    """`cutlayer ARGS` in a process of its own.

    Args:
        output: the file that gets all that it writes; it is added to.
        variables: what its environment has beside that of tests.
    """

    def __init__(
        self,
        *args: str | Path,
        output: Path,
        fault: Fault | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._output = output
        output.touch()
        self._process: ForkServerProcess = _context().Process(
            target=_live, args=(list(map(str, args)), output, fault, environment(**(variables or {}))), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative where a signal killed it; None while it runs."""
        return self._process.exitcode

    @property
    def output(self) -> str:
        """All that it, and others with the same file, have written so far."""
        return self._output.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs; who has just died has no status yet."""
        with suppress(ProcessLookupError):
            if self.status is None:
                os.kill(self.pid, number)

    def await_stopped(self, timeout: float = 60) -> None:
        """Wait until a SIGSTOP has stopped it."""
        deadline = time.monotonic() + timeout
        while psutil.Process(self.pid).status() != psutil.STATUS_STOPPED:
            assert self.status is None, f"ended with status {self.status}:\n{self.output}"
            assert time.monotonic() < deadline, f"did not stop:\n{self.output}"
            time.sleep(_POLL_S)

    def kill(self) -> None:
        """End it at once, and wait until it has gone."""
        self.signal(signal.SIGKILL)
        self._process.join()

    def await_words(self, *words: str, timeout: float = 60) -> str:
        """Wait until the output has all `words`; returns it."""
        deadline = time.monotonic() + timeout
        while not all(word in self.output for word in words):
            assert self.status is None, f"ended before it said {words}:\n{self.output}"
            assert time.monotonic() < deadline, f"did not say {words}:\n{self.output}"
            time.sleep(_POLL_S)
        return self.output

    def finish(self, timeout: float = 60) -> tuple[int, str]:
        """Wait for its end; exit status and output."""
        self._process.join(timeout)
        assert self.status is not None, f"did not end within {timeout} s:\n{self.output}"
        return self.status, self.output


@cache
def _context() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    with _environment(environment()):
        forkserver.ensure_running()
    return context


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _live(args: Sequence[str], output: Path, fault: Fault | None, variables: Mapping[str, str]) -> None:
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["cutlayer", *args]
    main = importlib.import_module("cutlayer.cli").main
    if fault is not None:
        _arm(fault)
    main()


def _arm(fault: Fault) -> None:
    module, _, name = fault.where.partition(":")
    *owners, last = name.split(".")
    owner: Any = importlib.import_module(module)
    for one in owners:
        owner = getattr(owner, one)
    setattr(owner, last, _deadly(getattr(owner, last), fault))


def _deadly(function: Callable[..., Any], fault: Fault) -> Callable[..., Any]:
    calls = count(1)

    @wraps(function)
    def deadly(*args: Any, **kwargs: Any) -> Any:
        now = next(calls) == fault.nth
        if now and fault.when == "before":
            _send_itself(fault.signals)
        result = function(*args, **kwargs)
        if now and fault.when == "after":
            _send_itself(fault.signals)
        return result

    return deadly


def _send_itself(signals: Sequence[signal.Signals]) -> None:
    for number in signals:
        os.kill(os.getpid(), number)
