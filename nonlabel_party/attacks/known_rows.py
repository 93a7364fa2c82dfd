"""The base of attacks that know the labels of some rows: each is compared with what was received for those rows.

Shape suffixes: B rows of the batch, K known rows, D width of the layer looked at.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from cutlayer.nonlabel_party.attacks.base import Attack
from cutlayer.nonlabel_party.view import LabelGuess, Layer, StepView


@dataclass(kw_only=True)
class KnownRowsAttack(Attack):
    """Compares rows with the known ones. A method writes only `score`.

    The party knows the labels of a few of its own rows (`labelled_rows`), the same through the whole run. It keeps the
    newest gradient of each, at most K D numbers of 8 bytes at a layer, and guesses the labels of all other rows. A
    row's gradient is taken times the batch size, as that of the mean loss shrinks with it.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"labelled_rows"})
    layers: tuple[Layer, ...] = ("cut", "first")
    _newest: dict[Layer, dict[str, Tensor]] = field(default_factory=dict, init=False, repr=False)

    @abstractmethod
    def score(self, g_BD: Tensor, known: Mapping[int, Tensor]) -> Tensor | None:
        """Scores (B,) of rows with unknown labels; None where no guess is possible yet.

        Args:
            g_BD: their gradients, float64.
            known: label -> newest gradients (K, D) of known rows with that label; only labels with any.
        """

    def uses(self, known_labels: Mapping[str, int]) -> Mapping[str, int]:
        """The known rows that the attack compares with."""
        return known_labels

    def observe(self, view: StepView) -> Sequence[LabelGuess]:
        unknown = [row for row, row_id in enumerate(view.row_ids) if row_id not in view.known_labels]
        row_ids = tuple(view.row_ids[row] for row in unknown)
        guesses = []
        for layer in self.layers:
            g_BD = view.gradient(layer).double() * len(view.row_ids)
            known = self._known(layer, g_BD, view)
            score_B = self.score(g_BD[unknown], known) if known and unknown else None
            if score_B is not None:
                guesses.append(LabelGuess(row_ids, score_B, layer))
        return guesses

    def state(self) -> Mapping[str, Tensor]:
        """The newest gradients."""
        found = {}
        for layer, newest in self._newest.items():
            found[f"{layer}/ids"] = torch.tensor(list(json.dumps(list(newest)).encode()), dtype=torch.uint8)
            found[f"{layer}/g"] = torch.stack(list(newest.values())) if newest else torch.empty(0, 0)
        return found

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        self._newest = {}
        for layer in self.layers:
            if f"{layer}/ids" in state:
                ids = json.loads(bytes(state[f"{layer}/ids"].tolist()))
                self._newest[layer] = dict(zip(ids, state[f"{layer}/g"].clone(), strict=True))

    def _known(self, layer: Layer, g_BD: Tensor, view: StepView) -> dict[int, Tensor]:
        """The newest gradients by label, those of this batch included; rows in the order in which they were granted."""
        newest = self._newest.setdefault(layer, {})
        for row, row_id in enumerate(view.row_ids):
            if row_id in view.known_labels:
                newest[row_id] = g_BD[row].clone()
        found: dict[int, list[Tensor]] = {}
        for row_id, label in self.uses(view.known_labels).items():
            if row_id in newest:
                found.setdefault(label, []).append(newest[row_id])
        return {label: torch.stack(rows) for label, rows in found.items()}


@dataclass(kw_only=True)
class HintAttack(KnownRowsAttack):
    """Compares rows with known positive ones, the hints. A method writes only `compare`.

    Options: `hints`, with how many of them; all by default.
    """

    paper: ClassVar[str] = "Li et al., ICLR 2022 (the authors' code)"
    hints: int | None = None

    def __post_init__(self) -> None:
        if self.hints is not None and self.hints < 1:
            raise ValueError("hints is a whole number from 1")

    @abstractmethod
    def compare(self, g_BD: Tensor, hint_KD: Tensor) -> Tensor:
        """Scores (B,) of rows beside the gradients of the hints."""

    def uses(self, known_labels: Mapping[str, int]) -> Mapping[str, int]:
        positive = [row_id for row_id, label in known_labels.items() if label == 1]
        return dict.fromkeys(positive[: self.hints], 1)

    def score(self, g_BD: Tensor, known: Mapping[int, Tensor]) -> Tensor | None:
        return self.compare(g_BD, known[1])
