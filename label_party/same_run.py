"""Whether a party that connects takes part in the run that the label party is in.

The label party draws a name when the run begins, and every party keeps it in its folder. So two runs of one job are
told apart, also where both have come no further than step 0.

The label party saves a step first, then every party does, before the next step is sent; the first is step 0. So where
both have their folders, a crash at any moment leaves them a checkpoint in common once a step was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cutlayer.common.errors import SkewError
from cutlayer.common.run_state import WHERE_LOST, WHERE_MIXED, short
from cutlayer.label_party.answered import AnsweredActivations


class SameRun:
    """What the label party's own folder says of the run.

    Args:
        saved: the steps of its checkpoints, whole or not.
        run: the name of the run, where it has one.
    """

    def __init__(
        self, answered: AnsweredActivations, saved: Callable[[], Sequence[int]], run: Callable[[], bytes | None]
    ) -> None:
        self._answered = answered
        self._saved = saved
        self._run = run

    def may_be(self, run: bytes) -> bool:
        """Whether a party that names `run` may be in this one; where nothing was named to it yet, that is empty."""
        return run in (b"", self._run())

    def require(self, party: str, durable_steps: Sequence[int], run: bytes) -> None:
        """Admit a party that holds checkpoints of `durable_steps` in a folder of `run`.

        Raises:
            SkewError: it has another folder than the one that it began the run with, or the label party has. To go on
                would throw away what all have trained so far, or give second answers to steps that had one.
        """
        own = self._run()
        if own is not None and not self.may_be(run):
            raise SkewError(
                f"party {party!r} comes with a folder of another run of this job: it is of run {short(run)}, that of "
                f"the label party is of run {short(own)}; {WHERE_MIXED}"
            )
        saved = self._saved()
        known = max([self._answered.last(party) or -1, *saved])  # -1: the run has not even begun here
        if not self.may_be(run) or (durable_steps and min(durable_steps) > known):
            what = f"saved step {max(durable_steps)} of" if durable_steps else "begun"
            raise SkewError(
                f"party {party!r} has {what} this run, of which the label party's folder "
                f"knows nothing: start the label party with the --out DIR that it began with; {WHERE_LOST}"
            )
        if saved and known > 0 and not set(saved).intersection(durable_steps):
            raise SkewError(
                f"party {party!r} comes without a checkpoint of this run, which has saved step {max(saved)}: "
                f"start it on the host and with the --out DIR that it began with; {WHERE_LOST}"
            )
