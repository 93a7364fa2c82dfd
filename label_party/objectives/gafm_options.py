"""What a user chooses of GAFM; the options of the defense of that name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from cutlayer.common.fields import LearningRate, Section

Auto = Literal["auto"]
Delta = Annotated[float, Field(ge=0, le=0.5)]
Weight = Annotated[float, Field(gt=0, le=1e6)]


class Discriminator(Section):
    """Widths of the hidden layers of the discriminator, which looks at one number a row."""

    hidden: tuple[PositiveInt, ...] = (10, 10)


class Rates(Section):
    """Learning rates of Adam; by default that of the label party's optimizer."""

    generator: LearningRate | None = None
    discriminator: LearningRate | None = None


@dataclass(kw_only=True)
class GafmOptions:
    """What a run file says under `defense` with `name: gafm`; docs/run-file.md has the meaning of each."""

    sigma: Annotated[float, Field(ge=0, le=1000)] = 0.01
    delta: Delta | Auto = 0.1
    delta_values: Annotated[tuple[Delta, ...], Field(min_length=1)] = (0.05, 0.1, 0.2, 0.3, 0.5)
    delta_rows: Annotated[float, Field(gt=0, le=1)] = 0.1
    gamma: Weight | Auto = 1.0
    gamma_gan: Weight = 1.0
    gamma_batches: PositiveInt = 20
    clip: Annotated[float, Field(gt=0, le=1000)] = 0.1
    discriminator: Discriminator = field(default_factory=Discriminator)
    rates: Rates = field(default_factory=Rates)
    generator: Literal["monotone", "free"] = "monotone"
    client_gradient: Literal["new_generator", "old_generator"] = "new_generator"
    activations: Literal["logits", "probabilities"] = "logits"
    transformation: str = "identity"
    losses: Literal["both", "gan", "ce"] = "both"
    normalise: bool = True
    randomised_response: bool = True

    @property
    def rests_on_labels(self) -> bool:
        """Whether a row's gradient has a part that its true label, as it is, decides."""
        return self.losses != "gan" and not self.randomised_response
