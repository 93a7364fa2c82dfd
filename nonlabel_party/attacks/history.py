"""What adds up over the epochs: the question that Li et al., ICLR 2022, leave open; derived.

Shape suffixes: N rows remembered, B rows of the batch, D width of the layer looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from cutlayer.common.scores import unit
from cutlayer.nonlabel_party.attacks.base import Attack, attacks
from cutlayer.nonlabel_party.attacks.without_labels import majority
from cutlayer.nonlabel_party.view import LabelGuess, Layer, StepView


class _Memory:
    """Sums over the steps at one layer: of each row's direction, and of that of the granted positive gradients."""

    def __init__(self, width: int) -> None:
        self.sum_ND = torch.zeros(0, width, dtype=torch.float64)
        self.seen_N = torch.zeros(0, dtype=torch.int64)
        self.positive_D = torch.zeros(width, dtype=torch.float64)

    def add(self, places: Tensor, unit_BD: Tensor) -> None:
        """Directions of the rows at `places`, each once."""
        if (missing := int(places.max()) + 1 - len(self.seen_N)) > 0:
            missing = max(missing, len(self.seen_N))  # doubles, so that growing costs no more than what is kept
            self.sum_ND = torch.cat([self.sum_ND, self.sum_ND.new_zeros(missing, self.sum_ND.shape[1])])
            self.seen_N = torch.cat([self.seen_N, self.seen_N.new_zeros(missing)])
        self.sum_ND[places] += unit_BD
        self.seen_N[places] += 1

    def means(self, count: int) -> Tensor:
        """Of the first `count` rows, (N, D)."""
        return self.sum_ND[:count] / self.seen_N[:count, None]


@attacks.register("history")
@dataclass(kw_only=True)
class HistoryAttack(Attack):
    """Noise of different epochs averages out: the mean of a row's directions over the epochs, scored at the end.

    Score: inner product of that mean with the mean direction of the clean positive gradients, where the job grants
    these; else of the known positive rows minus the known negative ones; else with minus the mean of the row that has
    the most others on its side. Known rows are not scored. Remembers N D numbers of 8 bytes at each layer.

    Options: `rows`, the most rows that are remembered, N; the first that are seen.
    """

    paper: ClassVar[str] = "derived; the open question of Li et al., ICLR 2022"
    layers: tuple[Layer, ...] = ("cut", "first")
    rows: int = 100_000
    _places: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _memories: dict[Layer, _Memory] = field(default_factory=dict, init=False, repr=False)
    _known_labels: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError("rows is a whole number from 1")

    def observe(self, view: StepView) -> Sequence[LabelGuess]:
        self._known_labels = dict(view.known_labels)
        for row_id in view.row_ids:
            if len(self._places) < self.rows:
                self._places.setdefault(row_id, len(self._places))
        kept = [row for row, row_id in enumerate(view.row_ids) if row_id in self._places]
        places = torch.tensor([self._places[view.row_ids[row]] for row in kept])
        for layer in self.layers if kept else ():
            g_BD = view.gradient(layer)
            memory = self._memories.setdefault(layer, _Memory(g_BD.shape[1]))
            memory.add(places, unit(g_BD[kept]))
            positive_D = view.clean_positive_gradient(layer)
            if positive_D is not None:
                memory.positive_D += unit(positive_D)
        return ()

    def infer(self) -> Sequence[LabelGuess]:
        unknown = [place for row_id, place in self._places.items() if row_id not in self._known_labels]
        names = tuple(row_id for row_id in self._places if row_id not in self._known_labels)
        guesses = []
        for layer, memory in self._memories.items():
            mean_ND = memory.means(len(self._places))
            guesses.append(LabelGuess(names, mean_ND[unknown] @ self._positive(memory, mean_ND), layer))
        return guesses

    def state(self) -> Mapping[str, Tensor]:
        """What adds up, and which rows it is of."""
        names = json.dumps([list(self._places), self._known_labels]).encode()
        found = {"rows": torch.tensor(list(names), dtype=torch.uint8)}
        for layer, memory in self._memories.items():
            count = len(self._places)
            found |= {f"{layer}/sum": memory.sum_ND[:count].clone(), f"{layer}/seen": memory.seen_N[:count].clone()}
            found[f"{layer}/positive"] = memory.positive_D.clone()
        return found

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        row_ids, self._known_labels = json.loads(bytes(state["rows"].tolist()))
        self._places = {row_id: place for place, row_id in enumerate(row_ids)}
        self._memories = {}
        for layer in self.layers:
            if f"{layer}/sum" in state:
                self._memories[layer] = memory = _Memory(state[f"{layer}/sum"].shape[1])
                memory.sum_ND, memory.seen_N = state[f"{layer}/sum"].clone(), state[f"{layer}/seen"].clone()
                memory.positive_D = state[f"{layer}/positive"].clone()

    def _positive(self, memory: _Memory, mean_ND: Tensor) -> Tensor:
        """The direction (D,) that is taken for that of the positive class."""
        if bool(memory.positive_D.any()):
            return unit(memory.positive_D)
        known = {row_id: label for row_id, label in self._known_labels.items() if row_id in self._places}
        sides = [[self._places[row_id] for row_id, y in known.items() if y == label] for label in (1, 0)]
        if any(sides):
            positive_D, negative_D = (mean_ND[side].mean(dim=0) if side else mean_ND.new_zeros(()) for side in sides)
            return unit(positive_D - negative_D)
        return -majority(unit(mean_ND))
