"""The attack that compares a row's gradient with those of rows with like activations.

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

B, d = 1000, 3


def drawn(width: int = d, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Activations (B, width), and labels of which three in ten are positive and that lean towards them."""
    generator = torch.Generator().manual_seed(seed)
    z_Bd = torch.randn(B, width, generator=generator) / width**0.5
    y_B = (z_Bd.sum(dim=1) + torch.randn(B, generator=generator) > 1.0).long()
    return z_Bd, y_B


def game_and_labels(z_Bd: Tensor, y_B: Tensor) -> Tensor:
    """As GAFM's gradient: labels 1/2 + or - u, and a smooth function of the sum so that class means meet."""
    total_B, positive_B = z_Bd.sum(dim=1), y_B == 1
    u_B = 0.1 * torch.rand(B, generator=torch.Generator().manual_seed(9))
    labels_B = torch.sigmoid(total_B) - torch.where(positive_B, 0.5 + u_B, 0.5 - u_B)
    apart, totals_apart = (part_B[positive_B].mean() - part_B[~positive_B].mean() for part_B in (labels_B, total_B))
    g_B = labels_B - total_B * apart / totals_apart
    return g_B[:, None].expand_as(z_Bd) / B


def guesses(z_Bd: Tensor, g_Bd: Tensor, name: str = "neighbours", **options: Any) -> Sequence[LabelGuess]:
    row_ids = tuple(f"r{row}" for row in range(len(g_Bd)))
    view = StepView(1, row_ids, z_Bd, z_Bd, g_Bd)
    return attacks.create(name, {"layers": ["cut"], **options}).observe(view)


@pytest.mark.parametrize("width", [1, d])
def test_labels_that_the_game_hides_show_among_like_rows(width: int) -> None:
    z_Bd, y_B = drawn(width)
    g_Bd = game_and_labels(z_Bd, y_B)
    plain, found = (leak_auc(guesses(z_Bd, g_Bd, name)[0].score_B, y_B.numpy()) for name in ("spectral", "neighbours"))
    assert plain is not None
    assert found is not None
    assert max(plain, 1 - plain) < 0.7 < 0.9 < found


@pytest.mark.parametrize("wanted", [3, 8, 127, 1000])
def test_neighbours_by_hand(wanted: int) -> None:
    z_Bd, y_B = drawn()
    g_Bd = game_and_labels(z_Bd, y_B)
    reach = (min(wanted, B // 4) - 1) // 2
    order = z_Bd.double().sum(dim=1).numpy().argsort(kind="stable")
    g = g_Bd.double().sum(dim=1).numpy()
    expected = np.empty(B)
    for place, row in enumerate(order):
        near = g[order[max(place - reach, 0) : place + reach + 1]]
        expected[row] = (near.min() + near.max()) / 2 - g[row]
    (guess,) = guesses(z_Bd, g_Bd, neighbours=wanted)
    np.testing.assert_allclose(guess.score_B.numpy(), expected, rtol=1e-12, atol=1e-15)


def test_noise_tells_nothing() -> None:
    """Neighbours share their middle, so a batch tells less of chance than its rows are many."""
    aucs = []
    for seed in range(20):
        z_Bd, y_B = drawn(seed=seed)
        (guess,) = guesses(z_Bd, torch.randn(B, d, generator=torch.Generator().manual_seed(100 + seed)))
        aucs.append(leak_auc(guess.score_B, y_B.numpy()) or 0.0)
    assert abs(np.mean(aucs) - 0.5) < 4 * np.std(aucs) / len(aucs) ** 0.5 < 0.05


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("equal", [True, False])
def test_any_scale_and_equal_activations_give_finite_scores(scale: float, equal: bool) -> None:
    z_Bd, y_B = drawn()
    g_Bd = scale * game_and_labels(z_Bd, y_B)
    z_Bd = torch.full_like(z_Bd, scale) if equal else z_Bd * scale
    (guess,) = guesses(z_Bd, g_Bd)
    assert bool(torch.isfinite(guess.score_B).all())


def test_small_batches_get_no_guess() -> None:
    z_Bd, y_B = drawn()
    g_Bd = game_and_labels(z_Bd, y_B)
    assert guesses(z_Bd[:11], g_Bd[:11]) == []
    assert len(guesses(z_Bd[:12], g_Bd[:12])) == 1


@pytest.mark.parametrize("option", [{"neighbours": 2}, {"neighbours": "many"}, {"layers": ["first"]}], ids=str)
def test_wrong_options_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(PluginError, match=next(iter(option))):
        guesses(*drawn(), **option)
