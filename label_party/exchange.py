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
from typing import Generic, TypeVar

from cutlayer.common.errors import PeerError, RolledBack
from cutlayer.common.limits import Timeouts
from cutlayer.common.waiting import Wait
from cutlayer.label_party.streams import Closed as Closed
from cutlayer.label_party.streams import Stream as Stream
from cutlayer.label_party.streams import StreamGone as StreamGone

In = TypeVar("In")
Out = TypeVar("Out")

FINISHED = "has finished"
_POLL_S = 0.5  # how often timeouts are looked at; arrivals wake the waiters at once


class Exchange(Generic[In, Out]):
    """The meeting point of all parties of one session.

    Args:
        parties: who must hand in at each number.
        report: told again and again for whom the training loop waits, and of nobody when it goes on.
        returned: told of a party that was lost and is back.
    """

    def __init__(
        self,
        parties: Sequence[str],
        timeouts: Timeouts,
        report: Callable[[Sequence[Wait]], None],
        returned: Callable[[str], None] = lambda party: None,
    ) -> None:
        self._parties = tuple(parties)
        self._timeouts = timeouts
        self._report = report
        self._returned = returned
        self._changed = threading.Condition()
        self._streams: dict[str, Stream] = {}
        self._open: set[Stream] = set()
        self._lost_at: dict[str, float] = {}
        self._left: dict[str, str] = {}
        self._inbox: dict[str, tuple[int, In]] = {}
        self._outbox: dict[str, tuple[int, Out]] = {}
        self._closed: Closed | None = None
        self._era = 0
        self._training = True  # but from when the session goes back until number 0 is answered anew
        self._confirmed = False
        self._finishing = 0  # calls of parties that have finished

    @property
    def connected(self) -> int:
        """How many parties have an open stream."""
        return len(self._streams)

    @property
    def unanswered(self) -> int:
        """How many parties have handed in what has no answer yet."""
        with self._changed:
            return sum(number > self._outbox.get(party, (-1,))[0] for party, (number, _) in self._inbox.items())

    # The streams' side.

    def arrive(self, party: str, peer: str = "") -> Stream:
        """A stream of `party` opens; an older one is fenced off. Where the session ends, `submit` says so."""
        with self._changed:
            stream = Stream(party, self._era, peer)
            if older := self._streams.get(party):
                older.gone = True
            self._streams[party] = stream
            self._open.add(stream)
            was_lost = self._lost_at.pop(party, None) is not None
            self._left.pop(party, None)
            self._changed.notify_all()
        if was_lost:
            self._returned(party)
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
                raise StreamGone
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
                if stream.gone:  # before anything else: who was replaced must not begin again, and replace the other
                    raise StreamGone
                if number == 0 and answered > 0:
                    self._roll_back()
                self._require_era(stream, number)
                self._changed.wait(_POLL_S)

    def leave(self, party: str, reason: str, peer: str = "") -> None:
        """The party says that it ends, and why. Another process of that name, which was refused, ends nothing."""
        with self._changed:
            stream = self._streams.get(party)
            if stream is None or stream.peer == peer:
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
        with self._changed:
            while missing := [p for p in self._parties if self._inbox.get(p, (-1,))[0] != number]:
                self._require_training(number)
                waits = [self._wait_for(party, number, began) for party in missing]
                self._report(waits)
                self._changed.wait(_POLL_S)
            self._report(())
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

    def await_finish(self) -> dict[str, str]:
        """Wait until every party has said that it finished; returns which did not, and why, after a while."""
        began = time.monotonic()
        deadline = began + self._timeouts.reconnect_s
        with self._changed:
            while missing := [p for p in self._parties if self._left.get(p) != FINISHED]:
                self._require_training(1)
                if ended := {p: self._left[p] for p in missing if p in self._left}:
                    return ended
                lost = all(p in self._lost_at for p in missing)
                end = deadline if lost else deadline + self._timeouts.stall_s
                if time.monotonic() > end:
                    break
                self._report([Wait(p, "has not confirmed the last step", end - began, began) for p in missing])
                self._changed.wait(_POLL_S)
            self._report(())
            return dict.fromkeys(missing, "was lost")

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

    def _wait_for(self, party: str, number: int, began: float) -> Wait:
        """How things stand with a party that has not handed in `number`; PeerError where it is waited for no more."""
        limits, at = self._timeouts, f"at step {number}" if number else "before the first step"
        if party in self._left:
            raise PeerError(f"party {party!r} {self._left[party]} {at}", party)
        if stream := self._streams.get(party):
            if number and stream.came_at - began > limits.stall_s + limits.reconnect_s:
                raise PeerError(f"party {party!r} came back again and again {at}, but its activation never came", party)
            wait = Wait(party, f"silent {at}", limits.stall_s, max(began, stream.heard_at))
            end = f"is connected but sent nothing for {limits.stall_s:g} s {at}"
        elif party in self._lost_at:
            wait = Wait(party, f"lost {at}", limits.reconnect_s, self._lost_at[party])
            end = f"was lost {at} and did not come back within {limits.reconnect_s:g} s"
        else:
            wait = Wait(party, "not there yet", limits.connect_s, began)
            end = f"did not connect within {limits.connect_s:g} s"
        if wait.left == 0:
            raise PeerError(f"party {party!r} {end}", party)
        return wait
