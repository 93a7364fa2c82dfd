"""The norm attack: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, section 3.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from cutlayer.common.scores import norms
from cutlayer.nonlabel_party.attacks.base import ScoringAttack, attacks
from cutlayer.nonlabel_party.view import Layer, StepView


@attacks.register("norm")
@dataclass(kw_only=True)
class NormAttack(ScoringAttack):
    """The rarer class, taken to be the positive one, has the longer gradients: score = ||g||."""

    paper: ClassVar[str] = "Li et al., ICLR 2022"

    def score(self, g_BD: Tensor, layer: Layer, view: StepView) -> Tensor | None:
        return norms(g_BD)
