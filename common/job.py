"""The `job` section of the run file: what all parties agree on, and its digest."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from cutlayer.common import fields
from cutlayer.common.fields import Section
from cutlayer.common.limits import NUMBER, Limits, Seconds

LABEL_PARTY = "label_party"


def section_of(party: str) -> str:
    """Where the section of `party` is in the run file."""
    return party if party == LABEL_PARTY else f"nonlabel_parties.{party}"


class CutLayer(Section):
    """The interface between bottom models and top model.

    Attributes:
        width: numbers per row that each party sends.
        widths: other widths for some parties, where `aggregation` is concat; key `label_party` for its own.
        encoding: how activations and gradients travel.
    """

    width: fields.Width
    aggregation: Literal["sum", "concat"] = "sum"
    widths: dict[str, fields.Width] = {}
    encoding: Literal["float32", "float16", "bfloat16"] = "float32"

    def width_of(self, party: str) -> int:
        """Cut-layer width of `party`."""
        return self.widths.get(party, self.width)


class Privacy(Section):
    """What non-label parties may see beyond gradients."""

    share_metrics: bool = False


class GrantedKnowledge(Section):
    """Knowledge that the job grants a curious party, for research; nothing by default.

    Attributes:
        clean_positive_gradient: at each training step, the exact gradient of one positive row of the batch.
        labelled_rows: before training, the labels of so many training rows of each class.
    """

    clean_positive_gradient: bool = False
    labelled_rows: fields.LabelledRows = 0

    @model_serializer(mode="wrap")
    def _without_no_rows(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `labelled_rows: 0`, so that the digest of a job is what it was before there was this key."""
        return {key: value for key, value in serialize(self).items() if key != "labelled_rows" or value}

    def kinds(self) -> frozenset[str]:
        """The kinds that are granted."""
        return frozenset(kind for kind, granted in self if granted)


class Checkpoints(Section):
    """When all parties save their state, so that a run can go on after a crash: by steps, or by time.

    Attributes:
        every_steps: after each so many steps, in place of `every_seconds`.
        every_seconds: at the first step that ends so long after the last checkpoint, by the label party's clock;
            30 where neither is given.
        keep: how many checkpoints each party keeps.
    """

    every_steps: fields.Steps | None = None
    every_seconds: Seconds | None = None
    keep: fields.Kept = 3

    @model_validator(mode="after")
    def _check(self) -> Checkpoints:
        if self.every_steps is not None and self.every_seconds is not None:
            raise ValueError("give every_steps or every_seconds, not both")
        return self


class Job(Section):
    """What all parties agree on."""

    name: fields.JobName
    task: Literal["binary", "multiclass"] = "binary"
    classes: fields.Classes = 2
    epochs: fields.Epochs
    batch_size: fields.Rows
    seed: fields.Seed = 0
    test_fraction: Annotated[float, Field(ge=0, lt=1), NUMBER] = 0.2
    cut_layer: CutLayer
    parties: Annotated[tuple[fields.PartyName, ...], Field(min_length=1)]
    privacy: Privacy = Privacy()
    knowledge: dict[str, GrantedKnowledge] = {}
    checkpoint: Checkpoints = Checkpoints()
    row_fraction: Annotated[float, Field(gt=0, le=1), NUMBER] = 1.0

    @model_serializer(mode="wrap")
    def _without_all_rows(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without `row_fraction: 1`, so that the digest of a job is what it was before there was this key."""
        return {key: value for key, value in serialize(self).items() if key != "row_fraction" or value != 1}

    @model_validator(mode="after")
    def _check(self) -> Job:
        if len(set(self.parties)) != len(self.parties):
            raise ValueError("parties: a name occurs twice")
        if LABEL_PARTY in self.parties:
            raise ValueError(f"parties: {LABEL_PARTY!r} is the label party; name the non-label parties here")
        if self.task == "multiclass" and "classes" not in self.model_fields_set:
            raise ValueError("task multiclass needs `classes: k`, the number of classes")
        if self.task == "binary" and self.classes != 2:
            raise ValueError(f"task binary has 2 classes, got classes: {self.classes}; write task: multiclass")
        if self.cut_layer.widths and self.cut_layer.aggregation == "sum":
            raise ValueError("cut_layer.widths: a sum needs one width for all; write aggregation: concat")
        for key, names in (("cut_layer.widths", self.cut_layer.widths), ("knowledge", self.knowledge)):
            allowed = {*self.parties, LABEL_PARTY} if key == "cut_layer.widths" else set(self.parties)
            for name in sorted(set(names) - allowed):
                raise ValueError(f"{key}: {name!r} is no party of this job; there are: {', '.join(self.parties)}")
        if self.task == "multiclass" and any(k.clean_positive_gradient for k in self.knowledge.values()):
            raise ValueError("knowledge: clean_positive_gradient needs task: binary")
        return self

    def digest(self) -> bytes:
        """SHA-256 of the section with defaults filled in, 32 bytes; equal exactly when the agreement is."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).digest()

    def limits(self, party: str) -> Limits:
        """What the link with `party` may carry."""
        return Limits(rows=self.batch_size, width=self.cut_layer.width_of(party))

    def granted(self, party: str) -> GrantedKnowledge:
        """Knowledge granted to `party`."""
        return self.knowledge.get(party, GrantedKnowledge())
