"""What a curious non-label party has at one step, and what it concludes.

Shape suffixes: B rows of the batch, d cut-layer width, F features, D width of the layer looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from torch import Tensor

Layer = Literal["cut", "first"]


@dataclass(frozen=True)
class CleanPositive:
    """Granted knowledge: the gradient, before the defense, of one row of the batch whose label is 1."""

    row: int  # index in the batch
    g_d: Tensor


@dataclass(frozen=True)
class FirstLayer:
    """Gradients (B, D) at the first layer, and the clean one (D,) of the granted row, if there is one."""

    g_BD: Tensor
    clean_positive_D: Tensor | None = None


@dataclass(frozen=True)
class StepView:
    """Everything, and nothing but, what a curious non-label party has at one training step.

    Attributes:
        step: the step, counted from 1.
        row_ids: B ids, as in the party's own table.
        x_BF: the party's own features.
        z_Bd: what it sent.
        g_Bd: what it received: perturbed.
        clean_positive: knowledge that the job grants; None where it does not, or at a step that brings none.
        granted: the kinds of knowledge that the job grants, keys of `job.knowledge`.
        known_labels: granted knowledge: label by row id, of rows in this batch or others.
        first: set where a recorded view is looked at again, after training.
    """

    step: int
    row_ids: tuple[str, ...]
    x_BF: Tensor
    z_Bd: Tensor
    g_Bd: Tensor
    clean_positive: CleanPositive | None = None
    granted: frozenset[str] = frozenset()
    pull_back: Callable[[Tensor], Tensor] | None = field(default=None, repr=False)
    known_labels: Mapping[str, int] = field(default_factory=dict, repr=False)
    first: FirstLayer | None = field(default=None, repr=False)

    def gradient(self, layer: Layer) -> Tensor:
        """What the party received, (B, D), at the cut layer or at the output of its bottom model's first layer."""
        return self.g_Bd if layer == "cut" else self._first.g_BD

    def clean_positive_gradient(self, layer: Layer) -> Tensor | None:
        """The granted clean gradient of one positive row, (D,), at `layer`; None if not granted at this step."""
        if self.clean_positive is None:
            return None
        return self.clean_positive.g_d if layer == "cut" else self._first.clean_positive_D

    @cached_property
    def _first(self) -> FirstLayer:
        """At the first layer; once for all attacks."""
        if self.first is not None:
            return self.first
        if self.pull_back is None:
            raise ValueError("this view has no bottom model, so there is no gradient at its first layer")
        g_BD = self.pull_back(self.g_Bd)
        if self.clean_positive is None:
            return FirstLayer(g_BD)
        clean_Bd = self.g_Bd.new_zeros(self.g_Bd.shape)
        clean_Bd[self.clean_positive.row] = self.clean_positive.g_d
        return FirstLayer(g_BD, self.pull_back(clean_Bd)[self.clean_positive.row])


@dataclass(frozen=True)
class LabelGuess:
    """An attack's scores for some rows at one layer; higher means more likely positive, only the order counts.

    Raises:
        ValueError: the scores are not one for each row. TypeError: a row id or the layer is no text.
    """

    row_ids: tuple[str, ...]
    score_B: Tensor
    layer: Layer = "cut"

    def __post_init__(self) -> None:
        if self.score_B.shape != (len(self.row_ids),):
            raise ValueError(f"{len(self.row_ids)} row ids, but scores of shape {tuple(self.score_B.shape)}")
        if not all(isinstance(text, str) for text in (*self.row_ids, self.layer)):
            raise TypeError("row ids and layer are texts, as a view has them")
