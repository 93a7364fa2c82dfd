"""The built-in bottom models.

Shape suffixes: B rows of the batch, F features, C category columns, E embedding width, d cut-layer width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from cutlayer.common.errors import ConfigError
from cutlayer.common.models.base import BottomModel, bottom_models
from cutlayer.common.models.layers import Activation, Codes, OneHot, require_memory, stack
from cutlayer.common.tables import InputSpec


@bottom_models.register("mlp")
@dataclass(frozen=True, kw_only=True)
class MlpBottom(BottomModel):
    """Fully connected layers; category columns go in one-hot.

    Attributes:
        hidden: widths of the hidden layers.
        dropout: share of each hidden layer's outputs that is set to 0 in training.
        output: `sigmoid`: activations between 0 and 1.
    """

    hidden: tuple[PositiveInt, ...] = (64,)
    activation: Activation = "relu"
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    output: Literal["linear", "sigmoid"] = "linear"

    @property
    def probabilities(self) -> bool:
        return self.output == "sigmoid"

    def build(self, inputs: InputSpec, width: int) -> nn.Module:
        encoder = OneHot(inputs)
        layers = stack([encoder.width, *self.hidden, width], self.activation, self.dropout)
        return nn.Sequential(encoder, *layers, *([nn.Sigmoid()] if self.output == "sigmoid" else []))


@bottom_models.register("linear")
@dataclass(frozen=True, kw_only=True)
class LinearBottom(BottomModel):
    """One linear layer, as in vertical logistic regression; category columns go in one-hot."""

    bias: bool = True

    @property
    def probabilities(self) -> bool:
        return False

    def build(self, inputs: InputSpec, width: int) -> nn.Module:
        encoder = OneHot(inputs)
        return nn.Sequential(encoder, nn.Linear(encoder.width, width, bias=self.bias))


@bottom_models.register("wide_deep")
@dataclass(frozen=True, kw_only=True)
class WideDeep(BottomModel):
    """Embedded categories and numeric columns through a deep network (Cheng et al., Wide & Deep, 2016).

    The paper's wide part adds to the logit. Here it would tell the labels: the gradient of that logit is p - y,
    whose sign is the label. So the scalar wide part belongs to the label party, and `wide` here adds a weight
    vector for each category to the activation z instead.

    Attributes:
        embedding_dim: numbers for each category.
        hidden: widths of the deep network's hidden layers.
        wide: add a vector of the cut layer's width for each category, 0 at the start.
        sparse: sparse gradients for the tables, faster where categories are many; needs optimizer sgd without
            momentum or adagrad, without weight decay.
    """

    embedding_dim: PositiveInt = 16
    hidden: tuple[PositiveInt, ...] = (128, 128)
    activation: Activation = "relu"
    wide: bool = False
    sparse: bool = False

    @property
    def probabilities(self) -> bool:
        return False

    def build(self, inputs: InputSpec, width: int) -> nn.Module:
        if not inputs.cardinalities:
            raise ConfigError("bottom_model wide_deep embeds category columns, and there are none; use mlp")
        return _WideDeep(self, inputs, width)


class _WideDeep(nn.Module):
    def __init__(self, options: WideDeep, inputs: InputSpec, width: int) -> None:
        super().__init__()
        self.codes = Codes(inputs)
        require_memory(self.codes.total * (options.embedding_dim + width * options.wide))
        self.embedding = nn.Embedding(self.codes.total, options.embedding_dim, sparse=options.sparse)
        nn.init.normal_(self.embedding.weight, std=1 / math.sqrt(options.embedding_dim))
        deep_width = inputs.numeric + len(inputs.cardinalities) * options.embedding_dim
        self.deep = stack([deep_width, *options.hidden, width], options.activation)
        self.wide = nn.Embedding(self.codes.total, width, sparse=options.sparse) if options.wide else None
        if self.wide is not None:
            nn.init.zeros_(self.wide.weight)

    def forward(self, x_BF: Tensor) -> Tensor:
        codes_BC = self.codes(x_BF)
        embedded_BCE = self.embedding(codes_BC)
        z_Bd: Tensor = self.deep(torch.cat([x_BF[:, : self.codes.numeric], embedded_BCE.flatten(1)], dim=1))
        return z_Bd if self.wide is None else z_Bd + self.wide(codes_BC).sum(dim=1)


@bottom_models.register("cnn")
@dataclass(frozen=True, kw_only=True)
class Cnn(BottomModel):
    """Convolutions for images: each with ReLU, and 2x2 max-pooling while the image is large enough.

    Attributes:
        channels: output channels of the convolutions.
        kernel: height and width of the kernels; odd, so that the image keeps its size.
        flatten: send the last feature map itself, flattened, in place of a linear layer's output.
    """

    channels: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (16, 32)
    kernel: PositiveInt = 3
    flatten: bool = False

    @property
    def probabilities(self) -> bool:
        return False

    def build(self, inputs: InputSpec, width: int) -> nn.Module:
        if inputs.image is None or inputs.cardinalities:
            raise ConfigError(
                "bottom_model cnn needs images, and the data are no images or have category columns beside them; "
                "take a data source of images alone, such as digits, or use mlp"
            )
        if self.kernel % 2 == 0:
            raise ConfigError(f"bottom_model cnn, kernel: expected an odd number, got {self.kernel}")
        layers, size = self._convolutions(inputs.image)
        if self.flatten and size != width:
            raise ConfigError(
                f"bottom_model cnn with flatten: true sends {size} numbers a row, cut_layer.width is {width}; "
                f"write cut_layer.width: {size}, or leave flatten out"
            )
        head = [] if self.flatten else [nn.Linear(size, width)]
        return nn.Sequential(nn.Unflatten(1, inputs.image), *layers, nn.Flatten(), *head)

    def _convolutions(self, image: tuple[int, int, int]) -> tuple[list[nn.Module], int]:
        """The layers, and how many numbers an image has after them."""
        layers: list[nn.Module] = []
        channels_in, height, width = image
        for channels_out in self.channels:
            require_memory(channels_in * channels_out * self.kernel**2)
            layers += [nn.Conv2d(channels_in, channels_out, self.kernel, padding=self.kernel // 2), nn.ReLU()]
            if min(height, width) >= 2:
                layers.append(nn.MaxPool2d(2))
                height, width = height // 2, width // 2
            channels_in = channels_out
        return layers, channels_in * height * width
