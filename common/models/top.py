"""The built-in top models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, PositiveInt
from torch import nn

from cutlayer.common.errors import ConfigError
from cutlayer.common.models.base import TopModel, top_models
from cutlayer.common.models.layers import Activation, stack


@top_models.register("mlp")
@dataclass(frozen=True, kw_only=True)
class MlpTop(TopModel):
    """Fully connected layers.

    Attributes:
        hidden: widths of the hidden layers.
        dropout: share of each hidden layer's outputs that is set to 0 in training.
    """

    hidden: tuple[PositiveInt, ...] = (16,)
    activation: Activation = "relu"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def build(self, width: int, outputs: int) -> nn.Module:
        return stack([width, *self.hidden, outputs], self.activation, self.dropout)


@top_models.register("linear")
@dataclass(frozen=True, kw_only=True)
class LinearTop(TopModel):
    """One linear layer: logistic regression on the activations."""

    bias: bool = True

    def build(self, width: int, outputs: int) -> nn.Module:
        return nn.Linear(width, outputs, bias=self.bias)


@top_models.register("sum")
@dataclass(frozen=True, kw_only=True)
class Sum(TopModel):
    """No model (AggVFL): the parties' activations, added up, are the logits."""

    def build(self, width: int, outputs: int) -> nn.Module:
        if width != outputs:
            raise ConfigError(
                f"top_model sum takes the {width} aggregated activations of a row as its logits, and there are "
                f"{outputs}; write cut_layer: {{width: {outputs}, aggregation: sum}}, or another top model"
            )
        return nn.Identity()
