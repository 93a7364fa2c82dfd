"""Models from the run file: built-in ones by name, the user's own by `package.module:attribute`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from cutlayer.common.config import Choice
from cutlayer.common.errors import PluginError
from cutlayer.common.models.base import BottomModel, TopModel, bottom_models, top_models
from cutlayer.common.models.checks import Trial, build_checked, feature_trial
from cutlayer.common.models.optimizer import mark_sparse
from cutlayer.common.registry import Registry
from cutlayer.common.tables import InputSpec

M = TypeVar("M", BottomModel, TopModel)


def build_bottom(choice: Choice, inputs: InputSpec, width: int, seed: int) -> nn.Module:
    """A party's bottom model, x (B, inputs.width) -> z (B, width), in training mode.

    Args:
        choice: `bottom_model` of the run file. A class or function of the user's own that is no BottomModel is
            called as `(inputs.width, width, **options)`.
        seed: all that initial weights depend on; torch's own generator is left as it was.

    Raises:
        PluginError: there is no such model or option, it cannot be built, or what it gives has the wrong form.
        ConfigError: it does not fit the features or the width, mixes rows, or has nothing to train.
    """
    make = _maker(bottom_models, choice, (inputs.width, width), lambda plugin: plugin.build(inputs, width))
    model = build_checked(make, feature_trial(inputs), width, seed, f"bottom_model {choice.name!r}")
    mark_sparse(model)
    return model


def gives_probabilities(choice: Choice) -> bool | None:
    """Whether each activation of a bottom model is between 0 and 1; None where it does not say so.

    Raises:
        PluginError: there is no such model or option.
    """
    found: Any = bottom_models.get(choice.name)
    if not (isinstance(found, type) and issubclass(found, BottomModel)):
        return None
    return bottom_models.create(choice.name, choice.options).probabilities


def build_top(choice: Choice, width: int, outputs: int, seed: int) -> nn.Module:
    """The label party's top model, aggregated activations (B, width) -> logits (B, outputs), in training mode.

    Args and errors are those of `build_bottom`, with `top_model` and TopModel.
    """
    make = _maker(top_models, choice, (width, outputs), lambda plugin: plugin.build(width, outputs))
    z_Bd = torch.randn(3, width, generator=torch.Generator().manual_seed(1)).requires_grad_()
    return build_checked(make, Trial(z_Bd[[0, 1]], z_Bd[[0, 2]]), outputs, seed, f"top_model {choice.name!r}")


def _maker(
    registry: Registry[M], choice: Choice, widths: tuple[int, int], build: Callable[[M], nn.Module]
) -> Callable[[], nn.Module]:
    found: Any = registry.get(choice.name)
    if dataclasses.is_dataclass(found) and hasattr(found, "build"):
        return partial(build, registry.create(choice.name, choice.options))
    if not callable(found):
        raise PluginError(f"{registry.kind} {choice.name!r} is {type(found).__name__}, expected a class or a function")
    return partial(found, *widths, **choice.options)
