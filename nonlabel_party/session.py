"""A non-label party's side of its link: what it sends, and which answer it takes; see common/session.py."""

from __future__ import annotations

from cutlayer.common.errors import OrderError, SkewError
from cutlayer.common.handshake import PROTOCOL, Greeting, Terms, check_protocol, digest_bytes, whole_number
from cutlayer.common.history import LinkState, next_history
from cutlayer.common.session import Link


class NonlabelPartyLink(Link):
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
