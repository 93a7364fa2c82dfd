"""Tensors as bytes: the same numbers come back, also where tensors share memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load, load_file
from torch import Tensor, nn

from cutlayer.common.models import save_model
from cutlayer.common.packing import pack

NUMBERS = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    "tensors",
    [
        {"one": NUMBERS, "same": NUMBERS},
        {"whole": NUMBERS, "end": NUMBERS[2:], "column": NUMBERS[:, 1]},
        {"first": NUMBERS[:2], "overlapping": NUMBERS[1:]},
        {"turned": NUMBERS.T, "repeated": NUMBERS[:1].expand(5, 4)},
        {
            "empty": torch.zeros(0, 4),
            "also empty": torch.zeros(0),
            "scalar": torch.tensor(7),
            "flag": torch.tensor(True),
        },
        {"learned": nn.Parameter(NUMBERS)},
    ],
    ids=lambda tensors: ", ".join(tensors),
)
def test_the_same_numbers_come_back(tensors: dict[str, Tensor]) -> None:
    before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    found = load(pack(tensors))
    assert found.keys() == before.keys()
    for name, tensor in before.items():
        assert torch.equal(found[name], tensor)
        assert torch.equal(tensors[name], tensor)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 4), nn.Linear(4, 4)
        self.down.weight = self.up.weight


def test_a_model_with_tied_weights_is_saved(tmp_path: Path) -> None:
    model = Tied()
    save_model(tmp_path / "model", model)
    saved = load_file(tmp_path / "model" / "model.safetensors")
    assert torch.equal(saved["up.weight"], model.up.weight)
    assert torch.equal(saved["down.weight"], model.up.weight)
