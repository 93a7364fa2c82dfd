"""The model-based bound on leakage: per step, and over the whole run.

A row is released once per epoch; given the past its releases are independent, so the symmetrised KL
divergence of a row adds up over its steps. Holds under the defense's Gaussian model of the gradients only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.common.checkpoints import Tensors, below, prefixed
from cutlayer.common.leakage import auc_bound

ASSUMES = (
    "the exact gradients of each class in a batch are independent draws from a Gaussian distribution that has their "
    "mean and, in each direction, their variance"
)


class RunBound:
    """Adds up what a defense states as its sum of KL divergences, `sum_kl`, at each step.

    Args:
        rows: number of aligned rows.
    """

    def __init__(self, rows: int) -> None:
        self._spent: defaultdict[str, npt.NDArray[np.float64]] = defaultdict(lambda: np.zeros(rows))
        self._largest_step = 0.0
        self._largest_row = 0.0
        self._unbounded_steps = 0
        self.stated = False

    def add(self, party: str, rows: npt.NDArray[np.int64], figures: Mapping[str, float]) -> None:
        """One release to `party`; `figures` is the defense's telemetry of the step."""
        if (sum_kl := figures.get("sum_kl")) is None:
            self._unbounded_steps += 1
            return
        self.stated = True
        self._largest_step = max(self._largest_step, sum_kl)
        spent_N = self._spent[party]
        spent_N[rows] += sum_kl
        self._largest_row = max(self._largest_row, float(spent_N[rows].max()))

    @property
    def per_step(self) -> float:
        """No score has a higher AUC on one step; 1 where a step had no statement."""
        return 1.0 if self._unbounded_steps else auc_bound(self._largest_step)

    @property
    def whole_run(self) -> float:
        """No score has a higher AUC that looks at all releases of a row so far; 1 where a step had no statement."""
        return 1.0 if self._unbounded_steps else auc_bound(self._largest_row)

    def tensors(self) -> Tensors:
        """What a checkpoint must hold."""
        figures = [self._largest_step, float(self._unbounded_steps), float(self.stated)]
        spent = {party: torch.from_numpy(spent_N) for party, spent_N in self._spent.items()}
        return {"figures": torch.tensor(figures, dtype=torch.float64), **prefixed("spent", spent)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self._largest_step, unbounded, stated = tensors["figures"].tolist()
        self._unbounded_steps, self.stated = int(unbounded), bool(stated)
        self._spent.clear()
        self._spent.update({party: spent_N.numpy() for party, spent_N in below("spent", tensors).items()})
        self._largest_row = max((float(spent_N.max()) for spent_N in self._spent.values()), default=0.0)

    def summary(self) -> dict[str, float | int | str] | None:
        """The bounds; None where the defense states nothing. Steps without a statement make them 1."""
        if not self.stated:
            return None
        return {
            "per_step_leak_auc": self.per_step,
            "whole_run_leak_auc": self.whole_run,
            "sum_kl": self._largest_step,
            "whole_run_sum_kl": self._largest_row,
            "unbounded_steps": self._unbounded_steps,
            "assumes": ASSUMES,
        }
