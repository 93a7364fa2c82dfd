"""How a row's gradient differs from those of rows with like activations: derived, against Han and Guan, "GAN-based
Vertical Federated Learning for Label Protection", 2023.

Shape suffixes: B rows of the batch, D width of the layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from cutlayer.common.scores import NEIGHBOURS, neighbour_scores
from cutlayer.nonlabel_party.attacks.base import ScoringAttack, attacks
from cutlayer.nonlabel_party.view import Layer, StepView


@attacks.register("neighbours")
@dataclass(kw_only=True)
class NeighboursAttack(ScoringAttack):
    """Rows with like activations differ in their gradients by the label: score = the middle of theirs, minus the row's.

    The middle is that between the highest and the lowest; gradients and activations are summed over coordinates.

    `gafm` moves a row by a smooth function of the sum of its activations, which neighbours share, and by its randomised
    label, which lies within `delta` of 1/2 on the side where the label is: 1/2 is the middle. Higher labels have lower
    gradients there; in other settings the score may be the wrong way round.

    Options: `neighbours`, how many rows are compared, the row among them; in small batches a quarter of the rows.
    """

    paper: ClassVar[str] = "derived; against Han and Guan, 2023 (arXiv 2302.02245)"
    layers: tuple[Literal["cut"], ...] = ("cut",)
    neighbours: int = NEIGHBOURS

    def __post_init__(self) -> None:
        if self.neighbours < 3:
            raise ValueError("neighbours is a whole number from 3")

    def score(self, g_BD: Tensor, layer: Layer, view: StepView) -> Tensor | None:
        return neighbour_scores(g_BD, view.z_Bd, self.neighbours)
