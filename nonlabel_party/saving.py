"""A non-label party's checkpoints: what is in one, and how training goes on from it."""

from __future__ import annotations

from dataclasses import dataclass

from cutlayer.common.checkpoints import Checkpoint, Record, Tensors, below
from cutlayer.common.errors import CheckpointError
from cutlayer.common.history import LinkState
from cutlayer.nonlabel_party.curiosity import Curiosity
from cutlayer.nonlabel_party.training import BottomTraining
from cutlayer.nonlabel_party.walk import Walk


@dataclass(frozen=True)
class SavedStep:
    """What a checkpoint says of the run so far, beside what is put back into training and attacks.

    Attributes:
        step: -1 where not even step 0 is saved.
        link: where the link stood; None for the beginning.
        seconds: from the first step to this one.
    """

    step: int
    link: LinkState | None
    seconds: float


NOTHING_SAVED = SavedStep(-1, None, 0.0)


def content(walk: Walk, link: LinkState, seconds: float) -> tuple[Tensors, Record]:
    """What a checkpoint holds: tensors, and the rest as values of JSON."""
    tensors, looking = walk.tensors()
    return tensors, {"history": link.history.hex(), "attacks": looking, "seconds": seconds}


def restore(checkpoint: Checkpoint, training: BottomTraining, curiosity: Curiosity) -> SavedStep:
    """Put `training` and `curiosity` where they stood; what else was saved of that step.

    Raises:
        CheckpointError: the checkpoint does not fit the model.
    """
    record = checkpoint.record
    try:
        training.restore(below("training", checkpoint.tensors))
        curiosity.go_back(checkpoint.step, below("attacks", checkpoint.tensors), record["attacks"])
        link = LinkState(checkpoint.step, bytes.fromhex(record["history"]))
        return SavedStep(checkpoint.step, link, float(record["seconds"]))
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} does not fit the model, optimizer and attacks of the run file; "
            "write there again what the run began with, or give another --out DIR at every party"
        ) from error
