"""What attacks without any label share: rows that stand for all, the larger side, which of two clusters is positive.

Shape suffixes: B rows of the batch, S rows that are compared with each other, D width of the layer looked at.
"""

from __future__ import annotations

from torch import Tensor

_COMPARED = 1024  # rows at most, so that a large batch takes no more than 1024 x 1024 numbers


def spaced(g_BD: Tensor) -> Tensor:
    """At most _COMPARED evenly spaced rows, (S, D)."""
    return g_BD[:: max(-(-len(g_BD) // _COMPARED), 1)]


def majority(unit_BD: Tensor) -> Tensor:
    """Of rows of length 1, the one (D,) that has the most `spaced` others on its side; the first of equals."""
    unit_SD = spaced(unit_BD)
    side_SS = unit_SD.float() @ unit_SD.float().T > 0
    return unit_SD[side_SS.sum(dim=1).argmax()]


def smaller_is_positive(g_BD: Tensor, in_one_B: Tensor) -> bool:
    """Whether of two clusters the rows `in_one_B` are taken for the positive ones, the rarer class.

    The smaller cluster is; of two equal ones that with the longer mean gradient; else `in_one_B`.
    """
    ones = int(in_one_B.sum())
    if 2 * ones != len(in_one_B):
        return 2 * ones < len(in_one_B)
    one_D, other_D = (g_BD[rows_B].double().mean(dim=0) for rows_B in (in_one_B, ~in_one_B))
    return bool(one_D.norm() >= other_D.norm())
