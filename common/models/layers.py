"""Parts of which models are made.

Shape suffixes: B rows of the batch, F features, C category columns, H numeric columns and one column a category.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from cutlayer.common.errors import ConfigError
from cutlayer.common.progress import human_bytes
from cutlayer.common.tables import InputSpec

ONE_HOT_LIMIT = 20_000  # columns; a batch of 1024 rows then takes 80 MB

Activation = Literal["relu", "tanh", "leaky_relu"]
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "leaky_relu": nn.LeakyReLU}


def require_memory(weights: int) -> None:
    """Refuse a model that this machine has no room for: it would be killed without a word.

    Raises:
        ConfigError: `weights` float32 numbers, three times as a model is tried on twins, are more than all its memory.
    """
    needed, memory = 3 * 4 * weights, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory:
        raise ConfigError(
            f"a model of {weights:,} weights takes {human_bytes(needed)} to make, and this machine has "
            f"{human_bytes(memory)}; make its layers smaller"
        )


def stack(widths: Sequence[int], activation: Activation, dropout: float = 0.0) -> nn.Sequential:
    """Linear layers from `widths[0]` to `widths[-1]`; activation and dropout between them, nothing after the last.

    Raises:
        ConfigError: they are larger than this machine's memory.
    """
    require_memory(sum(width_in * width_out for width_in, width_out in pairwise(widths)))
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), ACTIVATIONS[activation]()]
        layers += [nn.Dropout(dropout)] if dropout else []
    last_linear = max(i for i, layer in enumerate(layers) if isinstance(layer, nn.Linear))
    return nn.Sequential(*layers[: last_linear + 1])


class Codes(nn.Module):
    """x (B, F) -> indices (B, C) into one table that holds the categories of all columns, column after column."""

    def __init__(self, inputs: InputSpec) -> None:
        super().__init__()
        self.numeric = inputs.numeric
        self.total = sum(inputs.cardinalities)
        starts_C = torch.tensor([0, *accumulate(inputs.cardinalities)][: len(inputs.cardinalities)], dtype=torch.int64)
        self.register_buffer("starts_C", starts_C, persistent=False)

    def forward(self, x_BF: Tensor) -> Tensor:
        return x_BF[:, self.numeric :].long() + self.get_buffer("starts_C")


class OneHot(nn.Module):
    """x (B, F) -> (B, H): numeric columns as they are, then one column for each category.

    Raises:
        ConfigError: more than ONE_HOT_LIMIT categories.
    """

    def __init__(self, inputs: InputSpec) -> None:
        super().__init__()
        self.codes = Codes(inputs)
        self.width = inputs.numeric + self.codes.total
        if self.codes.total > ONE_HOT_LIMIT:
            raise ConfigError(
                f"the category columns have {self.codes.total:,} categories, too many to give each a column "
                f"(at most {ONE_HOT_LIMIT:,}); use bottom_model: wide_deep, which embeds them"
            )

    def forward(self, x_BF: Tensor) -> Tensor:
        numeric_BF = x_BF[:, : self.codes.numeric]
        if not self.codes.total:
            return numeric_BF
        hot_BH = x_BF.new_zeros(len(x_BF), self.codes.total).scatter_(1, self.codes(x_BF), 1.0)
        return torch.cat([numeric_BF, hot_BH], dim=1)


def first_layer(model: nn.Module) -> nn.Module:
    """The layer of a bottom model whose output attacks call `first`.

    It is what the model's attribute `first_layer` names, if it has one (make it a property, so that the layer is
    not registered twice); else the first leaf module, in the order of registration, that has parameters and is no
    embedding, or the activation that follows it in the same nn.Sequential: as in the papers, a layer ends with its
    activation.

    Raises:
        ConfigError: there is none.
    """
    named = getattr(model, "first_layer", None)
    if isinstance(named, nn.Module):
        return named
    for module in model.modules():
        is_leaf = not any(module.children()) or parametrize.is_parametrized(module)
        if (
            is_leaf
            and any(True for _ in module.parameters())
            and not isinstance(module, nn.Embedding | nn.EmbeddingBag)
        ):
            return _activation_after(module, model) or module
    raise ConfigError(
        f"the bottom model ({type(model).__name__}) has no layer that could be called its first: no module with "
        "parameters but embeddings. Give it a property `first_layer`, or write `layers: [cut]` for the attacks"
    )


def _activation_after(layer: nn.Module, model: nn.Module) -> nn.Module | None:
    for parent in model.modules():
        for module, following in pairwise(parent if isinstance(parent, nn.Sequential) else ()):
            if module is layer and type(following).__module__ == nn.ReLU.__module__:
                return following
    return None
