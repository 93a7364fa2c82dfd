"""Cross-entropy and the figures of utility, from logits: one a row for a binary task, else one for each class.

Shape suffixes: B rows of the batch, N rows, K logits.
"""

from __future__ import annotations

from statistics import fmean

import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.common.leakage import leak_auc


def cross_entropy(logits_BK: Tensor, y_B: Tensor) -> Tensor:
    """Mean over the rows of log(1 + exp(-l)) + (1 - y) l for one logit, of -log softmax(l)_y for more; a scalar."""
    if logits_BK.shape[1] > 1:
        return functional.cross_entropy(logits_BK, y_B)
    return functional.binary_cross_entropy_with_logits(logits_BK.squeeze(1), y_B.to(logits_BK.dtype))


def utility_figures(logits_NK: Tensor, y_N: Tensor) -> dict[str, float | None]:
    """Test loss, AUC (macro one against the rest for more classes) and accuracy; AUC None if undefined."""
    if logits_NK.shape[1] > 1:
        scores, guess_N = logits_NK.double().softmax(dim=1), logits_NK.argmax(dim=1)
    else:
        scores, guess_N = logits_NK.squeeze(1).double(), (logits_NK.squeeze(1) > 0).long()
    return {
        "test_loss": float(cross_entropy(logits_NK, y_N)),
        "test_auc": _auc(scores, y_N),
        "test_accuracy": float((guess_N == y_N).double().mean()),
    }


def _auc(scores: Tensor, y_N: Tensor) -> float | None:
    present = torch.unique(y_N)
    if len(present) < 2:
        return None
    if scores.dim() == 1:
        return leak_auc(scores.numpy(), y_N.numpy())
    one_against_rest = (leak_auc(scores[:, c].numpy(), (y_N == c).numpy()) for c in present.tolist())
    return fmean(auc for auc in one_against_rest if auc is not None)
