"""Whether a model is upside down: the AUC of what it has said of the training rows that it saw last, within batches.

Shape suffixes: B rows of the batch, W rows that are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cutlayer.common.checkpoints import Tensors
from cutlayer.common.leakage import leak_auc, null_deviation

_MOST_ROWS = 4096  # enough to know an AUC to a hundredth, and soon past what the model was before


class Ranking(NamedTuple):
    """How scores rank labels.

    Attributes:
        auc: mean of the batches' ROC AUCs, each weighed by how well it is known.
        deviation: what that mean would have where scores know nothing.
    """

    auc: float
    deviation: float


class RecentScores:
    """Scores and labels of the rows that came last.

    Those of a batch are compared with each other alone: the model moves between batches, and so does its offset.

    Args:
        rows: W, how many are kept, up to 4,096.
    """

    def __init__(self, rows: int) -> None:
        rows = min(rows, _MOST_ROWS)
        self._score_W = torch.zeros(rows)
        self._y_W = torch.zeros(rows, dtype=torch.int8)
        self._batch_W = torch.full((rows,), -1)
        self._rows = 0
        self._batches = 0

    def add(self, score_B: Tensor, y_B: Tensor) -> None:
        """Take in a batch in place of the oldest rows."""
        size = len(self._y_W)
        places = ((self._rows + torch.arange(len(y_B))) % size)[-size:]
        self._score_W[places] = score_B[-size:]
        self._y_W[places] = y_B[-size:].to(torch.int8)
        self._batch_W[places] = self._batches
        self._rows += len(y_B)
        self._batches += 1

    def ranking(self) -> Ranking | None:
        """None where no batch has rows of both classes."""
        aucs, weights = [], []
        for batch in torch.unique(self._batch_W[: self._rows]):
            of_batch = self._batch_W == batch
            y_B = self._y_W[of_batch]
            auc = leak_auc(self._score_W[of_batch], y_B)
            if auc is not None:
                positives = int(y_B.sum())
                aucs.append(auc)
                weights.append(null_deviation(positives, len(y_B) - positives) ** -2)
        return Ranking(float(np.average(aucs, weights=weights)), sum(weights) ** -0.5) if aucs else None

    def tensors(self) -> Tensors:
        """What a checkpoint must hold."""
        seen = torch.tensor([self._rows, self._batches])
        return {"scores": self._score_W, "labels": self._y_W, "batches": self._batch_W, "seen": seen}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self._score_W, self._y_W = tensors["scores"].clone(), tensors["labels"].clone()
        self._batch_W = tensors["batches"].clone()
        self._rows, self._batches = tensors["seen"].tolist()
