"""Two clusters of directions, without any knowledge: derived from Li et al., ICLR 2022, section 3.3.

Shape suffixes: B rows of the batch, D width of the layer looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cutlayer.common.scores import unit
from cutlayer.nonlabel_party.attacks.base import ScoringAttack, attacks
from cutlayer.nonlabel_party.attacks.without_labels import majority, smaller_is_positive
from cutlayer.nonlabel_party.view import Layer, StepView

_ROUNDS = 50


@attacks.register("clusters")
@dataclass(kw_only=True)
class ClustersAttack(ScoringAttack):
    """Gradients of the two classes point in opposite directions: two-means of the directions, the smaller is positive.

    Begins with the sign of the cosine with the row that has the most others on its side. Score: cosine with the centre
    of the positive cluster minus that with the other. Takes B D time in each of at most 50 rounds, and 1024^2 + B D
    numbers.
    """

    paper: ClassVar[str] = "derived from Li et al., ICLR 2022"

    def score(self, g_BD: Tensor, layer: Layer, view: StepView) -> Tensor | None:
        unit_BD = unit(g_BD)
        toward_B = unit_BD @ majority(unit_BD)
        for _ in range(_ROUNDS):
            in_one_B = toward_B < 0
            ones_D, others_D = unit_BD[in_one_B].sum(dim=0), unit_BD[~in_one_B].sum(dim=0)
            toward_B = unit_BD @ (unit(others_D) - unit(ones_D))
            if torch.equal(in_one_B, toward_B < 0):
                break
        return -toward_B if smaller_is_positive(g_BD, toward_B < 0) else toward_B
