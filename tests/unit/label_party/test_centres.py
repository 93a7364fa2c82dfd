"""The mean and the median attack with known class centres, against distances that are worked out row by row."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cutlayer.common.leakage import leak_auc
from cutlayer.label_party import centres
from cutlayer.label_party.centres import mean_scores, median_scores

numbers = st.sampled_from([-2.0, -0.5, 0.0, 0.0, 0.25, 1.0, 1.0, 3.0])
batches = st.integers(1, 3).flatmap(
    lambda d: st.lists(st.tuples(st.integers(0, 1), st.lists(numbers, min_size=d, max_size=d)), min_size=4, max_size=14)
)


def row_by_row(g_Bd: Tensor, y_B: Tensor, *, median: bool) -> list[float]:
    found = []
    for g_d, label in zip(g_Bd, y_B.tolist(), strict=True):
        distances = []
        for other in (0, 1):
            g_Kd = g_Bd[y_B == other]
            centre_d = g_Kd.quantile(0.5, dim=0) if median else g_Kd.mean(dim=0)
            spread = math.pi / 2 if median else 1
            stretch = math.sqrt((len(g_Kd) + spread) / (len(g_Kd) + spread - 2)) if other == label else 1
            distances.append(float((g_d - centre_d).norm()) * stretch)
        found.append(distances[0] - distances[1])
    return found


@given(batches)
def test_a_row_is_compared_with_both_centres(rows: list[tuple[int, list[float]]]) -> None:
    y_B = torch.tensor([label for label, _ in rows])
    g_Bd = torch.tensor([g for _, g in rows], dtype=torch.float64)
    for scores, median in ((mean_scores(g_Bd, y_B), False), (median_scores(g_Bd, y_B), True)):
        if 2 <= int(y_B.sum()) <= len(y_B) - 2:
            assert scores is not None
            assert scores.tolist() == pytest.approx(row_by_row(g_Bd, y_B, median=median), abs=1e-9)
        else:
            assert scores is None


def mean_auc(scores: object, batches: list[Tensor], y_B: Tensor) -> float:
    return sum(leak_auc(scores(g_Bd, y_B), y_B) or 0.0 for g_Bd in batches) / len(batches)  # type: ignore[operator]


@pytest.mark.parametrize("most_numbers", [1 << 14, 1 << 11])
def test_noise_in_a_wide_layer_tells_nothing(monkeypatch: pytest.MonkeyPatch, most_numbers: int) -> None:
    """Without the stretch each row is nearest to the centre that holds it: an AUC of 0.9 here."""
    monkeypatch.setattr(centres, "_MOST_NUMBERS", most_numbers)
    generator = torch.Generator().manual_seed(0)
    y_B = (torch.arange(64) < 12).long()
    noise = [torch.randn(64, 256, generator=generator) for _ in range(40)]
    assert mean_auc(mean_scores, noise, y_B) == pytest.approx(0.5, abs=0.05)
    assert mean_auc(median_scores, noise, y_B) == pytest.approx(0.5, abs=0.05)
    shifted = [g_Bd + 0.3 * y_B[:, None] for g_Bd in noise]
    assert mean_auc(mean_scores, shifted, y_B) > 0.95
    assert mean_auc(median_scores, shifted, y_B) > 0.85


def test_tiny_gradients_are_told_apart_as_well_as_large_ones() -> None:
    y_B = torch.tensor([1, 0, 0, 1, 0])
    g_Bd = torch.where(y_B[:, None] == 1, -3e-30, 1e-30)
    for scores in (mean_scores, median_scores):
        assert mean_auc(scores, [g_Bd], y_B) == 1.0
        assert mean_auc(scores, [g_Bd * 0], y_B) == 0.5
