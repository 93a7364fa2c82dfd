"""How gradients are scored; attacks and the label party's audit must do it alike, to the last bit.

In float64, where float32's squares neither overflow nor vanish: gradients of confident predictions are tiny, not zero.
Li et al., ICLR 2022, section 3.2. Shape suffixes: B rows of the batch, D width of the layer looked at.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize


def unit(g_D: Tensor) -> Tensor:
    """Rows of length 1, float64; rows of length 0 stay 0."""
    return normalize(g_D.double(), dim=-1, eps=1e-300)


def norms(g_BD: Tensor) -> Tensor:
    """r_n(g) = ||g||, (B,)."""
    length_B: Tensor = torch.linalg.vector_norm(g_BD, dim=1, dtype=torch.float64)
    return length_B


def cosines(g_BD: Tensor, reference_D: Tensor) -> Tensor:
    """r_d(g) = cos(g, g+), (B,); 0 where either has length 0."""
    return unit(g_BD) @ unit(reference_D)
