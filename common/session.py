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

    1. apply       label party: learn, build the answer, `seal`, and conclude the step: optimizer step, audit;
                   non-label party: `on_answer`, optimizer step, `applied`
    2. checkpoint  where one is due: `sealed_state()` (label party) or `state()` with models and optimizers, all of
                   the same step. The label party decides when one is due, and says so in the answer
    3. fsync       so that the checkpoint survives a loss of power
    4. report      figures and log of the step
    5. send        label party: `answered`, the answer; non-label party: the next activation

Where no checkpoint is due the label party sends as soon as it has sealed, and concludes and reports while the others
go on.

Before step 1 all save step 0, the label party first. Where a party was lost, all go back to the newest step of which
each holds a checkpoint, with new links that start from the states of that step. The label party remembers the z of each
step that it has answered, and answers no other one when the step is repeated after that.

Who sends before the state is safe has told its peer of a step that a crash may take back. An error leaves the link
as it was; the driver ends the stream with it.
"""

from __future__ import annotations

from cutlayer.common.handshake import Terms
from cutlayer.common.history import LinkState, start_of_history


class Link:
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
