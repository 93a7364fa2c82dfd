"""Where the streams' threads hand over to the training loop, and wait for what it returns.

    stream thread   arrive -> submit(number) -> wait_answer(number) -> ... -> depart
    training loop             collect(number) -> publish(number) -> ... -> close

Numbers are steps; number 0 is the exchange of id digests. A party's newest stream is the valid one: an
older one that still hangs is fenced off.

A party that hands in its ids after it was answered a step has been away and lost that step: the session goes
back. The training loop gets RolledBack, streams that trained get Closed("ROLLBACK"), and the loop collects number
0 again. Each such turn is a new era, and a stream trains only in the era in which it arrived.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cutlayer.common.errors import OrderError, PeerError, RolledBack
from cutlayer.common.limits import Timeouts

In = TypeVar("In")
Out = TypeVar("Out")

FINISHED = "has finished"
_POLL_S = 0.5  # how often timeouts are looked at; arrivals wake the waiters at once
_REPORT_AFTER_S = 3.0


@dataclass(eq=False)
class Stream:
    """One open stream of a party; compared by identity."""

    party: str
    era: int
    gone: bool = False


class Closed(Exception):
    """The label party ends the session, or goes back in it; `reason` names a value of the wire's Reason."""

    def __init__(self, reason: str, party: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.party = party


class StreamGone(Exception):
    """This stream has ended or was replaced by a newer one."""


class Exchange(Generic[In, Out]):
    """The meeting point of all parties of one session.

    Args:
        parties: who must hand in at each number.
        report: told in words when the training loop has to wait.
    """

    def __init__(self, parties: Sequence[str], timeouts: Timeouts, report: Callable[[str], None]) -> None:
        self._parties = tuple(parties)
        self._timeouts = timeouts
        self._report = report
        self._changed = threading.Condition()
        self._streams: dict[str, Stream] = {}
        self._open: set[Stream] = set()
        self._arrived_at: dict[str, float] = {}
        self._lost_at: dict[str, float] = {}
        self._left: dict[str, str] = {}
        self._inbox: dict[str, tuple[int, In]] = {}
        self._outbox: dict[str, tuple[int, Out]] = {}
        self._closed: Closed | None = None
        self._era = 0
        self._training = True  # but from when the session goes back until number 0 is answered anew
        self._confirmed = False
        self._finishing = 0  # calls of parties that have finished

    # The streams' side.

    def arrive(self, party: str) -> Stream:
        """A stream of `party` opens; an older one is fenced off. Where the session ends, `submit` says so."""
        with self._changed:
            stream = Stream(party, self._era)
            if older := self._streams.get(party):
                older.gone = True
            self._streams[party] = stream
            self._open.add(stream)
            self._arrived_at[party] = time.monotonic()
            self._lost_at.pop(party, None)
            self._left.pop(party, None)
            self._changed.notify_all()
        return stream

    def depart(self, stream: Stream) -> None:
        """The stream has ended, for whatever reason. May be called more than once."""
        with self._changed:
            stream.gone = True
            self._open.discard(stream)
            if self._streams.get(stream.party) is stream:
                del self._streams[stream.party]
                self._lost_at[stream.party] = time.monotonic()
            self._changed.notify_all()

    def submit(self, stream: Stream, number: int, item: In) -> None:
        """Hand in what the party sent for `number`."""
        with self._changed:
            if self._closed:
                raise self._closed
            if self._streams.get(stream.party) is not stream:
                raise OrderError("a newer stream of this party has taken over")
            self._require_era(stream, number)
            self._inbox[stream.party] = (number, item)
            self._changed.notify_all()

    def wait_answer(self, stream: Stream, number: int) -> Out:
        """Wait for what the training loop returns for `number`.

        Raises:
            Closed: the session ends or goes back. StreamGone: nobody reads this stream any more.
        """
        with self._changed:
            while True:
                answered, answer = self._outbox.get(stream.party, (-1, None))
                if answered == number and answer is not None:
                    return answer
                if self._closed:
                    raise self._closed
                if number == 0 and answered > 0:
                    self._roll_back()
                self._require_era(stream, number)
                if stream.gone:
                    raise StreamGone
                self._changed.wait(_POLL_S)

    def leave(self, party: str, reason: str) -> None:
        """The party says that it ends, and why."""
        with self._changed:
            self._left[party] = reason
            self._changed.notify_all()

    def finishing(self) -> None:
        """A party that has finished calls; `finishing_ended` follows when it has its answer."""
        with self._changed:
            self._finishing += 1

    def finishing_ended(self) -> None:
        """The call of a party that has finished is over."""
        with self._changed:
            self._finishing -= 1
            self._changed.notify_all()

    def wait_confirmation(self, party: str, still_there: Callable[[], bool]) -> None:
        """The party has finished: wait until all have, and the label party's results are written.

        Raises:
            Closed: the session ends or goes back. StreamGone: nobody waits any more.
        """
        with self._changed:
            if not self._training:
                raise Closed("ROLLBACK", "")
            self._left[party] = FINISHED
            era = self._era
            self._changed.notify_all()
            while not self._confirmed:
                if self._closed:
                    raise self._closed
                if not self._training or era != self._era:
                    raise Closed("ROLLBACK", "")
                if not still_there():
                    self._left.pop(party, None)
                    raise StreamGone
                self._changed.wait(_POLL_S)

    # The training loop's side.

    def collect(self, number: int) -> dict[str, In]:
        """Wait until every party has handed in `number`.

        Raises:
            PeerError: a party has left, or was absent or silent for too long; the message names it.
            RolledBack: go on with number 0.
        """
        began = time.monotonic()
        reported = False
        with self._changed:
            while missing := [p for p in self._parties if self._inbox.get(p, (-1,))[0] != number]:
                self._require_training(number)
                for party in missing:
                    self._raise_if_hopeless(party, number, began)
                if not reported and time.monotonic() - began > _REPORT_AFTER_S:
                    self._report(f"waiting for {', '.join(missing)}{f' at step {number}' if number else ''}")
                    reported = True
                self._changed.wait(_POLL_S)
            return {party: self._inbox[party][1] for party in self._parties}

    def publish(self, number: int, answers: Mapping[str, Out]) -> None:
        """Give every party its answer for `number`; RolledBack where the session has gone back meanwhile."""
        with self._changed:
            if number == 0:
                self._training = True
                self._era += 1
            self._require_training(number)
            for party, answer in answers.items():
                self._outbox[party] = (number, answer)
            self._changed.notify_all()

    def await_finish(self) -> list[str]:
        """Wait until every party has said that it finished; returns those that did not, after a while."""
        deadline = time.monotonic() + self._timeouts.reconnect_s
        with self._changed:
            while missing := [p for p in self._parties if self._left.get(p) != FINISHED]:
                self._require_training(1)
                if any(p in self._left for p in missing):
                    break
                lost = all(p in self._lost_at for p in missing)
                if time.monotonic() > (deadline if lost else deadline + self._timeouts.stall_s):
                    break
                self._changed.wait(_POLL_S)
            return missing

    def confirm(self) -> None:
        """The results are written: let the parties that have finished go."""
        with self._changed:
            self._confirmed = True
            self._changed.notify_all()

    def close(self, reason: str, party: str = "") -> None:
        """End the session: every waiting stream is told, then given a moment to end."""
        deadline = time.monotonic() + self._timeouts.goodbye_s
        with self._changed:
            self._closed = Closed(reason, party)
            self._changed.notify_all()
            while (self._open or self._finishing) and time.monotonic() < deadline:
                self._changed.wait(0.1)

    def _roll_back(self) -> None:
        self._training = False
        self._inbox = {party: item for party, item in self._inbox.items() if item[0] == 0}
        self._outbox.clear()
        self._left = {party: reason for party, reason in self._left.items() if reason != FINISHED}
        self._changed.notify_all()

    def _require_training(self, number: int) -> None:
        if number > 0 and not self._training:
            raise RolledBack

    def _require_era(self, stream: Stream, number: int) -> None:
        if number > 0 and not (self._training and stream.era == self._era):
            raise Closed("ROLLBACK", "")

    def _raise_if_hopeless(self, party: str, number: int, began: float) -> None:
        limits, at = self._timeouts, f"at step {number}" if number else "before the first step"
        now = time.monotonic()
        if party in self._left:
            raise PeerError(f"party {party!r} {self._left[party]} {at}", party)
        if party in self._streams:
            if now - max(began, self._arrived_at[party]) > limits.stall_s:
                raise PeerError(f"party {party!r} is connected but sent nothing for {limits.stall_s:g} s {at}", party)
        elif party in self._lost_at:
            if now - self._lost_at[party] > limits.reconnect_s:
                raise PeerError(
                    f"party {party!r} was lost {at} and did not come back within {limits.reconnect_s:g} s", party
                )
        elif now - began > limits.connect_s:
            raise PeerError(f"party {party!r} did not connect within {limits.connect_s:g} s", party)
