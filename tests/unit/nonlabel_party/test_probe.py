"""The probe gives each row its own gradient at the first layer, and leaves the party's training as it was."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from cutlayer.common.config import Choice
from cutlayer.common.errors import ConfigError
from cutlayer.common.models import build_bottom
from cutlayer.common.tables import InputSpec
from cutlayer.nonlabel_party.probe import FirstLayerProbe


def rowwise(first: nn.Module, rest: nn.Module, x_BF: Tensor, g_Bd: Tensor) -> Tensor:
    """The gradient at the output of `first`, from one backward pass for each row."""
    rows = []
    for x_F, g_d in zip(x_BF, g_Bd, strict=True):
        output = first(x_F[None]).detach().requires_grad_()
        rest(output.clone()).backward(g_d[None])
        assert output.grad is not None
        rows.append(output.grad.flatten())
    return torch.stack(rows)


RELU = nn.ReLU()


@pytest.mark.parametrize(
    ("layers", "first"),
    [
        ([nn.Linear(4, 5)], 1),
        ([nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)], 2),
        ([nn.Linear(4, 5), RELU, nn.Linear(5, 3), RELU, nn.Linear(3, 3)], 2),
        ([nn.Linear(4, 5), nn.LayerNorm(5), nn.ReLU(inplace=True), nn.Linear(5, 3)], 1),
        ([nn.Linear(4, 5), nn.ReLU(), nn.Hardtanh(inplace=True), nn.Linear(5, 3)], 2),
        ([nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)], 3),
    ],
    ids=["one layer", "relu", "one relu twice", "layer norm", "in place", "feature map"],
)
def test_pull_back_is_the_gradient_row_by_row(layers: list[nn.Module], first: int) -> None:
    bottom = nn.Sequential(*layers)
    x_BF = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    probe = FirstLayerProbe(bottom)
    z_Bd = bottom(x_BF)
    g_Bd = torch.randn(z_Bd.shape, generator=torch.Generator().manual_seed(2))
    g_BD = probe.pull_back(z_Bd, g_Bd)
    probe.close()
    assert g_BD.ndim == 2
    assert torch.allclose(g_BD, rowwise(bottom[:first], bottom[first:], x_BF, g_Bd), atol=1e-6)


def test_each_forward_pass_counts_for_itself() -> None:
    bottom = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    probe = FirstLayerProbe(bottom)
    bottom(torch.randn(9, 4))
    z_Bd = bottom(torch.randn(2, 4))
    assert probe.pull_back(z_Bd, torch.ones(2, 3)).shape == (2, 5)


def test_what_it_gives_is_a_copy_without_a_graph() -> None:
    bottom = build_bottom(Choice(name="linear"), InputSpec(4), 3, seed=1)
    probe = FirstLayerProbe(bottom)
    g_Bd = torch.randn(5, 3)
    g_BD = probe.pull_back(bottom(torch.randn(5, 4)), g_Bd)
    assert torch.equal(g_BD, g_Bd)
    assert not g_BD.requires_grad
    assert g_BD.data_ptr() != g_Bd.data_ptr()


def test_training_goes_on_with_the_same_bits() -> None:
    gradients = []
    for looks in (False, True):
        bottom = build_bottom(Choice(name="mlp", hidden=[6], dropout=0.3), InputSpec(4), 3, seed=1)
        torch.manual_seed(2)
        x_BF, g_Bd = torch.randn(5, 4), torch.randn(5, 3)
        probe = FirstLayerProbe(bottom) if looks else None
        z_Bd = bottom(x_BF)
        if probe:
            probe.pull_back(z_Bd, g_Bd)
            probe.pull_back(z_Bd, 2 * g_Bd)
            assert all(parameter.grad is None for parameter in bottom.parameters())
        z_Bd.backward(g_Bd)
        gradients.append([z_Bd.detach(), *(parameter.grad for parameter in bottom.parameters())])
    assert all(map(torch.equal, *gradients))


def test_a_closed_probe_sees_nothing() -> None:
    bottom = build_bottom(Choice(name="mlp"), InputSpec(4), 3, seed=1)
    probe = FirstLayerProbe(bottom)
    probe.close()
    z_Bd = bottom(torch.randn(5, 4))
    with pytest.raises(ConfigError):
        probe.pull_back(z_Bd, z_Bd)


class Tokens(nn.Module):
    """Treats a row as two tokens of two features, one below the other."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x_BF: Tensor) -> Tensor:
        out = self.layer(x_BF.reshape(-1, 2))
        return (out if isinstance(out, Tensor) else out[0]).reshape(len(x_BF), -1)


@pytest.mark.parametrize("layer", [nn.Linear(2, 3), nn.LSTM(2, 3)])
def test_a_layer_without_one_row_per_example_is_refused(layer: nn.Module) -> None:
    bottom = Tokens(layer)
    probe = FirstLayerProbe(bottom)
    z_Bd = bottom(torch.randn(5, 4))
    name = type(layer).__name__
    with pytest.raises(ConfigError, match=rf"first layer \({name}\) does not give one row for each of the 5 rows"):
        probe.pull_back(z_Bd, torch.ones_like(z_Bd))


def test_a_model_without_a_first_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"write `layers: \[cut\]`"):
        FirstLayerProbe(nn.Embedding(3, 2))
