"""How near each row is to the centre of either class: what the mean and the median attack make of known centres.

Han and Guan, "GAN-based Vertical Federated Learning for Label Protection", 2023, equations 8 and 9, on the gradients
as they are observed. A centre is pulled by the rows that it is the centre of, which tells their labels where the layer
is wide, however little the others tell; and where a row is left out of its own centre, that tells its label the other
way round. So the centres of either half of a batch are known for the other half: noise alone then tells nothing.
Shape suffixes: B rows of the batch, H rows of one half of it, K rows of one class of a half, C centres, d cut-layer
width.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_MOST_NUMBERS = 1 << 14  # of a class that a median is taken of: a wide layer has the medians of fewer rows


def centre_scores(g_Bd: Tensor, y_B: Tensor) -> dict[str, Tensor | None]:
    """`mean` and `median`: ||g - centre_0|| - ||g - centre_1||, (B,), for labels 0 and 1, with the centres of the other
    half of the rows.

    Every other row of each class is in the same half. A median is that of each coordinate, over at most 16384 / d
    evenly spaced rows. None where a class has fewer than two rows.
    """
    rows = [np.flatnonzero(y_B.numpy() == label) for label in (0, 1)]
    if min(map(len, rows)) < 2:
        return {"mean": None, "median": None}
    g = g_Bd.detach().numpy()
    parts = [[g[own[half::2]] for half in (0, 1)] for own in rows]
    score_2B = np.empty((2, len(y_B)))
    for half in (0, 1):
        g_Hd = np.concatenate([parts[label][half] for label in (0, 1)])
        centre_4d = np.concatenate([_centres(parts[label][1 - half]) for label in (0, 1)])
        distance_H4 = _distances(g_Hd, centre_4d)
        of_half = np.concatenate([own[half::2] for own in rows])
        score_2B[:, of_half] = (distance_H4[:, :2] - distance_H4[:, 2:]).T
    return dict(zip(("mean", "median"), torch.from_numpy(score_2B), strict=True))


def _centres(g_Kd: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """The mean and the median of rows, (2, d)."""
    most_rows = max(_MOST_NUMBERS // g_Kd.shape[1], 1)
    taken_Kd = g_Kd[:: -(-len(g_Kd) // most_rows)]
    sorted_dK = np.sort(np.ascontiguousarray(taken_Kd.T), axis=1)
    middle = [(len(taken_Kd) - 1) // 2, len(taken_Kd) // 2]
    return np.stack([g_Kd.mean(axis=0, dtype=np.float64), sorted_dK[:, middle].mean(axis=1, dtype=np.float64)])


def _distances(g_Hd: npt.NDArray[np.generic], centre_Cd: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(H, C); of equal centres equal ones, which products of matrices do not promise."""
    exactly = "donot_use_mm_for_euclid_dist"
    distance_HC = torch.cdist(torch.from_numpy(g_Hd).double(), torch.from_numpy(centre_Cd), compute_mode=exactly)
    found: npt.NDArray[np.float64] = distance_HC.numpy()
    return found
