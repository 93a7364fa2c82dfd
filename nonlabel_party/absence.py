"""The label party is away: for how long it is waited for, and what a person is told of it."""

from __future__ import annotations

import time

from cutlayer.common.errors import PeerError
from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.telemetry import Telemetry
from cutlayer.common.waiting import Wait

_STEADY_S = 10.0  # a line that was open for so long was no failed attempt
_LONGEST_PAUSE_S = 0.5  # between attempts: as long as a label party that is back may have to wait to be noticed


class Absence:
    """When the label party was lost, if it is.

    Args:
        address: of the label party.
        patience_s: how long it may be away.
    """

    def __init__(self, address: str, patience_s: float, telemetry: Telemetry) -> None:
        self._name = f"the label party at {address}"
        self._patience_s = patience_s
        self._telemetry = telemetry
        self._since: float | None = None

    def lost(self, when: str, opened: float | None = None) -> float:
        """It is lost, or lost still; returns the seconds until the next attempt to reach it.

        Args:
            when: in words, for a person.
            opened: since when the line that broke had been open, by the monotonic clock; None if it never was. An
                attempt of a row of attempts that break at once does not begin a new absence.

        Raises:
            PeerError: it is away for too long.
        """
        if self._since is None or (opened is not None and time.monotonic() - opened > _STEADY_S):
            self._since = time.monotonic()
            self._telemetry.info(f"lost {self._name} {when}; reconnecting")
        wait = Wait(LABEL_PARTY, f"lost {when}", self._patience_s, self._since, self._name)
        if wait.left == 0:
            raise PeerError(f"{self._name} was lost {when} and did not come back within {self._patience_s:g} s")
        self._telemetry.waiting([wait])
        return min(0.1 + wait.seconds, _LONGEST_PAUSE_S)

    def over(self) -> None:
        """It has answered."""
        if self._since is not None:
            self._since = None
            self._telemetry.reconnected(LABEL_PARTY)
            self._telemetry.waiting(())
