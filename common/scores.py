"""How gradients are scored; attacks and the label party's audit must do it alike, to the last bit.

In float64, where float32's squares neither overflow nor vanish: gradients of confident predictions are tiny, not zero.
Li et al., ICLR 2022, section 3.2; `neighbour_scores` is derived. Shape suffixes: B rows of the batch, D width of the
layer looked at, d cut-layer width.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
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


NEIGHBOURS = 127
_SHARE = 4  # a quarter of a batch at most is compared


def neighbour_scores(g_BD: Tensor, z_Bd: Tensor, neighbours: int = NEIGHBOURS) -> Tensor | None:
    """The middle between the highest and the lowest gradient of the rows with the most similar activations, minus the
    row's own, (B,); gradients and activations are summed over coordinates.

    Args:
        neighbours: how many rows are compared, the row among them; in a small batch a quarter of it. None where that
            leaves fewer than three.
    """
    reach = (min(neighbours, len(g_BD) // _SHARE) - 1) // 2  # rows on either side
    if reach < 1:
        return None
    order_B = np.argsort(z_Bd.detach().sum(dim=1, dtype=torch.float64).numpy(), kind="stable")
    g_B = g_BD.sum(dim=1, dtype=torch.float64).numpy()[order_B]
    score_B = np.empty_like(g_B)
    score_B[order_B] = _middle(g_B, reach) - g_B
    return torch.from_numpy(score_B)


def _middle(numbers_B: npt.NDArray[np.float64], reach: int) -> npt.NDArray[np.float64]:
    """(lowest + highest)/2 of each number and as many before and behind it, or what there is of them, (B,)."""
    low = high = np.concatenate([numbers_B[:1].repeat(reach), numbers_B, numbers_B[-1:].repeat(reach)])
    width, seen = 2 * reach + 1, 1
    while seen < width:  # each number of `low` and `high` looks at so many of the padded ones
        more = min(seen, width - seen)
        low, high = np.minimum(low[:-more], low[more:]), np.maximum(high[:-more], high[more:])
        seen += more
    middle: npt.NDArray[np.float64] = (low + high) / 2
    return middle
