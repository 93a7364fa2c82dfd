"""How the parties' activations become the input of the top model: F(z_1, ..., z_P)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cutlayer.common.job import LABEL_PARTY, CutLayer


def aggregate(z_Bd: Sequence[Tensor], how: str) -> Tensor:
    """Sum (B, d), or concatenation (B, d_1 + ... + d_P) in the order of the parties."""
    if how == "sum":
        return torch.stack(list(z_Bd)).sum(dim=0) if len(z_Bd) > 1 else z_Bd[0]
    return torch.cat(list(z_Bd), dim=1)


def aggregate_width(cut: CutLayer, parties: Sequence[str], *, own_features: bool) -> int:
    """Width of the top model's input."""
    if cut.aggregation == "sum":
        return cut.width
    return sum(cut.width_of(party) for party in [*parties, *([LABEL_PARTY] if own_features else [])])
