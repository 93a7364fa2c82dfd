"""Waiting for another party: for whom, why, since when, and for how long still."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cutlayer.common.progress import duration

_FIRST_AFTER_S = 3.0  # shorter waits are part of every step
_MOST_SELDOM_S = 60.0


@dataclass(frozen=True)
class Wait:
    """This party waits for `peer`.

    Attributes:
        peer: its name in the run file.
        why: as in "is not there yet".
        limit_s: after so many seconds this party gives up.
        since: by the monotonic clock.
        name: for a person, where `peer` alone says too little.
    """

    peer: str
    why: str
    limit_s: float
    since: float = field(default_factory=time.monotonic)
    name: str = ""

    @property
    def seconds(self) -> float:
        """How long so far."""
        return time.monotonic() - self.since

    @property
    def left(self) -> float:
        """Seconds until this party gives up."""
        return max(self.limit_s - self.seconds, 0.0)

    def __str__(self) -> str:
        return (
            f"{self.name or self.peer} ({self.why}; {duration(self.seconds)} so far, gives up in {duration(self.left)})"
        )


class WaitingNews:
    """Decides when a person is told of waiting: after a few seconds, then ever more seldom, and when it is over.

    Args:
        now: seconds of a clock that never goes back.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began = 0.0
        self._interval_s = 0.0  # 0: nothing was told
        self._told_at = 0.0

    def of(self, waits: Sequence[Wait]) -> str | None:
        """What to tell now that the party waits for `waits`, or for nobody any more; None for nothing."""
        if not waits:
            return self._over() if self._interval_s else None
        now = self._now()
        if not self._interval_s:
            self._began = min(wait.since for wait in waits)
            if now - self._began < _FIRST_AFTER_S:
                return None
        elif now - self._told_at < self._interval_s:
            return None
        self._told_at = now
        self._interval_s = min(2 * self._interval_s or _FIRST_AFTER_S, _MOST_SELDOM_S)
        return f"waiting for {', '.join(map(str, waits))}"

    @property
    def told(self) -> bool:
        """Whether a person was told, and not yet that it is over."""
        return self._interval_s > 0

    def _over(self) -> str:
        self._interval_s = 0.0
        return f"going on after {duration(self._now() - self._began)} of waiting"
