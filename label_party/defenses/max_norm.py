"""Max-norm alignment: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, section 4.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cutlayer.common.randomness import Noise
from cutlayer.label_party.defenses.base import Defense, defenses


@defenses.register("max_norm")
@dataclass(kw_only=True)
class MaxNorm(Defense):
    """Stretches every row at random along its own direction, so that all rows have the same expected squared norm.

    g~_j = g_j (1 + sigma_j xi_j), sigma_j = sqrt(max ||g||^2 / ||g_j||^2 - 1), xi_j ~ N(0, 1). A row of length 0 has no
    direction and would stand out: it gets N(0, 1) max ||g|| along the mean gradient of the batch (derived).
    """

    paper: ClassVar[str] = "Li et al., ICLR 2022"

    def perturb(self, g_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Tensor:
        """`g_Bd` with each row stretched."""
        return align_norms(g_Bd, noise)


def align_norms(g_Bd: Tensor, noise: Noise) -> Tensor:
    """What `MaxNorm` does; also the fallback of methods whose statistics are undefined."""
    g = g_Bd.double()
    xi_B = noise.normal((len(g),)).double()
    norm_B = g.norm(dim=1)
    largest = norm_B.max()
    if largest == 0:
        return g_Bd.clone()  # all rows are equal: there is nothing to tell apart
    zero_B = norm_B == 0
    ratio_B = largest / torch.where(zero_B, largest, norm_B)
    # (ratio - 1)(ratio + 1) rather than ratio^2 - 1: nothing cancels for rows near the largest
    stretched = g * (1 + xi_B * ((ratio_B - 1) * (ratio_B + 1)).clamp(min=0).sqrt())[:, None]
    replaced = xi_B[:, None] * largest * _direction(g)
    aligned_Bd: Tensor = torch.where(zero_B[:, None], replaced, stretched).to(g_Bd.dtype)
    return aligned_Bd


def _direction(g_Bd: Tensor) -> Tensor:
    """The unit vector along the mean row; along the longest row where the mean is zero."""
    mean_d = g_Bd.mean(dim=0)
    if mean_d.norm() == 0:
        mean_d = g_Bd[g_Bd.norm(dim=1).argmax()]
    return mean_d / mean_d.norm()
