"""How near each row is to the centre of either class: what the mean and the median attack make of known centres.

Han and Guan, "GAN-based Vertical Federated Learning for Label Protection", 2023, equations 8 and 9, on the gradients
as they are observed. A row pulls the centre of its class towards itself, which would tell its label where the layer is
wide, however little the others tell: its distance is stretched to that of a row from elsewhere (derived; exact in the
mean for independent Gaussian rows). Shape suffixes: B rows of the batch, K rows of one class, d cut-layer width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from cutlayer.common.scores import norms

_MEAN_VARIANCE, _MEDIAN_VARIANCE = 1.0, math.pi / 2  # of the centre of K normal numbers, times K
_MOST_NUMBERS = 1 << 14  # of a class that a median is taken of: a wide layer has the medians of fewer rows


def mean_scores(g_Bd: Tensor, y_B: Tensor) -> Tensor | None:
    """||g - mean_0|| - ||g - mean_1||, (B,), for labels 0 and 1; None where a class has fewer than two rows."""
    return _scores(g_Bd, y_B, len(y_B), lambda g_Kd: g_Kd.mean(dim=0), _MEAN_VARIANCE)


def median_scores(g_Bd: Tensor, y_B: Tensor) -> Tensor | None:
    """The same with the median of each coordinate, over at most 16384 / d evenly spaced rows of a class."""
    return _scores(g_Bd, y_B, max(_MOST_NUMBERS // g_Bd.shape[1], 2), _median, _MEDIAN_VARIANCE)


def _scores(
    g_Bd: Tensor, y_B: Tensor, most_rows: int, centre: Callable[[Tensor], Tensor], variance: float
) -> Tensor | None:
    largest = g_Bd.abs().amax()
    scaled_Bd = g_Bd / largest if largest > 0 else g_Bd  # squares of tiny gradients vanish
    distances = []
    for label in (0, 1):
        own = (y_B == label).nonzero().squeeze(1)
        if len(own) < 2:
            return None
        own = own[:: -(-len(own) // most_rows)]
        distance_B = norms(scaled_Bd - centre(scaled_Bd[own]))
        distance_B[own] *= math.sqrt((len(own) + variance) / (len(own) + variance - 2))
        distances.append(distance_B)
    score_B: Tensor = (distances[0] - distances[1]) * float(largest)
    return score_B


def _median(g_Kd: Tensor) -> Tensor:
    middle = sorted({(len(g_Kd) - 1) // 2, len(g_Kd) // 2})
    sorted_dK = np.partition(np.ascontiguousarray(g_Kd.T.numpy()), middle, axis=1)
    return torch.from_numpy(sorted_dK[:, middle].mean(axis=1))
