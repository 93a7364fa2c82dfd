"""The gradient at the output of a bottom model's first layer, one row per example.

Shape suffixes: B rows of the batch, d cut-layer width, D width of the first layer's output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cutlayer.common.errors import ConfigError
from cutlayer.common.models import first_layer


class FirstLayerProbe:
    """Sees the first layer's output in the party's own forward passes.

    Row j of what `pull_back` gives is the gradient of example j alone, because no bottom model mixes rows.

    Raises:
        ConfigError: the model has no first layer.
    """

    def __init__(self, bottom: nn.Module) -> None:
        layer = first_layer(bottom)
        self._name = type(layer).__name__
        self._output: object = None
        self._hooks = [bottom.register_forward_pre_hook(self._forget), layer.register_forward_hook(self._capture)]

    def pull_back(self, z_Bd: Tensor, g_Bd: Tensor) -> Tensor:
        """The gradient (B, D) at the first layer's output where `g_Bd` is that at the cut layer; a copy.

        Args:
            z_Bd: the model's output in its last forward pass, with its graph, which is kept.

        Raises:
            ConfigError: the first layer's output is no tensor with one row per example.
        """
        output = self._output
        if not isinstance(output, Tensor) or not output.shape or len(output) != len(z_Bd):
            raise ConfigError(
                f"the bottom model's first layer ({self._name}) does not give one row for each of the "
                f"{len(z_Bd)} rows of the batch, so there is no gradient of one row; give the model a property "
                "`first_layer` that names another layer, or write `layers: [cut]` for the attacks"
            )
        (g_BD,) = torch.autograd.grad(z_Bd, output, grad_outputs=g_Bd, retain_graph=True)
        return g_BD.detach().clone().reshape(len(g_BD), -1)

    def close(self) -> None:
        """Stop looking."""
        for hook in self._hooks:
            hook.remove()
        self._output = None

    def _forget(self, bottom: nn.Module, inputs: Any) -> None:
        self._output = None

    def _capture(self, layer: nn.Module, inputs: Any, output: Any) -> Any:
        if self._output is not None:  # an activation that the model uses again, further on
            return output
        self._output = output
        # The model goes on with a copy: a later layer that works in place must not change what was captured.
        return output.clone() if isinstance(output, Tensor) else output
