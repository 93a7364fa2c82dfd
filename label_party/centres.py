"""How near each row is to the centre of either class: what the mean and the median attack make of known centres.

Han and Guan, "GAN-based Vertical Federated Learning for Label Protection", 2023, equations 8 and 9, on the gradients
as they are observed. A centre is pulled by the rows that it is the centre of, which tells their labels where the layer
is wide, however little the others tell; and where a row is left out of its own centre, that tells its label the other
way round. So the centres of either half of a batch are known for the other half: noise alone then tells nothing.
Shape suffixes: B rows of the batch, K rows of one class, d cut-layer width.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from cutlayer.common.scores import norms

_MOST_NUMBERS = 1 << 14  # of a class that a median is taken of: a wide layer has the medians of fewer rows

Centre = Callable[[Tensor], Tensor]  # g_Kd -> (d,)


def mean_scores(g_Bd: Tensor, y_B: Tensor) -> Tensor | None:
    """||g - mean_0|| - ||g - mean_1||, (B,), for labels 0 and 1, with the means of the other half of the rows.

    Every other row of each class is in the same half. None where a class has fewer than two rows.
    """
    return _scores(g_Bd, y_B, lambda g_Kd: g_Kd.mean(dim=0))


def median_scores(g_Bd: Tensor, y_B: Tensor) -> Tensor | None:
    """The same with the median of each coordinate, over at most 16384 / d evenly spaced rows of a class."""
    return _scores(g_Bd, y_B, _median)


def _scores(g_Bd: Tensor, y_B: Tensor, centre: Centre) -> Tensor | None:
    largest = g_Bd.abs().amax()
    scaled_Bd = g_Bd / largest if largest > 0 else g_Bd  # squares of tiny gradients vanish
    classes = [(y_B == label).nonzero().squeeze(1) for label in (0, 1)]
    if min(map(len, classes)) < 2:
        return None
    score_B = torch.empty(len(y_B), dtype=torch.float64)
    for half in (0, 1):
        rows = torch.cat([own[half::2] for own in classes])
        half_Bd = scaled_Bd[rows]
        from_0, from_1 = (norms(half_Bd - centre(scaled_Bd[own[1 - half :: 2]])) for own in classes)
        score_B[rows] = from_0 - from_1
    return score_B * float(largest)


def _median(g_Kd: Tensor) -> Tensor:
    most_rows = max(_MOST_NUMBERS // g_Kd.shape[1], 1)
    taken_Kd = g_Kd[:: -(-len(g_Kd) // most_rows)]
    middle = sorted({(len(taken_Kd) - 1) // 2, len(taken_Kd) // 2})
    sorted_dK = np.partition(np.ascontiguousarray(taken_Kd.T.numpy()), middle, axis=1)
    return torch.from_numpy(sorted_dK[:, middle].mean(axis=1))
