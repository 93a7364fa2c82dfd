"""Whether a party that connects takes part in the run that the label party is in: by the checkpoints that both hold.

The label party saves a step first, then every party does, before the next step is sent; the first is step 0. So where
both have their folders, a crash at any moment leaves them a checkpoint in common once a step was answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cutlayer.common.errors import SkewError
from cutlayer.label_party.answered import AnsweredActivations

_WHERE_LOST = "where that folder is lost or damaged, give another --out DIR at every party, and the job another `seed`"


class SameRun:
    """What the label party's own folder says of the run.

    Args:
        saved: the steps of its checkpoints, whole or not.
    """

    def __init__(self, answered: AnsweredActivations, saved: Callable[[], Sequence[int]]) -> None:
        self._answered = answered
        self._saved = saved

    def require(self, party: str, durable_steps: Sequence[int]) -> None:
        """Admit a party that holds checkpoints of `durable_steps`.

        Raises:
            SkewError: it has another folder than the one that it began the run with, or the label party has. To go on
                would throw away what all have trained so far, or give second answers to steps that had one.
        """
        saved = self._saved()
        known = max([self._answered.last(party) or -1, *saved])  # -1: the run has not even begun here
        if durable_steps and min(durable_steps) > known:
            raise SkewError(
                f"party {party!r} has saved step {max(durable_steps)} of this run, of which the label party's folder "
                f"knows nothing: start the label party with the --out DIR that it began with; {_WHERE_LOST}"
            )
        if saved and known > 0 and not set(saved).intersection(durable_steps):
            raise SkewError(
                f"party {party!r} comes without a checkpoint of this run, which has saved step {max(saved)}: "
                f"start it on the host and with the --out DIR that it began with; {_WHERE_LOST}"
            )
