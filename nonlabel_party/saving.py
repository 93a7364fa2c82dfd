"""A non-label party's checkpoints: what is in one, and how training goes on from it."""

from __future__ import annotations

from cutlayer.common.checkpoints import Checkpoint, Record, Tensors, below
from cutlayer.common.errors import CheckpointError
from cutlayer.common.history import LinkState
from cutlayer.nonlabel_party.curiosity import Curiosity
from cutlayer.nonlabel_party.training import BottomTraining
from cutlayer.nonlabel_party.walk import Walk


def content(walk: Walk, link: LinkState, seconds: float) -> tuple[Tensors, Record]:
    """What a checkpoint holds: tensors, and the rest as values of JSON."""
    tensors, looking = walk.tensors()
    return tensors, {"history": link.history.hex(), "attacks": looking, "seconds": seconds}


def restore(checkpoint: Checkpoint, training: BottomTraining, curiosity: Curiosity) -> tuple[LinkState, float]:
    """Put `training` and `curiosity` where they stood; the state of the link then, and the seconds until then.

    Raises:
        CheckpointError: the checkpoint does not fit the model.
    """
    record = checkpoint.record
    try:
        training.restore(below("training", checkpoint.tensors))
        curiosity.go_back(checkpoint.step, below("attacks", checkpoint.tensors), record["attacks"])
        return LinkState(checkpoint.step, bytes.fromhex(record["history"])), float(record["seconds"])
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} does not fit the model, optimizer and attacks of the run file; "
            "write there again what the run began with, or give another --out DIR at every party"
        ) from error
