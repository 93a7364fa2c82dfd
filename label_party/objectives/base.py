"""The contract of an objective: what the label party makes of the parties' activations and its labels.

Shape suffixes: B rows of the batch, N rows, d width of the aggregated activations, K logits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from cutlayer.common.config import Choice
from cutlayer.common.randomness import Noise
from cutlayer.label_party.objectives.utility import utility_figures


@dataclass(frozen=True)
class ObjectiveSetting:
    """What an objective is made for.

    Attributes:
        outputs: K, logits a row: 1 for a binary task, else one for each class.
        width: d, numbers a row of the aggregated activations.
        addends: how many activations are added up in each of them: as many as parties under sum, else 1.
        top_model: of the run file; None where that names none.
        rate: learning rate of the label party's optimizer.
        seed: all that initial weights may follow from.
        train_rows: rows of an epoch.
    """

    task: Literal["binary", "multiclass"]
    outputs: int
    width: int
    addends: int
    top_model: Choice | None
    rate: float
    seed: int
    train_rows: int


class Learned(NamedTuple):
    """What a training step gives.

    Attributes:
        loss: of the batch, for people.
        gradient_Bd: at the aggregated activations; None where the loss does not depend on them.
        parts: gradients at the same place of which that is made, by name, where there are several.
    """

    loss: float
    gradient_Bd: Tensor | None
    parts: Mapping[str, Tensor] = MappingProxyType({})


class Objective(ABC):
    """Owns all that is trained above the aggregated activations, and says what their gradient is.

    Attributes:
        model: from aggregated activations (B, d) to logits (B, K); saved with the run's results as `top`.
        shows_labels: whether the gradient of a row rests on its true label, so that it tells it unless a defense
            changes it.
    """

    model: nn.Module
    shows_labels: bool = True

    @abstractmethod
    def learn(self, aggregate_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Learned:
        """Take in one batch, and train whatever `parameters` leaves out.

        Args:
            aggregate_Bd: a leaf that requires a gradient; must not be modified.
            y_B: labels, as the defense encodes them.
            noise: the only source of randomness but for dropout; the same for the same activations of the same step.
        """

    def predict(self, aggregate_Bd: Tensor) -> Tensor:
        """Logits (B, K), in evaluation mode and without gradients."""
        logits_BK: Tensor = self.model(aggregate_Bd)
        return logits_BK

    def parameters(self) -> Iterable[nn.Parameter]:
        """Those that the label party's optimizer updates by the gradients that `learn` leaves at them."""
        return self.model.parameters()

    def figures(self, logits_NK: Tensor, y_N: Tensor) -> dict[str, float | None]:
        """Utility on test rows."""
        return utility_figures(logits_NK, y_N)

    def end_epoch(self) -> Mapping[str, float]:
        """All training rows were seen once more; figures of the epoch, in place of those of its last step."""
        return {}

    def telemetry(self) -> Mapping[str, float]:
        """Figures of the last step, for the label party's own log."""
        return {}

    def notes(self) -> Mapping[str, str]:
        """What a person must be told by now: key -> text; each is told once."""
        return {}

    def summary(self) -> Mapping[str, Any]:
        """What `summary.json` has of it, as values of JSON."""
        return {}

    def tensors(self) -> Mapping[str, Tensor]:
        """What a checkpoint must hold besides the weights of `model` and the label party's optimizer."""
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        if tensors:
            raise ValueError(f"{type(self).__name__} keeps no state, got {sorted(tensors)}")
