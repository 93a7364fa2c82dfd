"""Whether a model is upside down: the AUC of what it has said of the training rows that it saw last.

Shape suffixes: B rows of the batch, W rows that are kept.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cutlayer.common.checkpoints import Tensors
from cutlayer.common.leakage import leak_auc

_MOST_ROWS = 4096  # enough to know an AUC to a hundredth, and soon past what the model was before


class RecentScores:
    """Scores and labels of the rows that came last.

    Args:
        rows: W, how many are kept, up to 4,096.
    """

    def __init__(self, rows: int) -> None:
        rows = min(rows, _MOST_ROWS)
        self._score_W = torch.zeros(rows)
        self._y_W = torch.zeros(rows, dtype=torch.int8)
        self._seen = 0

    def add(self, score_B: Tensor, y_B: Tensor) -> None:
        """Take in a batch in place of the oldest rows."""
        size = len(self._y_W)
        places = (self._seen + torch.arange(len(y_B))) % size
        self._score_W[places[-size:]] = score_B[-size:]
        self._y_W[places[-size:]] = y_B[-size:].to(torch.int8)
        self._seen += len(y_B)

    def auc(self) -> float | None:
        """ROC AUC; None where all rows are of one class, or there are none."""
        known = min(self._seen, len(self._y_W))
        return leak_auc(self._score_W[:known], self._y_W[:known]) if known else None

    def tensors(self) -> Tensors:
        """What a checkpoint must hold."""
        return {"scores": self._score_W, "labels": self._y_W, "seen": torch.tensor(self._seen)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self._score_W, self._y_W = tensors["scores"].clone(), tensors["labels"].clone()
        self._seen = int(tensors["seen"])
