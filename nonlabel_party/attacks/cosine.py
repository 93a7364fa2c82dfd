"""The cosine attack: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, section 3.2.

Shape suffixes: B rows of the batch, D width of the layer looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from cutlayer.common.scores import unit
from cutlayer.nonlabel_party.attacks.base import ScoringAttack, attacks
from cutlayer.nonlabel_party.attacks.without_labels import majority
from cutlayer.nonlabel_party.view import Layer, StepView


@attacks.register("cosine")
@dataclass(kw_only=True)
class CosineAttack(ScoringAttack):
    """Gradients of the two classes point in opposite directions: score = cos(g, g+), g+ a clean positive gradient.

    g+ is knowledge that the job grants. At a step that brings none, because its batch has no positive row, there
    is no guess. Where it is not granted, the row with the most gradients on its side (cosine above 0) takes the
    place of a negative, for negatives are the larger class: score = -cos(g, g of that row). A row or a g+ of length 0
    has score 0.
    """

    paper: ClassVar[str] = "Li et al., ICLR 2022"

    def score(self, g_BD: Tensor, layer: Layer, view: StepView) -> Tensor | None:
        unit_BD = unit(g_BD)
        positive_D = view.clean_positive_gradient(layer)
        if positive_D is not None:
            return unit_BD @ unit(positive_D)
        return None if "clean_positive_gradient" in view.granted else -(unit_BD @ majority(unit_BD))
