"""The label party's side of a link: what is new, what is answered again, what is refused; see common/session.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cutlayer.common.errors import ExtraQueryError, OrderError, SkewError
from cutlayer.common.handshake import Greeting, Terms, check_terms, digest_bytes, whole_number
from cutlayer.common.history import LinkState, next_history
from cutlayer.common.session import Link

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


class LabelPartyLink(Link, Generic[A]):
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
