"""What a row's own activation does not explain of its gradient: derived, against Han and Guan, "GAN-based Vertical
Federated Learning for Label Protection", 2023.

Shape suffixes: B rows of the batch, P powers, D width of the layer looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cutlayer.nonlabel_party.attacks.base import attacks
from cutlayer.nonlabel_party.attacks.spectral import SpectralAttack
from cutlayer.nonlabel_party.view import Layer, StepView


@attacks.register("residual")
@dataclass(kw_only=True)
class ResidualAttack(SpectralAttack):
    """The label is what makes the gradients of two rows with like activations differ: `spectral`, of what is left when
    a polynomial of the sum of the row's activations has been taken off.

    The game of `gafm` moves rows by a smooth function of that sum; its randomised labels lie on the side of 1/2 where
    the labels are, and stay.

    Options: `degree`, of the polynomial, fitted to each batch by least squares. No guess on batches of fewer than ten
    rows for each of its coefficients.
    """

    paper: ClassVar[str] = "derived; against Han and Guan, 2023 (arXiv 2302.02245)"
    degree: int = 5

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise ValueError("degree is a whole number from 1")

    def score(self, g_BD: Tensor, layer: Layer, view: StepView) -> Tensor | None:
        if len(g_BD) < 10 * (self.degree + 1):
            return None
        g_BD = g_BD.double()
        return super().score(g_BD - _smooth(view.z_Bd.double().sum(dim=1), g_BD, self.degree), layer, view)


def _smooth(at_B: Tensor, g_BD: Tensor, degree: int) -> Tensor:
    """The polynomials of `at_B` that are nearest to the columns of `g_BD`, at each row, (B, D)."""
    spread = (at_B - at_B.mean()).abs().max()
    powers_BP = torch.linalg.vander((at_B - at_B.mean()) / spread.clamp(min=1e-300), N=degree + 1)
    base_BP, size_P, _ = torch.linalg.svd(powers_BP, full_matrices=False)
    base_BP = base_BP[:, size_P > 1e-10 * size_P[0]]  # equal activations span less
    smooth_BD: Tensor = base_BP @ (base_BP.T @ g_BD)
    return smooth_BD
