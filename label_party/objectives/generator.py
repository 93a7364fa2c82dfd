"""The generator: the label party's top model with a sigmoid at its end, whose output is the prediction.

Han and Guan, "GAN-based Vertical Federated Learning for Label Protection in Binary Classification", 2023. Not of the
paper: the monotone generator. The adversary alone cannot tell a model from one that is upside down, and training may
end with either. The cross-entropy makes the sum of a row's activations grow with the label; a generator that grows with
that sum cannot end upside down. Non-negative weights alone are not enough where rows have several activations: those
that count most in the generator may fall while the sum grows. So it gets the sum, and positive weights: at 0 a hidden
unit would be lost for good, and when all are, the generator says the same of every row.
Shape suffixes: B rows of the batch, d width of the aggregated activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from cutlayer.common.config import Choice
from cutlayer.common.errors import ConfigError
from cutlayer.common.models import build_top
from cutlayer.common.registry import import_attribute

Transformation = Callable[[Tensor], Tensor]

_DEFAULT = Choice.model_validate({"name": "mlp", "hidden": [16], "activation": "leaky_relu"})
_NAMED: dict[str, Transformation] = {"identity": lambda f_Bd: f_Bd, "relu": torch.relu}
_LEAST_WEIGHT = 1e-3  # of a monotone generator
_GROWING = (nn.Sequential, nn.Linear, nn.Identity, nn.Dropout, nn.ReLU, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus)


class Generator(nn.Module):
    """Aggregated activations (B, d) -> logits (B, 1) of the prediction.

    Args:
        net: from transformed activations, or their sum, to logits.
        transform: F, from aggregated activations to what the generator and the cross-entropy get.
        monotone: `net` gets a row's sum, and keeps its weights positive from the start.

    Raises:
        ConfigError: `monotone`, but `net` has layers that need not grow with what they get.
    """

    orientation: Tensor  # 1, or -1 where the predictions are turned round

    def __init__(self, net: nn.Module, transform: Transformation, *, monotone: bool) -> None:
        super().__init__()
        self.net = net
        self.transform = transform
        self.register_buffer("orientation", torch.ones(()))
        self._monotone = monotone
        if monotone:
            _require_growing(net)
            for weight in self._matrices():
                weight.data.abs_().clamp_(min=_LEAST_WEIGHT)

    def forward(self, aggregate_Bd: Tensor) -> Tensor:
        return self.logits(self.transform(aggregate_Bd)) * self.orientation

    def logits(self, f_Bd: Tensor) -> Tensor:
        """Of transformed activations, (B, 1), before they are turned round."""
        logits_B1: Tensor = self.net(f_Bd.sum(dim=1, keepdim=True) if self._monotone else f_Bd)
        return logits_B1

    @torch.no_grad()
    def constrain(self) -> None:
        """Called after each step of the optimizer."""
        for weight in self._matrices() if self._monotone else ():
            weight.clamp_(min=_LEAST_WEIGHT)

    def _matrices(self) -> Iterator[nn.Parameter]:
        return (weight for weight in self.net.parameters() if weight.dim() > 1)


def build_generator(choice: Choice | None, width: int, transformation: str, *, monotone: bool, seed: int) -> Generator:
    """The generator of a run file.

    Args:
        choice: `top_model` of the run file; None for one hidden layer of 16 with leaky ReLU.
        width: d.
        transformation: identity, relu, or a function of the user's own as package.module:attribute.

    Raises:
        UserError: the model or the transformation does not exist, or does not fit.
    """
    net = build_top(choice or _DEFAULT, 1 if monotone else width, 1, seed)
    return Generator(net, _transformation(transformation, width), monotone=monotone)


def _require_growing(net: nn.Module) -> None:
    for name, layer in net.named_modules():
        if not isinstance(layer, _GROWING):
            raise ConfigError(
                f"defense gafm: the generator is the top_model, whose layer {name or 'itself'} is "
                f"{type(layer).__name__}: positive weights do not keep that from turning predictions round. Use "
                "top_model mlp, linear or sum, or write `generator: free`"
            )


def _transformation(name: str, width: int) -> Transformation:
    if name in _NAMED:
        return _NAMED[name]
    where = f"defense gafm, transformation {name!r}"
    if ":" not in name:
        raise ConfigError(f"{where}: expected identity, relu or your own as package.module:function")
    found = import_attribute(name)
    rows_Bd = torch.linspace(-2, 2, 3 * width).reshape(3, width)
    try:
        out, alone = found(rows_Bd), found(rows_Bd[:1])
        fits = out.shape == rows_Bd.shape and out.dtype == rows_Bd.dtype and torch.allclose(out[:1], alone)
    except Exception as error:
        raise ConfigError(f"{where} fails on 3 rows of {width} numbers: {type(error).__name__}: {error}") from error
    if not fits:
        raise ConfigError(f"{where}: expected (B, {width}) float32 for (B, {width}), each row by itself")
    transform: Transformation = found
    return transform
