"""Plugins that only tests use, named in run files as `support.plugins:Class`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from cutlayer.plugins import Attack, Defense, LabelGuess, Noise, StepView


@dataclass(kw_only=True)
class Constant(Defense):
    """Sends the same numbers whatever the gradient is."""

    paper: ClassVar[str] = "none"
    value: float = 0.25

    def perturb(self, g_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Tensor:
        return torch.full_like(g_Bd, self.value)


@dataclass(kw_only=True)
class Remembering(Attack):
    """Compares each gradient with the mean of all before it; at the end guesses the rows of the last batch again."""

    paper: ClassVar[str] = "none"
    _mean_d: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64), init=False)
    _seen: int = field(default=0, init=False)
    _last: tuple[str, ...] = field(default=(), init=False)

    def observe(self, view: StepView) -> Sequence[LabelGuess]:
        g_Bd = view.gradient("cut").double()
        score_B = (g_Bd * self._mean_d).sum(dim=1)
        self._seen += 1
        self._mean_d = self._mean_d + (g_Bd.mean(dim=0) - self._mean_d) / self._seen
        self._last = view.row_ids
        return [LabelGuess(view.row_ids, score_B)]

    def infer(self) -> Sequence[LabelGuess]:
        return [LabelGuess(self._last, torch.arange(len(self._last)) + self._mean_d.norm())]

    def state(self) -> Mapping[str, Tensor]:
        rows = torch.tensor(list(json.dumps(self._last).encode()), dtype=torch.uint8)
        return {"mean": self._mean_d, "seen": torch.tensor(self._seen), "last": rows}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self._mean_d, self._seen = state["mean"], int(state["seen"])
        self._last = tuple(json.loads(bytes(state["last"].tolist())))


@dataclass(kw_only=True)
class Forgetful(Defense):
    """Sends a copy of the gradient that it was given."""

    paper: ClassVar[str] = "none"

    def perturb(self, g_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Tensor:
        return g_Bd.clone()
