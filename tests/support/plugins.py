"""Plugins that only tests use, named in run files as `support.plugins:Class`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from cutlayer.plugins import Defense, Noise


@dataclass(kw_only=True)
class Constant(Defense):
    """Sends the same numbers whatever the gradient is."""

    paper: ClassVar[str] = "none"
    value: float = 0.25

    def perturb(self, g_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Tensor:
        return torch.full_like(g_Bd, self.value)


@dataclass(kw_only=True)
class Forgetful(Defense):
    """Sends a copy of the gradient that it was given."""

    paper: ClassVar[str] = "none"

    def perturb(self, g_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Tensor:
        return g_Bd.clone()
