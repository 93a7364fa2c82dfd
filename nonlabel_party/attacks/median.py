"""The median attack: Han and Guan, "GAN-based Vertical Federated Learning for Label Protection", 2023, equation 9.

Shape suffixes: K known rows, D width of the layer looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cutlayer.nonlabel_party.attacks.base import attacks
from cutlayer.nonlabel_party.attacks.mean import CentreAttack


@attacks.register("median")
@dataclass(kw_only=True)
class MedianAttack(CentreAttack):
    """A row belongs to the class whose median gradient is nearer: score = ||g - median_0|| - ||g - median_1||.

    The median of each coordinate, as the paper writes it; the authors' code takes that of the coordinates' sum instead.
    """

    def centre(self, g_KD: Tensor) -> Tensor:
        sorted_KD = g_KD.sort(dim=0).values
        middle_D: Tensor = (sorted_KD[(len(g_KD) - 1) // 2] + sorted_KD[len(g_KD) // 2]) / 2
        return middle_D
