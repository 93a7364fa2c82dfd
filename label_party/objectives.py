"""What training minimises: the mean cross-entropy of the batch, binary or multi-class.

Shape suffixes: B rows of the batch, K logits (1 for binary, k for k classes).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional

from cutlayer.common.config import Job


@dataclass(frozen=True)
class CrossEntropy:
    """log(1 + exp(-l)) + (1 - y) l for one logit; -log softmax(l)_y for k of them."""

    classes: int
    multiclass: bool

    @classmethod
    def of(cls, job: Job) -> CrossEntropy:
        """The objective of a job."""
        return cls(job.classes, job.task == "multiclass")

    @property
    def outputs(self) -> int:
        """Number of logits per row."""
        return self.classes if self.multiclass else 1

    def loss(self, logits_BK: Tensor, y_B: Tensor) -> Tensor:
        """Mean loss over the batch, a scalar."""
        if self.multiclass:
            return functional.cross_entropy(logits_BK, y_B)
        return functional.binary_cross_entropy_with_logits(logits_BK.squeeze(1), y_B.to(logits_BK.dtype))

    def figures(self, logits_BK: Tensor, y_B: Tensor) -> dict[str, float | None]:
        """Test loss, AUC (macro one against the rest for more classes) and accuracy; AUC None if undefined."""
        if self.multiclass:
            scores, guess_B = logits_BK.double().softmax(dim=1), logits_BK.argmax(dim=1)
        else:
            scores, guess_B = logits_BK.squeeze(1).double(), (logits_BK.squeeze(1) > 0).long()
        return {
            "test_loss": float(self.loss(logits_BK, y_B)),
            "test_auc": self._auc(scores, y_B),
            "test_accuracy": float((guess_B == y_B).double().mean()),
        }

    def _auc(self, scores: Tensor, y_B: Tensor) -> float | None:
        present = torch.unique(y_B)
        if len(present) < 2:
            return None
        if not self.multiclass:
            return float(roc_auc_score(y_B.numpy(), scores.numpy()))
        aucs = [roc_auc_score((y_B == c).numpy(), scores[:, c].numpy()) for c in present.tolist()]
        return float(sum(aucs) / len(aucs))
