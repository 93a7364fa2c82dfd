"""Watches a call that waits: tells of it, and ends it after what a peer may take. One sleeping thread for all steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.waiting import Wait

_LOOK_EVERY_S = 0.5


class Cancellable(Protocol):
    """A call that can be ended from another thread."""

    def cancel(self) -> object:
        """End it."""


class Watchdog:
    """Cancels calls that take too long; serves one call at a time.

    Args:
        hurry: whether this process was asked to end; a call then gets `hurry_s` more.
        report: told again and again for what this party waits, and of nothing when it goes on.
    """

    def __init__(
        self,
        hurry: Callable[[], bool] = lambda: False,
        hurry_s: float = 3.0,
        report: Callable[[Sequence[Wait]], None] = lambda waits: None,
    ) -> None:
        self._hurry = hurry
        self._hurry_s = hurry_s
        self._report = report
        self._lock = threading.Lock()  # what is over must not be reported as if it lasted
        self._watched: tuple[Cancellable, Wait] | None = None
        self._asked_at: float | None = None
        self.expired = False
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    @contextmanager
    def over(self, call: Cancellable, seconds: float) -> Iterator[None]:
        """Cancel `call` if the block takes longer than `seconds`; `expired` then tells so."""
        self.expired = False
        self._watched = (call, Wait(LABEL_PARTY, "no answer yet", seconds, name="the label party"))
        try:
            yield
        except BaseException:
            self._watched = None
            raise
        with self._lock:
            self._watched = None
            self._report(())

    def close(self) -> None:
        """No call is watched any more."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_EVERY_S):
            with self._lock:
                if self._watched is not None:
                    self._look_at(*self._watched)

    def _look_at(self, call: Cancellable, wait: Wait) -> None:
        if wait.left == 0 or self._hurried():
            self.expired = True
            call.cancel()
        else:
            self._report((wait,))

    def _hurried(self) -> bool:
        """Whether this process was asked to end, and has waited for as long as it may then."""
        if self._asked_at is None and self._hurry():
            self._asked_at = time.monotonic()
        return self._asked_at is not None and time.monotonic() - self._asked_at > self._hurry_s
