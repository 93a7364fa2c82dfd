"""The discriminator of a GAN: a small network with clipped weights that tells labels from predictions.

Shape suffixes: B rows of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from cutlayer.common.checkpoints import Tensors, below, optimizer_tensors, prefixed, restore_optimizer
from cutlayer.common.config import Choice
from cutlayer.common.models import build_top, eager


class Descent:
    """Adam on the parameters of a network, which may have none."""

    def __init__(self, network: nn.Module, rate: float) -> None:
        self.parameters = list(network.parameters())
        self._optimizer = eager(torch.optim.Adam)(self.parameters, lr=rate) if self.parameters else None

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Move the parameters against `gradients`."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        if self._optimizer:
            self._optimizer.step()

    def tensors(self) -> Tensors:
        """What a checkpoint must hold."""
        return optimizer_tensors(self._optimizer)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        restore_optimizer(self._optimizer, tensors)


class Critic:
    """D: one number a row -> one number a row; leaky ReLU after each layer, also the last (the authors' code).

    Args:
        hidden: widths of the hidden layers.
        clip: no weight is ever further from 0.
    """

    def __init__(self, hidden: Sequence[int], *, clip: float, rate: float, seed: int) -> None:
        choice = Choice.model_validate({"name": "mlp", "hidden": list(hidden), "activation": "leaky_relu"})
        self.net = nn.Sequential(build_top(choice, 1, 1, seed), nn.LeakyReLU())
        self._clip = clip
        self._descent = Descent(self.net, rate)

    def ascend(self, real_B1: Tensor, fake_B1: Tensor) -> float:
        """Take a step up E[D(real)] - E[D(fake)], clip the weights; its value before. If not finite, no step."""
        both = self.net(torch.cat([real_B1, fake_B1]))
        gap = both[: len(real_B1)].mean() - both[len(real_B1) :].mean()
        value = float(gap.detach())
        if math.isfinite(value):
            self._descent.step(torch.autograd.grad(-gap, self._descent.parameters))
            with torch.no_grad():
                for weight in self._descent.parameters:
                    weight.clamp_(-self._clip, self._clip)
        return value

    def loss(self, fake_B1: Tensor) -> Tensor:
        """-E[D(fake)], which the generator descends; a scalar."""
        scores_B1: Tensor = self.net(fake_B1)
        return -scores_B1.mean()

    def tensors(self) -> Tensors:
        """What a checkpoint must hold."""
        return prefixed("weights", self.net.state_dict()) | prefixed("optimizer", self._descent.tensors())

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self.net.load_state_dict(below("weights", tensors))
        self._descent.restore(below("optimizer", tensors))
