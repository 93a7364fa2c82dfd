"""Torch's optimizers for code that is never compiled."""

from __future__ import annotations

import inspect
from typing import TypeVar

import torch
from torch.optim import Optimizer

Kind = TypeVar("Kind", bound=Optimizer)

_WRAPPED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


def eager(kind: type[Kind]) -> type[Kind]:
    """`kind` with the same arithmetic, options and state, but without the wrappers around its methods.

    They keep torch.compile out, and for that import all of it with the first optimizer: a second of the start of a
    party. `step` computes no gradients, as within its wrapper.
    """
    plain = {name: inspect.unwrap(getattr(kind, name)) for name in _WRAPPED}
    return type(kind.__name__, (kind,), plain | {"step": torch.no_grad()(inspect.unwrap(kind.step))})
