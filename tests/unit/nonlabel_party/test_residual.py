"""The attack that takes off what a row's own activation explains of its gradient.

Shape suffixes: B rows of the batch, d cut-layer width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cutlayer.common.errors import PluginError
from cutlayer.common.leakage import leak_auc
from cutlayer.nonlabel_party.attacks import attacks
from cutlayer.nonlabel_party.view import LabelGuess, StepView

B, d = 400, 3


def drawn(width: int = d, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Activations (B, width), and labels of which three in ten are positive and that lean towards them."""
    generator = torch.Generator().manual_seed(seed)
    z_Bd = torch.randn(B, width, generator=generator) / width**0.5
    y_B = (z_Bd.sum(dim=1) + torch.randn(B, generator=generator) > 1.0).long()
    return z_Bd, y_B


def game_and_labels(z_Bd: Tensor, y_B: Tensor) -> Tensor:
    """As GAFM's gradient: a smooth function of the sum that hides the classes, and labels moved to 1/2 + or - u."""
    total_B = z_Bd.sum(dim=1)
    u_B = 0.1 * torch.rand(B, generator=torch.Generator().manual_seed(9))
    soft_B = torch.where(y_B == 1, 0.5 + u_B, 0.5 - u_B)
    g_B = total_B.square() / 2 + (torch.sigmoid(total_B) - soft_B)
    return g_B[:, None].expand_as(z_Bd) / B


def guesses(z_Bd: Tensor, g_Bd: Tensor, name: str = "residual", **options: Any) -> Sequence[LabelGuess]:
    row_ids = tuple(f"r{row}" for row in range(len(g_Bd)))
    view = StepView(1, row_ids, z_Bd, z_Bd, g_Bd)
    return attacks.create(name, {"layers": ["cut"], **options}).observe(view)


@pytest.mark.parametrize("width", [1, d])
def test_labels_that_the_game_hides_show_in_what_is_left(width: int) -> None:
    z_Bd, y_B = drawn(width)
    g_Bd = game_and_labels(z_Bd, y_B)
    (plain,) = guesses(z_Bd, g_Bd, "spectral")
    (left,) = guesses(z_Bd, g_Bd)
    plain_auc, auc = (leak_auc(each.score_B, y_B.numpy()) for each in (plain, left))
    assert plain_auc is not None
    assert auc is not None
    assert max(plain_auc, 1 - plain_auc) < 0.8 < 0.9 < auc


@pytest.mark.parametrize("degree", [1, 5])
def test_it_is_least_squares(degree: int) -> None:
    z_Bd, y_B = drawn(1)
    g_Bd = game_and_labels(z_Bd, y_B)
    at, g = z_Bd[:, 0].double().numpy(), g_Bd[:, 0].double().numpy()
    left = g - np.polynomial.Polynomial.fit(at, g, degree)(at)
    (guess,) = guesses(z_Bd, g_Bd, degree=degree)
    score = guess.score_B.numpy()
    np.testing.assert_allclose(score * np.sign(score @ left), left - left.mean(), rtol=1e-6, atol=1e-12)


def test_noise_that_no_activation_explains_stays() -> None:
    z_Bd, y_B = drawn()
    noise_Bd = torch.randn(B, d, generator=torch.Generator().manual_seed(4))
    (guess,) = guesses(z_Bd, noise_Bd)
    auc = leak_auc(guess.score_B, y_B.numpy())
    assert auc is not None
    assert abs(auc - 0.5) < 0.1


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("equal", [True, False])
def test_any_scale_and_equal_activations_give_finite_scores(scale: float, equal: bool) -> None:
    z_Bd, y_B = drawn()
    g_Bd = game_and_labels(z_Bd, y_B)
    z_Bd = torch.full_like(z_Bd, scale) if equal else z_Bd * scale
    (guess,) = guesses(z_Bd, g_Bd)
    assert bool(torch.isfinite(guess.score_B).all())


def test_small_batches_get_no_guess() -> None:
    z_Bd, y_B = drawn()
    g_Bd = game_and_labels(z_Bd, y_B)
    assert guesses(z_Bd[:59], g_Bd[:59]) == []
    assert len(guesses(z_Bd[:60], g_Bd[:60])) == 1


@pytest.mark.parametrize("degree", [0, -1, "five", 1.5])
def test_a_degree_is_a_whole_number_from_1(degree: object) -> None:
    with pytest.raises(PluginError, match="degree"):
        attacks.create("residual", {"degree": degree})
