"""The cosine attack with hints, after the code of Li et al., ICLR 2022.

The authors take new hints in each batch and score them too; here they are the same through the run, which is what a
party can know, and are not scored. Shape suffixes: B rows, K hints, D width of the layer looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cutlayer.common.scores import unit
from cutlayer.nonlabel_party.attacks.base import attacks
from cutlayer.nonlabel_party.attacks.known_rows import HintAttack


@attacks.register("hint_cosine")
@dataclass(kw_only=True)
class HintCosineAttack(HintAttack):
    """Positives have gradients of like direction: score = the mean cosine with the hints."""

    def compare(self, g_BD: Tensor, hint_KD: Tensor) -> Tensor:
        return (unit(g_BD) @ unit(hint_KD).T).mean(dim=1)
