"""common/models/eager.py: torch's optimizers without what is for torch.compile, to the bit."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, Optimizer

from cutlayer.common.checkpoints import optimizer_tensors, restore_optimizer
from cutlayer.common.models import eager

KINDS: list[tuple[type[Any], dict[str, float]]] = [
    (SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    (Adam, {"lr": 0.1, "weight_decay": 0.01}),
    (Adagrad, {"lr": 0.1}),
]


def trained(optimizer: Optimizer, model: nn.Module, steps: int) -> list[bytes]:
    """The weights after so many steps."""
    x_BF = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.0, 3.0]])
    for _ in range(steps):
        optimizer.zero_grad()
        model(x_BF).square().sum().backward()
        optimizer.step()
    return [weight.detach().numpy().tobytes() for weight in model.parameters()]


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_weights_state_and_options_are_torchs(kind: type[Any], options: dict[str, float]) -> None:
    ours, torchs = model(), model()
    one, other = eager(kind)(ours.parameters(), **options), kind(torchs.parameters(), **options)
    assert trained(one, ours, 5) == trained(other, torchs, 5)
    assert one.state_dict()["param_groups"] == other.state_dict()["param_groups"]
    state, expected = optimizer_tensors(one), optimizer_tensors(other)
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in expected)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_goes_on_from_a_saved_state(kind: type[Any], options: dict[str, float]) -> None:
    undisturbed, saved, restored = model(), model(), model()
    expected = trained(kind(undisturbed.parameters(), **options), undisturbed, 6)
    first = eager(kind)(saved.parameters(), **options)
    trained(first, saved, 3)
    restored.load_state_dict(saved.state_dict())
    second = eager(kind)(restored.parameters(), **options)
    restore_optimizer(second, optimizer_tensors(first))
    assert trained(second, restored, 3) == expected


def test_a_step_is_no_part_of_the_graph() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    eager(SGD)([weight], lr=0.5).step()
    assert weight.requires_grad
    assert weight.is_leaf
    assert torch.is_grad_enabled()


def test_torchs_compiler_is_not_loaded() -> None:
    code = """
import sys, torch
from torch.optim import SGD, Adagrad, Adam
from cutlayer.common.models import eager
for kind in (SGD, Adagrad, Adam):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = eager(kind)([weight], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        weight.sum().backward()
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
print("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
