"""What training minimises by default: the mean cross-entropy of the batch, binary or multi-class."""

from __future__ import annotations

from torch import Tensor

from cutlayer.common.config import Choice
from cutlayer.common.models import build_top
from cutlayer.common.randomness import Noise, public_seed
from cutlayer.label_party.objectives.base import Learned, Objective, ObjectiveSetting
from cutlayer.label_party.objectives.utility import cross_entropy

_TOP_MODEL = Choice(name="mlp")


class CrossEntropy(Objective):
    """The top model of the run file, trained by the label party's optimizer.

    Raises:
        UserError: the top model cannot be built for such activations.
    """

    def __init__(self, setting: ObjectiveSetting) -> None:
        choice = setting.top_model or _TOP_MODEL
        self.model = build_top(choice, setting.width, setting.outputs, public_seed("top", setting.seed))

    def learn(self, aggregate_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Learned:
        """The gradient of the mean loss."""
        loss = cross_entropy(self.model(aggregate_Bd), y_B)
        loss.backward()  # type: ignore[no-untyped-call]
        return Learned(float(loss.detach()), aggregate_Bd.grad)
