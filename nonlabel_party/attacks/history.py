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
from cutlayer.nonlabel_party.attacks.without_labels import majority, spaced
from cutlayer.nonlabel_party.view import LabelGuess, Layer, StepView


class _Memory:
    """Sums over the steps at one layer: of each row's direction, and of that of the granted positive gradients."""

    def __init__(self, rows: int, width: int) -> None:
        self.sum_ND = torch.zeros(rows, width, dtype=torch.float64)  # takes memory where it is written to
        self.seen_N = torch.zeros(rows, dtype=torch.int64)
        self.positive_D = torch.zeros(width, dtype=torch.float64)

    def add(self, places: Tensor, unit_BD: Tensor) -> None:
        """Directions of the rows at `places`, each once; those for which there is no room are left out."""
        fits = places < len(self.seen_N)
        self.sum_ND[places[fits]] += unit_BD[fits]
        self.seen_N[places[fits]] += 1

    def mean(self, places: Sequence[int]) -> Tensor:
        """The mean of the mean directions of these rows, (D,); zeros where there are none."""
        if not places:
            return torch.zeros_like(self.positive_D)
        return (self.sum_ND[places] / self.seen_N[places, None]).mean(dim=0)

    def along(self, direction_D: Tensor) -> Tensor:
        """Inner product of each row's mean direction with `direction_D`, (N,), of the rows that were seen."""
        count = self.count
        return (self.sum_ND[:count] @ direction_D) / self.seen_N[:count]

    @property
    def count(self) -> int:
        """How many rows were seen; they are the first ones."""
        return int((self.seen_N > 0).sum())


@attacks.register("history")
@dataclass(kw_only=True)
class HistoryAttack(Attack):
    """Noise of different epochs averages out: the mean of a row's directions over the epochs, scored at the end.

    Score: inner product of that mean with the mean direction of the clean positive gradients, where the job grants
    these; else of the known positive rows minus the known negative ones; else with minus the mean of the row that has
    the most others on its side. Known rows are not scored. Remembers N D numbers of 8 bytes at each layer.

    Options: `rows`, the most rows that are remembered, N, the first that are seen; `max_mb`, the most megabytes at each
    layer, so that a wide layer remembers fewer rows.
    """

    paper: ClassVar[str] = "derived; the open question of Li et al., ICLR 2022"
    layers: tuple[Layer, ...] = ("cut", "first")
    rows: int = 100_000
    max_mb: int = 256
    _places: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _memories: dict[Layer, _Memory] = field(default_factory=dict, init=False, repr=False)
    _known_labels: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.rows < 1 or self.max_mb < 1:
            raise ValueError("rows and max_mb are whole numbers from 1")

    def observe(self, view: StepView) -> Sequence[LabelGuess]:
        self._known_labels = dict(view.known_labels)
        for row_id in view.row_ids:
            if len(self._places) < self.rows:
                self._places.setdefault(row_id, len(self._places))
        kept = [row for row, row_id in enumerate(view.row_ids) if row_id in self._places]
        places = torch.tensor([self._places[view.row_ids[row]] for row in kept])
        for layer in self.layers if kept else ():
            g_BD = view.gradient(layer)
            memory = self._memory(layer, g_BD.shape[1])
            memory.add(places, unit(g_BD[kept]))
            positive_D = view.clean_positive_gradient(layer)
            if positive_D is not None:
                memory.positive_D += unit(positive_D)
        return ()

    def infer(self) -> Sequence[LabelGuess]:
        unknown = {row_id: place for row_id, place in self._places.items() if row_id not in self._known_labels}
        guesses = []
        for layer, memory in self._memories.items():
            score_N = memory.along(self._positive(memory))
            names = tuple(row_id for row_id, place in unknown.items() if place < len(score_N))
            guesses.append(LabelGuess(names, score_N[[unknown[name] for name in names]], layer))
        return guesses

    def state(self) -> Mapping[str, Tensor]:
        """What adds up, and which rows it is of."""
        names = json.dumps([list(self._places), self._known_labels]).encode()
        found = {"rows": torch.frombuffer(bytearray(names), dtype=torch.uint8)}
        for layer, memory in self._memories.items():
            count = memory.count
            found |= {f"{layer}/sum": memory.sum_ND[:count], f"{layer}/seen": memory.seen_N[:count]}
            found[f"{layer}/positive"] = memory.positive_D
        return found

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        row_ids, self._known_labels = json.loads(state["rows"].numpy().tobytes())
        self._places = {row_id: place for place, row_id in enumerate(row_ids)}
        self._memories = {}
        for layer in self.layers:
            if f"{layer}/sum" in state:
                sum_ND = state[f"{layer}/sum"]
                memory = self._memory(layer, sum_ND.shape[1])
                memory.sum_ND[: len(sum_ND)], memory.seen_N[: len(sum_ND)] = sum_ND, state[f"{layer}/seen"]
                memory.positive_D = state[f"{layer}/positive"].clone()

    def _memory(self, layer: Layer, width: int) -> _Memory:
        """What adds up at a layer of this width."""
        if layer not in self._memories:
            room = max(self.max_mb * 1_000_000 // (8 * width), 1)
            self._memories[layer] = _Memory(min(self.rows, room), width)
        return self._memories[layer]

    def _positive(self, memory: _Memory) -> Tensor:
        """The direction (D,) that is taken for that of the positive class."""
        if bool(memory.positive_D.any()):
            return unit(memory.positive_D)
        count = memory.count
        known = [(self._places.get(row_id, count), label) for row_id, label in self._known_labels.items()]
        sides = [[place for place, y in known if y == label and place < count] for label in (1, 0)]
        if any(sides):
            return unit(memory.mean(sides[0]) - memory.mean(sides[1]))
        return -majority(unit(spaced(memory.sum_ND[:count])))
