"""The label party's checkpoints: when one is due, what is in it, and how training goes on from it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from cutlayer.common.checkpoints import Checkpoint, CheckpointStore, Record, Tensors, below, prefixed
from cutlayer.common.errors import CheckpointError
from cutlayer.common.job import Checkpoints
from cutlayer.label_party.links import SavedLink
from cutlayer.label_party.results import RunFigures
from cutlayer.label_party.rows import PartyIds
from cutlayer.label_party.training import LabelTraining

_DEFAULT_EVERY_S = 30.0
_SHARE = 0.01  # of the time of a run that may go into checkpoints by time


class Cadence:
    """When a checkpoint is due."""

    def __init__(self, choice: Checkpoints) -> None:
        self._steps = choice.every_steps
        self._seconds = choice.every_seconds or _DEFAULT_EVERY_S
        self._saved_at = time.monotonic()
        self._cost = 0.0

    def due(self, step: int) -> bool:
        """Whether `step`, which is done, should be saved."""
        if self._steps is not None:
            return step % self._steps == 0
        return time.monotonic() - self._saved_at >= max(self._seconds, self._cost / _SHARE)

    def saved(self, began: float) -> None:
        """A checkpoint was saved, from `began`, monotonic, until now."""
        self._saved_at = time.monotonic()
        self._cost = self._saved_at - began


def content(training: LabelTraining, figures: RunFigures, links: Mapping[str, SavedLink]) -> tuple[Tensors, Record]:
    """What a checkpoint holds: tensors, and the rest as values of JSON."""
    tensors = prefixed("training", training.tensors())
    tensors |= prefixed("audit", training.audit.tensors()) | prefixed("bound", training.bound.tensors())
    tensors |= prefixed("unprotected", training.unprotected.tensors())
    tensors |= prefixed("samples", training.samples.tensors())
    saved_links = {party: link.record() for party, link in links.items()}
    return tensors, {"figures": figures.record(), "links": saved_links, "secret_check": training.secret_check}


def restore(checkpoint: Checkpoint, training: LabelTraining) -> tuple[RunFigures, dict[str, SavedLink]]:
    """Put `training` where it stood; figures and links as they were then.

    Raises:
        CheckpointError: the checkpoint does not fit the models, or the noise secret is another one.
    """
    tensors, record = checkpoint.tensors, checkpoint.record
    if record.get("secret_check", training.secret_check) != training.secret_check:  # older checkpoints have none
        raise CheckpointError(
            "the noise secret is not the one that the run began with, and steps that had an answer would get another: "
            "bring back label_party/noise_secret, or the file that label_party.noise_secret names; where it is lost, "
            "give another --out DIR at every party, and the job another `seed`"
        )
    epoch = checkpoint.step // training.schedule.steps_per_epoch + 1
    try:
        training.restore(below("training", tensors))
        training.audit.restore(below("audit", tensors), epoch)
        training.bound.restore(below("bound", tensors))
        training.unprotected.restore(below("unprotected", tensors))
        training.samples.restore(below("samples", tensors))
        links = {party: SavedLink.of(link) for party, link in record["links"].items()}
        return RunFigures.of(record["figures"]), links
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"the checkpoint of step {checkpoint.step} does not fit the models, optimizer and defense of the run file; "
            "write there again what the run began with, or give another --out DIR at every party"
        ) from error


def common_step(store: CheckpointStore, others: Mapping[str, PartyIds]) -> int | None:
    """The newest step of which all parties hold a checkpoint; None where there is none."""
    common = set(store.steps()).intersection(*(ids.durable_steps for ids in others.values()))
    return max(common, default=None)
