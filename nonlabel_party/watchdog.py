"""Ends a call that waits for longer than a peer may take: one sleeping thread, no timer per step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

_LOOK_EVERY_S = 0.5


class Cancellable(Protocol):
    """A call that can be ended from another thread."""

    def cancel(self) -> object:
        """End it."""


class Watchdog:
    """Cancels calls that take too long; serves one call at a time.

    Args:
        hurry: whether this process was asked to end; a call then gets `hurry_s` more.
    """

    def __init__(self, hurry: Callable[[], bool] = lambda: False, hurry_s: float = 3.0) -> None:
        self._hurry = hurry
        self._hurry_s = hurry_s
        self._watched: tuple[Cancellable, float] | None = None
        self._asked_at: float | None = None
        self.expired = False
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    @contextmanager
    def over(self, call: Cancellable, seconds: float) -> Iterator[None]:
        """Cancel `call` if the block takes longer than `seconds`; `expired` then tells so."""
        self.expired = False
        self._watched = (call, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._watched = None

    def _hurry_until(self) -> float:
        self._asked_at = self._asked_at or time.monotonic()
        return self._asked_at + self._hurry_s

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_EVERY_S)
            watched = self._watched
            if watched is not None and self._hurry():
                watched = self._watched = (watched[0], min(watched[1], self._hurry_until()))
            if watched is not None and time.monotonic() > watched[1]:
                self.expired = True
                watched[0].cancel()
