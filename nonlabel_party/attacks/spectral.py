"""The first principal component of a batch's gradients: derived, after the spectral attack on cut-layer outputs of Sun
et al., "Label Leakage and Protection from Forward Embedding in Vertical Federated Learning", arXiv 2203.01451.

Shape suffixes: B rows of the batch, S rows that are compared with each other, D width of the layer looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cutlayer.nonlabel_party.attacks.base import ScoringAttack, attacks
from cutlayer.nonlabel_party.attacks.without_labels import smaller_is_positive, spaced
from cutlayer.nonlabel_party.view import Layer, StepView


@attacks.register("spectral")
@dataclass(kw_only=True)
class SpectralAttack(ScoringAttack):
    """The classes differ most along the first principal component: score = position on it, smaller cluster positive.

    Two-means of the positions, exact, says which end the smaller cluster is on. The component is that of at most 1024
    evenly spaced rows. Takes B D + min(S, D)^3 time and B D + min(S, D)^2 numbers.
    """

    paper: ClassVar[str] = "derived from Sun et al., 2022 (arXiv 2203.01451)"

    def score(self, g_BD: Tensor, layer: Layer, view: StepView) -> Tensor | None:
        g_BD = g_BD.double()
        at_B = (g_BD - g_BD.mean(dim=0)) @ _component(spaced(g_BD))
        return at_B if smaller_is_positive(g_BD, at_B > _border(at_B)) else -at_B


def _component(g_SD: Tensor) -> Tensor:
    """The first principal component (D,), of length 1, its largest coordinate positive; 0 where all rows are equal."""
    centred_SD = g_SD - g_SD.mean(dim=0)
    scaled_SD = centred_SD / centred_SD.abs().max().clamp(min=1e-300)  # squares of tiny gradients would vanish
    if g_SD.shape[1] <= len(g_SD):
        axis_D = torch.linalg.eigh(scaled_SD.T @ scaled_SD).eigenvectors[:, -1]
    else:
        axis_D = torch.linalg.eigh(scaled_SD @ scaled_SD.T).eigenvectors[:, -1] @ scaled_SD
    axis_D = axis_D / axis_D.norm().clamp(min=1e-300)
    component_D: Tensor = axis_D * axis_D[axis_D.abs().argmax()].sign()
    return component_D


def _border(at_B: Tensor) -> float:
    """Between two clusters of numbers whose squared deviations from their means add up to the least."""
    at_B = at_B.sort().values
    total, below_B = at_B.sum(), at_B.cumsum(dim=0)[:-1]
    size_B = torch.arange(1, len(at_B), dtype=at_B.dtype)
    other_B = len(at_B) - size_B
    between_B = size_B * other_B * (below_B / size_B - (total - below_B) / other_B).square()
    between_B = between_B.where(at_B[1:] > at_B[:-1], -1.0)  # equal numbers stay together
    return float(at_B[int(between_B.argmax())]) if len(between_B) else float(at_B[0])
