"""The contract of an attack: a curious plugin inside a non-label party that guesses labels from its views."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from cutlayer.common.registry import Registry
from cutlayer.nonlabel_party.view import LabelGuess, Layer, StepView


class Attack(ABC):
    """Guesses labels. Subclasses are dataclasses; their fields are the options of the run file.

    An attack reads views and nothing else: no file, no socket, no other party's data. It must not
    modify what a view holds.
    """

    paper: ClassVar[str]
    tasks: ClassVar[frozenset[str]] = frozenset({"binary"})
    needs: ClassVar[frozenset[str]] = frozenset()  # knowledge without which it cannot run, keys of `job.knowledge`

    @abstractmethod
    def observe(self, view: StepView) -> Sequence[LabelGuess]:
        """Look at one training step; return what can be guessed about its rows now, often nothing."""

    def infer(self) -> Sequence[LabelGuess]:
        """What is guessed about all rows when training has ended."""
        return ()

    def state(self) -> Mapping[str, Tensor]:
        """What a checkpoint must hold for the attack to go on as if nothing had happened."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, got {sorted(state)}")


@dataclass(kw_only=True)
class ScoringAttack(Attack):
    """An attack that scores each batch by itself. A method writes only `score`."""

    layers: tuple[Layer, ...] = ("cut", "first")

    @abstractmethod
    def score(self, g_BD: Tensor, layer: Layer, view: StepView) -> Tensor | None:
        """Scores (B,) of the rows whose gradients at `layer` are `g_BD`; None where the step allows no guess."""

    def observe(self, view: StepView) -> Sequence[LabelGuess]:
        guesses = []
        for layer in self.layers:
            score_B = self.score(view.gradient(layer), layer, view)
            if score_B is not None:
                guesses.append(LabelGuess(view.row_ids, score_B, layer))
        return guesses


attacks: Registry[Attack] = Registry("attack", "cutlayer.attacks")
