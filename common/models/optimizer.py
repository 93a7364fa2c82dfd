"""Torch optimizers from the run file."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from cutlayer.common import config
from cutlayer.common.errors import ConfigError
from cutlayer.common.models.eager import eager


def mark_sparse(model: nn.Module) -> None:
    """Note on the parameters of sparse embeddings that their gradients are sparse, for `build_optimizer`."""
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.weight.sparse_gradient = module.sparse  # type: ignore[attr-defined]


def build_optimizer(choice: config.Optimizer, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer | None:
    """The optimizer of the run file; None where there is nothing to train, as with top model `sum`.

    Raises:
        ConfigError: an embedding has sparse gradients and the optimizer or its options cannot take them.
    """
    weights = list(parameters)
    if not weights:
        return None
    if any(getattr(weight, "sparse_gradient", False) for weight in weights):
        _prepare_for_sparse(choice)
    lr, weight_decay = choice.lr, choice.weight_decay
    match choice.name:
        case "sgd":
            return eager(torch.optim.SGD)(weights, lr=lr, weight_decay=weight_decay, momentum=choice.momentum)
        case "adam":
            return eager(torch.optim.Adam)(weights, lr=lr, weight_decay=weight_decay)
        case "adagrad":
            return eager(torch.optim.Adagrad)(weights, lr=lr, weight_decay=weight_decay)


def _prepare_for_sparse(choice: config.Optimizer) -> None:
    # Momentum would be kept as a sparse tensor that grows to the whole table, and that safetensors cannot hold.
    if choice.name == "adam" or choice.momentum or choice.weight_decay:
        raise ConfigError(
            "optimizer: embeddings with sparse: true are trained by adagrad or by sgd without momentum, and without "
            "weight_decay; change the optimizer, or write sparse: false"
        )
    # Adagrad makes sparse tensors from indices that torch made itself; it warns unless we say that we trust them.
    torch.sparse.check_sparse_tensor_invariants.disable()  # type: ignore[no-untyped-call]
