"""The mean attack: Han and Guan, "GAN-based Vertical Federated Learning for Label Protection", 2023, equation 8.

Shape suffixes: B rows of the batch, K known rows, D width of the layer looked at.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from cutlayer.common.scores import norms
from cutlayer.nonlabel_party.attacks.base import attacks
from cutlayer.nonlabel_party.attacks.known_rows import KnownRowsAttack


@dataclass(kw_only=True)
class CentreAttack(KnownRowsAttack):
    """Compares rows with the centre of each class; no guess before both are known. A method writes only `centre`."""

    paper: ClassVar[str] = "Han and Guan, 2023 (arXiv 2302.02245)"

    @abstractmethod
    def centre(self, g_KD: Tensor) -> Tensor:
        """The centre (D,) of the known rows of one class."""

    def score(self, g_BD: Tensor, known: Mapping[int, Tensor]) -> Tensor | None:
        if not known.keys() >= {0, 1}:
            return None
        return norms(g_BD - self.centre(known[0])) - norms(g_BD - self.centre(known[1]))


@attacks.register("mean")
@dataclass(kw_only=True)
class MeanAttack(CentreAttack):
    """A row belongs to the class whose mean gradient is nearer: score = ||g - mean_0|| - ||g - mean_1||.

    The paper grants the means over all rows; here they are those of the rows whose labels are known.
    """

    def centre(self, g_KD: Tensor) -> Tensor:
        return g_KD.mean(dim=0)
