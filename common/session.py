"""The protocol of one link as a pure state machine: what may come next, what is answered twice, what is refused.

A link joins the label party and one non-label party. It outlives the streams that carry it: a stream that broke
is opened again with a Hello, and the link goes on at the step where it stood. No network, tensor, clock or thread
in here: the same calls in the same order always have the same outcome. A link is not thread-safe.

One step t, as both sides see it (on the right also what happens to a message that comes twice):

    NonlabelPartyLink                                 LabelPartyLink
    applied t-1                                       answered t-1
       |  greeting      --- Hello(t-1, H) ------>       |  on_greeting
       |  on_welcome    <-- Welcome(t) ----------       |
       |                                                |
       |  activation    --- Activation(t, H, z) ->      |  on_activation: Compute       any other step: refused
    waiting                                          computing                          t, same z:     Pending
       |                                                |  seal: H' from H, t, z, g     t, another z:  refused
       |                                                |  answered                     and counted
       |  on_answer     <-- Answer(t, H', g) ----    answered t                         t, same z:     AnswerAgain
    accepted                                            |                               t, another z:  refused
       |  applied                                       |                               and counted
    applied t                                           v  step t+1

H is the history digest: H_t = sha256(H_{t-1} | t | sha256 of z_t | sha256 of g_t). Both sides keep it and every
message carries it, so that a step that was lost, doubled, changed on the way or mixed up with another run is
noticed at the first message that follows, and its number is known. One activation a step is answered, and a
repeated one gets the very answer again: repeating a step teaches nothing about the labels.

Duties of the code that drives a link, in this order, at each step:

    1. apply       label party: train, build the answer, `seal`;
                   non-label party: `on_answer`, optimizer step, `applied`
    2. checkpoint  where one is due: `sealed_state()` (label party) or `state()` with models and optimizers, all of
                   the same step. The label party decides when one is due, and says so in the answer
    3. fsync       so that the checkpoint survives a loss of power
    4. report      figures and log of the step
    5. send        label party: `answered`, the answer; non-label party: the next activation

Before step 1 all save step 0, the label party first. Where a party was lost, all go back to the newest step of which
each holds a checkpoint, with new links that start from the states of that step. The label party remembers the z of each
step that it has answered, and answers no other one when the step is repeated after that.

Who sends before the state is safe has told its peer of a step that a crash may take back. An error leaves the link
as it was; the driver ends the stream with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cutlayer.common.errors import ExtraQueryError, OrderError, SkewError
from cutlayer.common.handshake import PROTOCOL as PROTOCOL
from cutlayer.common.handshake import Greeting as Greeting
from cutlayer.common.handshake import Terms as Terms
from cutlayer.common.handshake import check_protocol, digest_bytes, whole_number
from cutlayer.common.handshake import check_terms as check_terms
from cutlayer.common.history import LinkState, next_history, start_of_history

A = TypeVar("A")  # what the driver keeps as an answer


@dataclass(frozen=True)
class Compute:
    """The activation is new: train on it, then `seal` and `answered`."""

    step: int


@dataclass(frozen=True)
class AnswerAgain(Generic[A]):
    """The step is answered already: send the very same answer."""

    step: int
    answer: A


@dataclass(frozen=True)
class Pending:
    """The step is being computed for an earlier copy of this activation: wait for that answer and send it."""

    step: int


class _Link:
    """What both sides have: a place in the run, and the history up to it.

    Args:
        terms: what both sides must mean; with rows.
        steps: number of the last step.
        state: where to go on after a restart.
    """

    def __init__(self, terms: Terms, steps: int, state: LinkState | None) -> None:
        self.terms = terms
        self.steps = steps
        self._at = state or LinkState(0, start_of_history(terms))

    @property
    def history(self) -> bytes:
        """Digest after the last step that was answered or applied."""
        return self._at.history

    @property
    def finished(self) -> bool:
        """True once the last step was answered or applied."""
        return self._at.step == self.steps

    def state(self) -> LinkState:
        """What a checkpoint must hold to make this link again."""
        return self._at


@dataclass(frozen=True)
class _Computing:
    step: int
    z_digest: bytes
    sealed: bytes | None = None


@dataclass(frozen=True)
class _Answered(Generic[A]):
    history_before: bytes
    z_digest: bytes
    answer: A


class LabelPartyLink(_Link, Generic[A]):
    """The label party's side of one link. After a restart the last answer is gone: a peer that missed it is refused.

    Args:
        z_answered: the digest of the z that was answered at a step before the run went back; None where none was.
    """

    def __init__(
        self,
        terms: Terms,
        steps: int,
        state: LinkState | None = None,
        z_answered: Callable[[int], bytes | None] = lambda step: None,
    ) -> None:
        super().__init__(terms, steps, state)
        self._z_answered = z_answered
        self.extra_queries = 0  # refused attempts to get a second answer to a step with another activation
        self._computing: _Computing | None = None
        self._last: _Answered[A] | None = None

    @property
    def answered_step(self) -> int:
        """Last step answered; 0 before the first."""
        return self._at.step

    @property
    def last_answer(self) -> A | None:
        """The answer to `answered_step`; None before the first step and right after a restart."""
        return self._last.answer if self._last else None

    def on_greeting(self, greeting: Greeting) -> int:
        """Admit a stream: the step to name in Welcome, which is the one after the last that the peer has applied.

        Raises:
            OrderError: the peer has applied neither the last answer nor the one before it.
            SkewError, NotAllowedError, FrameError: as `check_terms`; SkewError also where the histories differ.
        """
        check_terms(greeting, self.terms)
        applied = whole_number("applied_step", greeting.applied_step)
        digest_bytes("history", greeting.history)
        before = self._history_before(applied + 1)
        if before is None:
            raise OrderError(
                f"party {self.terms.party!r} has applied step {applied}, the label party has answered step "
                f"{self.answered_step}: they cannot go on together; start both again from the same step"
            )
        if greeting.history != before:
            raise SkewError(
                f"the histories differ at step {applied}: the two sides come from different runs or checkpoints; "
                "start both again from the same one"
            )
        return applied + 1

    def check_step(self, step: int) -> None:
        """OrderError, naming the step expected, unless `step` is the next one or the last one answered.

        `on_activation` does it too; this is for code that needs a valid step to know what a matrix must be.
        """
        if whole_number("step", step) > self.steps or self._history_before(step) is None:
            expected = f"nothing after step {self.steps}" if self.finished else f"step {self.answered_step + 1}"
            raise OrderError(f"step {step} came, expected {expected}")

    def on_activation(
        self, step: int, z_digest: bytes, rows_digest: bytes, history: bytes, expected_rows_digest: bytes
    ) -> Compute | AnswerAgain[A] | Pending:
        """What to do with an activation that came.

        Args:
            step, rows_digest, history: as received.
            z_digest: of the matrix received.
            expected_rows_digest: of the rows that this side trains on.

        Raises:
            OrderError: a step that is not expected, or a second activation for a step, which is counted.
            SkewError: another history or other rows. FrameError: a field is missing or malformed.
        """
        self.check_step(step)
        for name, value in (("z_digest", z_digest), ("rows_digest", rows_digest), ("history", history)):
            digest_bytes(name, value)
        self._refuse_another_z(step, z_digest)
        if history != self._history_before(step):
            raise SkewError(f"step {step}: the histories differ; start both parties again from the same step")
        if rows_digest != expected_rows_digest:
            raise SkewError(
                f"step {step}: the rows of this batch are not those of the label party, or in another order"
            )
        return self._outcome(step, z_digest)

    def seal(self, step: int, g_digest: bytes) -> bytes:
        """The history to put into the answer; `g_digest` is of the gradient in it (of no bytes where there is none)."""
        z_digest = self._computing_of(step).z_digest
        sealed = next_history(self.history, step, z_digest, g_digest)
        self._computing = _Computing(step, z_digest, sealed)
        return sealed

    def sealed_state(self) -> LinkState:
        """Where this link stands, or will stand once a sealed answer is given: what a checkpoint of then must hold."""
        computing = self._computing
        return LinkState(computing.step, computing.sealed) if computing and computing.sealed else self._at

    def answered(self, step: int, answer: A) -> None:
        """Keep the sealed answer, to be sent now, and again where it gets lost: `step` is done."""
        computing = self._computing_of(step)
        if computing.sealed is None:
            raise ValueError(f"the answer to step {step} is not sealed")
        self._last = _Answered(self.history, computing.z_digest, answer)
        self._at, self._computing = LinkState(step, computing.sealed), None

    def _history_before(self, step: int) -> bytes | None:
        if step == self.answered_step + 1:
            return self.history
        return self._last.history_before if self._last and step == self.answered_step else None

    def _refuse_another_z(self, step: int, z_digest: bytes) -> None:
        first = self._last if step == self.answered_step else self._computing
        known = first.z_digest if first else self._z_answered(step)
        if known not in (None, z_digest):
            self.extra_queries += 1
            raise ExtraQueryError(
                f"step {step} came again with another activation; one activation a step is answered", self.terms.party
            )

    def _outcome(self, step: int, z_digest: bytes) -> Compute | AnswerAgain[A] | Pending:
        if step == self.answered_step and self._last:
            return AnswerAgain(step, self._last.answer)
        if self._computing:
            return Pending(step)
        self._computing = _Computing(step, z_digest)
        return Compute(step)

    def _computing_of(self, step: int) -> _Computing:
        if self._computing is None or self._computing.step != step:
            raise ValueError(f"step {step} is not being computed")
        return self._computing


class NonlabelPartyLink(_Link):
    """A non-label party's side of its link."""

    def __init__(self, terms: Terms, steps: int, state: LinkState | None = None) -> None:
        super().__init__(terms, steps, state)
        self._sent_z: bytes | None = None  # of step applied + 1
        self._accepted: LinkState | None = None

    @property
    def applied_step(self) -> int:
        """Last step whose answer was applied; 0 before the first."""
        return self._at.step

    def greeting(self, package_version: str) -> Greeting:
        """What to say first on a stream."""
        agreed = vars(self.terms)
        return Greeting(PROTOCOL, package_version, applied_step=self.applied_step, history=self.history, **agreed)

    def on_welcome(self, protocol: tuple[int, int], next_step: int) -> None:
        """The label party admits the stream; SkewError or OrderError where the two sides cannot go on together."""
        check_protocol(protocol, "the label party")
        if whole_number("next_step", next_step) != self.applied_step + 1:
            raise OrderError(
                f"the label party expects step {next_step}, this party has applied step {self.applied_step}: "
                "they cannot go on together; start both again from the same step"
            )

    def activation(self, step: int, z_digest: bytes) -> bytes:
        """The history to send with the activation of `step`; again with the same z where a stream was opened anew."""
        if step != self.applied_step + 1 or step > self.steps or self._accepted:
            raise ValueError(f"step {step} may not be sent: step {self.applied_step} of {self.steps} is applied")
        if self._sent_z not in (None, z_digest):
            raise ValueError(f"step {step} was sent before with another activation")
        self._sent_z = z_digest
        return self.history

    def check_answer(self, step: int) -> None:
        """OrderError unless `step` is the one whose answer comes next; `on_answer` does it too."""
        expected = self.applied_step + 1
        if whole_number("step", step) != expected:
            raise OrderError(f"the answer to step {step} came, expected that to step {expected}")

    def on_answer(self, step: int, history: bytes, g_digest: bytes) -> None:
        """Check an answer before its gradient is used; `g_digest` is of that (of no bytes where there is none).

        Raises:
            OrderError: not the answer that is waited for. SkewError: it does not continue the history.
            FrameError: a field is missing or malformed.
        """
        self.check_answer(step)
        if self._sent_z is None or self._accepted:
            raise OrderError(f"the answer to step {step} came, but this party does not wait for it")
        if digest_bytes("history", history) != next_history(self.history, step, self._sent_z, g_digest):
            raise SkewError(
                f"the answer to step {step} does not continue the history of this link: the activation or the "
                "gradient was changed on the way, or the answer belongs to another run"
            )
        self._accepted = LinkState(step, history)

    def applied(self, step: int) -> None:
        """The optimizer step of `step`, whose answer was accepted, is done."""
        if self._accepted is None or self._accepted.step != step:
            raise ValueError(f"step {step} has no accepted answer to apply")
        self._at, self._accepted, self._sent_z = self._accepted, None, None
