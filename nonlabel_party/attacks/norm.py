"""The norm attack: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, section 3.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cutlayer.nonlabel_party.attacks.base import ScoringAttack, attacks
from cutlayer.nonlabel_party.view import Layer, StepView


@attacks.register("norm")
@dataclass(kw_only=True)
class NormAttack(ScoringAttack):
    """The rarer class, taken to be the positive one, has the longer gradients: score = ||g||."""

    paper: ClassVar[str] = "Li et al., ICLR 2022"

    def score(self, g_BD: Tensor, layer: Layer, view: StepView) -> Tensor | None:
        # In float64: the squares of float32 overflow or vanish.
        length_B: Tensor = torch.linalg.vector_norm(g_BD, dim=1, dtype=torch.float64)
        return length_B
