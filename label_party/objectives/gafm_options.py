"""What a user chooses of GAFM; the options of the defense of that name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from cutlayer.common.fields import LearningRate, Section
from cutlayer.common.wording import explain


def _number_or_auto(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """One message in place of one for each alternative."""
    try:
        return validate(value)
    except ValidationError as error:
        words = explain(error.errors(include_url=False)[0]).removeprefix("expected ")
        raise ValueError(f"expected auto, or {words}") from error


OrAuto = WrapValidator(_number_or_auto)
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
    delta: Annotated[Delta | Auto, OrAuto] = 0.1
    delta_values: Annotated[tuple[Delta, ...], Field(min_length=1)] = (0.05, 0.1, 0.2, 0.3, 0.5)
    delta_rows: Annotated[float, Field(gt=0, le=1)] = 0.1
    gamma: Annotated[Weight | Auto, OrAuto] = 1.0
    gamma_gan: Weight = 1.0
    gamma_batches: Annotated[int, Field(ge=1, le=1_000_000)] = 20
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
        """Whether a row's gradient, beside its activations, tells its label outright.

        A randomised label lies on the side of 1/2 where the true one is: only the part of the game hides that.
        """
        if self.losses == "gan":
            return False
        return not self.randomised_response or (self.losses == "ce" and self.delta != 0)
