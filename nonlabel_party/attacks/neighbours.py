"""How a row's gradient differs from those of rows with like activations: derived, against Han and Guan, "GAN-based
Vertical Federated Learning for Label Protection", 2023.

Shape suffixes: B rows of the batch, W rows that are compared, d cut-layer width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from cutlayer.nonlabel_party.attacks.base import ScoringAttack, attacks
from cutlayer.nonlabel_party.view import Layer, StepView

_SHARE = 4  # a quarter of a batch at most is compared


@attacks.register("neighbours")
@dataclass(kw_only=True)
class NeighboursAttack(ScoringAttack):
    """The label is what makes the gradients of two rows with the same activation differ: score = the middle between the
    highest and the lowest gradient of the row's neighbours, minus the row's own; all summed over coordinates.

    `gafm` moves a row by a smooth function of the sum of its activations, which neighbours share, and by its randomised
    label, which lies within `delta` of 1/2 on the side where the label is: 1/2 is the middle. Higher labels have lower
    gradients there; in other settings the score may be the wrong way round.

    Options: `neighbours`, W, how many rows are compared, the row among them; in small batches a quarter of the rows.
    """

    paper: ClassVar[str] = "derived; against Han and Guan, 2023 (arXiv 2302.02245)"
    layers: tuple[Literal["cut"], ...] = ("cut",)
    neighbours: int = 127

    def __post_init__(self) -> None:
        if self.neighbours < 3:
            raise ValueError("neighbours is a whole number from 3")

    def score(self, g_BD: Tensor, layer: Layer, view: StepView) -> Tensor | None:
        reach = (min(self.neighbours, len(g_BD) // _SHARE) - 1) // 2  # rows on either side
        if reach < 1:
            return None
        order_B = view.z_Bd.double().sum(dim=1).argsort(stable=True)
        g_B = g_BD.double().sum(dim=1)[order_B]
        score_B = torch.empty_like(g_B)
        score_B[order_B] = _middle(g_B, reach) - g_B
        return score_B


def _middle(numbers_B: Tensor, reach: int) -> Tensor:
    """(lowest + highest)/2 of each number and as many before and behind it, or what there is of them, (B,)."""
    ends = numbers_B[:1].expand(reach), numbers_B[-1:].expand(reach)
    windows_BW = torch.cat([ends[0], numbers_B, ends[1]]).unfold(0, 2 * reach + 1, 1)
    return (windows_BW.amin(dim=1) + windows_BW.amax(dim=1)) / 2
