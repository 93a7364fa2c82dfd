"""The inner product attack with hints, after the code of Li et al., ICLR 2022.

The authors take new hints in each batch and score them too; here they are the same through the run, which is what a
party can know, and are not scored. Shape suffixes: B rows, K hints, D width of the layer looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cutlayer.common.scores import norms
from cutlayer.nonlabel_party.attacks.base import attacks
from cutlayer.nonlabel_party.attacks.known_rows import HintAttack


@attacks.register("hint_inner")
@dataclass(kw_only=True)
class HintInnerAttack(HintAttack):
    """Positives have long gradients of like direction: score = the inner product with the longest hint."""

    def compare(self, g_BD: Tensor, hint_KD: Tensor) -> Tensor:
        return g_BD @ hint_KD[norms(hint_KD).argmax()]
