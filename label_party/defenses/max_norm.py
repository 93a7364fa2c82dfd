"""Max-norm alignment: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, section 4.1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cutlayer.common.randomness import Noise
from cutlayer.common.scores import norms
from cutlayer.label_party.defenses.base import Defense, defenses


@defenses.register("max_norm")
@dataclass(kw_only=True)
class MaxNorm(Defense):
    """Stretches every row at random along its own direction, so that all rows have the same expected squared norm.

    g~_j = g_j (1 + sigma_j xi_j), sigma_j = sqrt(max ||g||^2 / ||g_j||^2 - 1), xi_j ~ N(0, 1). A row of length 0 has no
    direction and would stand out: it gets N(0, 1) max ||g|| along the mean gradient of the batch (derived). The longest
    row leaves as it is: so the paper defines it, and so does the only row of a batch of one.
    """

    paper: ClassVar[str] = "Li et al., ICLR 2022"

    def perturb(self, g_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Tensor:
        """`g_Bd` with each row stretched."""
        return align_norms(g_Bd, noise)


def align_norms(g_Bd: Tensor, noise: Noise, power: float = 1.0) -> Tensor:
    """What `MaxNorm` does, for E||g~_j||^2 = `power` max ||g||^2; above 1 it changes the longest row too.

    Also the fallback of methods whose statistics are undefined.
    """
    xi_B = noise.normal((len(g_Bd),)).double()
    norm_B = norms(g_Bd)
    if norm_B.max() == 0:
        return g_Bd.clone()  # all rows are equal: there is nothing to tell apart
    target = math.sqrt(power) * float(norm_B.max())
    zero_B = norm_B == 0
    ratio_B = target / norm_B.where(~zero_B, target)
    # (ratio - 1)(ratio + 1) rather than ratio^2 - 1: nothing cancels for rows near the largest
    stretch_B = 1 + xi_B * ((ratio_B - 1) * (ratio_B + 1)).clamp(min=0).sqrt()
    aligned_Bd: Tensor = g_Bd * stretch_B[:, None]
    if zero_B.any():
        aligned_Bd[zero_B] = torch.outer(xi_B[zero_B] * target, _direction(g_Bd.double()))
    return aligned_Bd.to(g_Bd.dtype)


def _direction(g_Bd: Tensor) -> Tensor:
    """The unit vector along the mean row; along the longest row where the mean is zero."""
    mean_d = g_Bd.mean(dim=0)
    if mean_d.norm() == 0:
        mean_d = g_Bd[g_Bd.norm(dim=1).argmax()]
    direction_d: Tensor = mean_d / mean_d.norm()
    return direction_d
