"""The norm attack with hints, after the code of Li et al., ICLR 2022.

The authors take new hints in each batch and score them too; here they are the same through the run, which is what a
party can know, and are not scored. Shape suffixes: B rows, K hints, D width of the layer looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cutlayer.common.scores import norms
from cutlayer.nonlabel_party.attacks.base import attacks
from cutlayer.nonlabel_party.attacks.known_rows import HintAttack


@attacks.register("hint_norm")
@dataclass(kw_only=True)
class HintNormAttack(HintAttack):
    """Positives have gradients of like length: score = minus the distance of ||g|| to the mean length of the hints."""

    def compare(self, g_BD: Tensor, hint_KD: Tensor) -> Tensor:
        return -(norms(g_BD) - norms(hint_KD).mean()).abs()
