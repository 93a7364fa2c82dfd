"""What leaks, in figures: leak AUC, its null floor, and the bound that follows from a KL divergence.

Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022 ([M] below); Han and Guan, "GAN-based
Vertical Federated Learning for Label Protection in Binary Classification" ([G] below). All functions are pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # not at run time: what only puts figures together need not wait for torch
    from torch import Tensor

Vector: TypeAlias = "Tensor | npt.NDArray[np.generic]"


def leak_auc(score_B: Vector, y_B: Vector) -> float | None:
    """ROC AUC of a score against labels 0/1, ties counted half [M, section 3.2]; None where a class is missing.

    Equal to scikit-learn's `roc_auc_score`, at a hundredth of its cost: every positive is placed among the sorted
    negatives.

    Raises:
        ValueError: a score is NaN.
    """
    score, positive = np.asarray(score_B, dtype=np.float64), np.asarray(y_B) == 1
    if np.isnan(score).any():
        raise ValueError("a score is not a number")
    negatives, positives = np.sort(score[~positive]), score[positive]
    if not len(negatives) or not len(positives):
        return None
    below = np.searchsorted(negatives, positives, side="left").sum()
    not_above = np.searchsorted(negatives, positives, side="right").sum()
    return float(int(below) + int(not_above)) / (2 * len(negatives) * len(positives))


def flipped(auc: float) -> float:
    """What an attacker gets who may also turn the score round: max(AUC, 1 - AUC) [G, equation 10]."""
    return max(auc, 1 - auc)


def null_floor(positives: int, negatives: int) -> float:
    """The 97.5th percentile of the AUC of a score that knows nothing, for a batch of that many rows of each class.

    From the variance of the rank sum in its normal approximation; no figure of a run can be expected below it.
    """
    return min(0.5 + 1.96 * math.sqrt((positives + negatives + 1) / (12 * positives * negatives)), 1.0)


def auc_bound(sum_kl: float) -> float:
    """No score has a higher AUC where KL(P1||P0) + KL(P0||P1) is `sum_kl`.

    1/2 + tau - tau^2/2 with tau >= the total variation distance: sqrt(sum_kl)/2 [M, Theorem 1], or
    sqrt(1 - exp(-sum_kl/2)) (derived, from Bretagnolle and Huber), which says something above 4 too.
    """
    tau = min(math.sqrt(sum_kl) / 2, math.sqrt(-math.expm1(-sum_kl / 2)), 1.0)
    return 1 - (1 - tau) ** 2 / 2  # in this form it does not fall where rounding is all that is left


def sum_kl_of(target_auc: float) -> float:
    """The largest `sum_kl` whose `auc_bound` is `target_auc`, in [1/2, 1)."""
    if not 0.5 <= target_auc < 1:
        raise ValueError(f"expected a leak AUC from 0.5 to below 1, got {target_auc}")
    tau = (2 * target_auc - 1) / (1 + math.sqrt(2 * (1 - target_auc)))  # 1 - sqrt(2 (1 - target)), without cancellation
    return max(4 * tau * tau, -2 * math.log1p(-tau * tau))


@dataclass
class LeakTally:
    """Leak AUCs of many batches, and how many had none."""

    skipped: int = 0
    _values: list[float] = field(default_factory=list)

    def add(self, auc: float | None) -> None:
        """One batch."""
        if auc is None:
            self.skipped += 1
        else:
            self._values.append(auc)

    def summary(self) -> dict[str, float | int | None]:
        """mean, p95 (nearest rank, as the authors report it) and max over the batches; None without any."""
        values = np.array(self._values)
        figures: dict[str, float | int | None] = {"mean": None, "p95": None, "max": None}
        if len(values):
            p95 = float(np.quantile(values, 0.95, method="nearest"))
            figures = {"mean": float(values.mean()), "p95": p95, "max": float(values.max())}
        return figures | {"batches": len(values), "skipped": self.skipped}
