"""The loop that watches the parties of a run: what they tell, failures, signals, and no orphans."""

from __future__ import annotations

import json
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any

from cutlayer.children import Child, Lines
from cutlayer.common.displays import show_event
from cutlayer.common.progress import Display

_TICK_S = 0.1  # how late a deadline may be noticed


class Supervisor:
    """Watches children until all have ended. If one fails the others get time to end, then are made to.

    SIGINT and SIGTERM are passed on to the children while the context lasts; a second signal kills them.

    Args:
        grace_s: how long the others may go on after a failure, and how long a child may ignore SIGTERM.
        verbose: pass on the stderr of children as it comes.
    """

    def __init__(self, display: Display, *, grace_s: float, verbose: bool) -> None:
        self._display = display
        self._grace_s = grace_s
        self._verbose = verbose
        self._selector = selectors.DefaultSelector()
        self._running: dict[str, Child] = {}
        self._deadlines: deque[tuple[float, int]] = deque()  # when to send which signal to whoever still runs
        self._handlers: dict[int, Any] = {}
        self.on_listening: Callable[[str], None] = lambda address: None
        self.on_end: Callable[[Child, int], bool] = lambda child, status: False  # whether the party was started again
        self.display_of: Callable[[str], Display] = lambda name: display  # where a child's events are shown
        self.signal: int | None = None
        self.failed: list[tuple[Child, int]] = []

    def __enter__(self) -> Supervisor:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave no child behind, whatever happened."""
        self._signal_all(signal.SIGKILL)
        for child in list(self._running.values()):
            self._on_exit(child)
        self._selector.close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a party, unless the end has begun."""
        if self._ending:
            return
        child = self._running[name] = Child(name, command, environment)
        if self.signal is not None:  # it came in between
            child.signal(self.signal)
        self._selector.register(child.exit_descriptor, selectors.EVENT_READ, lambda: self._on_exit(child))
        self._selector.register(child.stdout.descriptor, selectors.EVENT_READ, lambda: self._on_stdout(child))
        self._selector.register(child.stderr.descriptor, selectors.EVENT_READ, lambda: self._on_stderr(child))

    @property
    def _ending(self) -> bool:
        return self.signal is not None or bool(self.failed)

    def wait(self) -> None:
        """Return when every child has ended; `failed` has those with a status other than 0, the first first."""
        while self._running:
            for key, _ in self._selector.select(_TICK_S):
                if self._selector.get_map().get(key.fd) == key:  # an exit earlier in the list closes the pipes
                    key.data()
            while self._deadlines and time.monotonic() >= self._deadlines[0][0]:
                self._signal_all(self._deadlines.popleft()[1])

    def _on_stdout(self, child: Child) -> None:
        for line in self._lines(child.stdout):
            address = self._show(child, line)
            if address is not None:
                self.on_listening(address)

    def _show(self, child: Child, line: str) -> str | None:
        """Show what a child tells; returns the address if it is that it listens."""
        try:
            event = json.loads(line)
            show_event(event, self.display_of(child.name))
        except (ValueError, TypeError, KeyError, AttributeError):  # a print() in code of the user's
            self._display.message(child.name, "info", line)
            return None
        return str(event["address"]) if event["event"] == "listening" else None

    def _on_stderr(self, child: Child) -> None:
        for line in self._lines(child.stderr):
            child.words.append(line)
            if self._verbose:
                print(f"{child.name}: {line}", file=sys.stderr, flush=True)

    def _lines(self, pipe: Lines) -> list[str]:
        lines = pipe.read()
        if pipe.ended:
            self._selector.unregister(pipe.descriptor)
            pipe.close()
        return lines

    def _on_exit(self, child: Child) -> None:
        self._selector.unregister(child.exit_descriptor)
        status = child.reap()
        for pipe, read in ((child.stdout, self._on_stdout), (child.stderr, self._on_stderr)):
            if not pipe.ended:
                pipe.end_when_empty()  # a grandchild may hold it open
                read(child)
        del self._running[child.name]
        if not self._ending and not child.stopped_by_us and self.on_end(child, status):
            return
        if status != 0:
            self.failed.append((child, status))
            self._end_soon((self._grace_s, signal.SIGTERM), (2 * self._grace_s, signal.SIGKILL))

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal_all(number if self.signal is None else signal.SIGKILL)
        self.signal = self.signal or number
        self._end_soon((2 * self._grace_s, signal.SIGKILL))

    def _end_soon(self, *plan: tuple[float, int]) -> None:
        """Follow `plan` (seconds from now, signal), unless the end is planned already."""
        if not self._deadlines:
            now = time.monotonic()
            self._deadlines.extend((now + seconds, number) for seconds, number in plan)

    def _signal_all(self, number: int) -> None:
        for child in list(self._running.values()):
            child.signal(number)
