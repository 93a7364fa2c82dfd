"""What leaks, in figures: leak AUC, its null floor, and the bound that follows from a KL divergence.

Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022 ([M] below); Han and Guan, "GAN-based
Vertical Federated Learning for Label Protection in Binary Classification" ([G] below). All functions are pure.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # not at run time: what only puts figures together need not wait for torch
    from torch import Tensor

Vector: TypeAlias = "Tensor | npt.NDArray[np.generic]"

_FLOOR_DEVIATIONS = 1.96  # of the normal distribution: 97.5 % stay below


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
    """What an attacker gets who may also turn the score round: max(AUC, 1 - AUC) [G, equation 10].

    A score that knows nothing reaches `null_floor` in p95 here exactly, for that looks at both sides of 1/2.
    """
    return max(auc, 1 - auc)


def null_floor(positives: int, negatives: int, best_of: int = 1) -> float:
    """What the AUC of a score that knows nothing reaches on a batch of that many rows of each class.

    In 95 % of such batches it stays as near to 1/2 as this, in 97.5 % below it; from the variance of the rank sum in
    its normal approximation. The p95 of a run can hardly be expected below it, whatever the defense.

    Args:
        best_of: the figure is the largest of so many independent ones, such as those of several parties.
    """
    return min(0.5 + _floor_deviations(best_of) * null_deviation(positives, negatives), 1.0)


def null_floor_over(sizes: Mapping[tuple[int, int], int], best_of: int = 1) -> float | None:
    """`null_floor` for the batches of a run together: as large a share of them stays below it.

    Args:
        sizes: (positives, negatives) of the batches -> how many of them there are; where there are none, so is a floor.
        best_of: as of `null_floor`.
    """
    if not sizes:
        return None
    deviations = {size: null_deviation(*size) for size in sizes}
    wanted = _normal_share(_FLOOR_DEVIATIONS) * sum(sizes.values())
    low, high = 0.5, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        below = sum(n * _normal_share((middle - 0.5) / deviations[size]) ** best_of for size, n in sizes.items())
        low, high = (middle, high) if below < wanted else (low, middle)
    return high


def null_deviation(positives: int, negatives: int) -> float:
    """Of the AUC of a score that knows nothing, over batches of that many rows of each class, at least one of each."""
    return math.sqrt((positives + negatives + 1) / (12 * positives * negatives))


@cache
def _floor_deviations(best_of: int) -> float:
    if best_of == 1:
        return _FLOOR_DEVIATIONS
    return NormalDist().inv_cdf(_normal_share(_FLOOR_DEVIATIONS) ** (1 / best_of))


def _normal_share(deviations: float) -> float:
    return 0.5 * math.erfc(-deviations / math.sqrt(2))


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


@dataclass(frozen=True)
class EpochLeak:
    """Leak AUC of the scores of an epoch together; of several parties, that of the worst off.

    Attributes:
        flipped: of an attacker who may turn the score round.
        floor: `null_floor` of the rows of the epoch; None where they are not known any more.
    """

    auc: float
    flipped: float
    floor: float | None = None


def pooled_figures(epochs: Sequence[EpochLeak]) -> dict[str, float | None]:
    """`pooled`, `pooled_flipped`: means over the epochs; `pooled_last`, `_flipped`, `_null_floor`: of the last one."""
    names = ("pooled", "pooled_flipped", "pooled_last", "pooled_last_flipped", "pooled_last_null_floor")
    if not epochs:
        return dict.fromkeys(names)
    last = epochs[-1]
    means = [float(np.mean([getattr(epoch, what) for epoch in epochs])) for what in ("auc", "flipped")]
    return dict(zip(names, (*means, last.auc, last.flipped, last.floor), strict=True))


@dataclass
class LeakTally:
    """Leak AUCs of many batches, and how many had none.

    Attributes:
        best_of: each is the largest of so many, such as those of several parties.
    """

    skipped: int = 0
    best_of: int = 1
    _values: list[float] = field(default_factory=list)
    _flipped: list[float] = field(default_factory=list)
    _sizes: Counter[tuple[int, int]] = field(default_factory=Counter)

    def add(self, auc: float | None, positives: int, negatives: int, flipped_auc: float | None = None) -> None:
        """One batch with so many rows of each class; 0 where that is not known any more.

        Args:
            flipped_auc: of the party where the flipped one is largest; by default that of `auc`.
        """
        if auc is None:
            self.skipped += 1
        else:
            self._values.append(auc)
            self._flipped.append(flipped(auc) if flipped_auc is None else flipped_auc)
            if positives and negatives:
                self._sizes[positives, negatives] += 1

    def summary(self) -> dict[str, float | int | None]:
        """Over the batches: mean, p95 (nearest rank, as the authors report it) and max; None without any.

        `_low` and `_high` are what a bootstrap over the batches gives as 95 % interval, in its limit of many draws;
        `_flipped` is of an attacker who may turn the score of each batch round; `null_floor` is what a score that
        knows nothing reaches in p95.
        """
        values, flips = np.sort(np.array(self._values)), np.sort(np.array(self._flipped))
        figures = _figures(values) if len(values) else dict.fromkeys(_FIGURES)
        turned = _figures(flips) if len(flips) else dict.fromkeys(_FIGURES)
        flipped_figures = {f"{name}_flipped": turned[name] for name in ("mean", "p95", "max")}
        floor = null_floor_over(self._sizes, self.best_of)
        counts = {"null_floor": floor, "batches": len(values), "skipped": self.skipped}
        return {**figures, **flipped_figures, **counts}


_FIGURES = ("mean", "mean_low", "mean_high", "p95", "p95_low", "p95_high", "max")


def _figures(values: npt.NDArray[np.float64]) -> dict[str, float | int | None]:
    """Of sorted values, (n,). A resample's mean is normal, the rank of its quantile binomial, about normal too."""
    n, mean = len(values), float(values.mean())
    width = 1.96 * float(values.std()) / math.sqrt(n)
    ranks = 0.95 * (n - 1) + 1.96 * math.sqrt(0.95 * 0.05 * n) * np.array([-1, 0, 1])
    low, p95, high = (float(values[rank]) for rank in np.clip(np.rint(ranks), 0, n - 1).astype(int))
    interval = (max(mean - width, 0.0), min(mean + width, 1.0))
    return dict(zip(_FIGURES, (mean, *interval, p95, low, high, float(values[-1])), strict=True))
