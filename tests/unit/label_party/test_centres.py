"""The mean and the median attack with known class centres, against distances that are worked out row by row."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cutlayer.common.leakage import leak_auc
from cutlayer.label_party import centres
from cutlayer.label_party.centres import centre_scores

numbers = st.sampled_from([-2.0, -0.5, 0.0, 0.0, 0.25, 1.0, 1.0, 3.0])
batches = st.integers(1, 3).flatmap(
    lambda d: st.lists(st.tuples(st.integers(0, 1), st.lists(numbers, min_size=d, max_size=d)), min_size=4, max_size=14)
)


def row_by_row(g_Bd: Tensor, y_B: Tensor, *, median: bool) -> list[float] | None:
    labels = y_B.tolist()
    half = [labels[:row].count(label) % 2 for row, label in enumerate(labels)]
    found = []
    for row, g_d in enumerate(g_Bd):
        distances = []
        for label in (0, 1):
            if labels.count(label) < 2:
                return None
            others = [other for other in range(len(labels)) if half[other] != half[row] and labels[other] == label]
            centre_d = g_Bd[others].quantile(0.5, dim=0) if median else g_Bd[others].mean(dim=0)
            distances.append(float((g_d - centre_d).norm()))
        found.append(distances[0] - distances[1])
    return found


@given(batches)
def test_a_row_is_compared_with_the_centres_of_the_other_half(rows: list[tuple[int, list[float]]]) -> None:
    y_B = torch.tensor([label for label, _ in rows])
    g_Bd = torch.tensor([g for _, g in rows], dtype=torch.float64)
    for name, scores in centre_scores(g_Bd, y_B).items():
        median = name == "median"
        expected = row_by_row(g_Bd, y_B, median=median)
        assert (scores is None) == (expected is None)
        assert scores is None or scores.tolist() == pytest.approx(expected, abs=1e-9)


def mean_aucs(batches: list[Tensor], y_B: Tensor) -> dict[str, float]:
    found: dict[str, float] = {}
    for g_Bd in batches:
        for name, score_B in centre_scores(g_Bd, y_B).items():
            assert score_B is not None
            found[name] = found.get(name, 0.0) + (leak_auc(score_B, y_B) or 0.0) / len(batches)
    return found


@pytest.mark.parametrize("width", [1, 256])
@pytest.mark.parametrize("tails", [0.0, 1.0])
def test_noise_alone_tells_nothing(monkeypatch: pytest.MonkeyPatch, width: int, tails: float) -> None:
    """With centres of all rows it would be 1.0 at width 256, with each row left out of its own 0.0 to 0.4."""
    monkeypatch.setattr(centres, "_MOST_NUMBERS", 1 << 12)
    generator = torch.Generator().manual_seed(0)
    y_B = (torch.randperm(64, generator=generator) < 16).long()
    lengths = [(tails * torch.randn(64, 1, generator=generator)).exp() for _ in range(100)]
    noise = [length_B1 * torch.randn(64, width, generator=generator) for length_B1 in lengths]
    assert mean_aucs(noise, y_B) == pytest.approx({"mean": 0.5, "median": 0.5}, abs=0.025)


def test_classes_that_lie_apart_are_told_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    y_B = (torch.randperm(64, generator=generator) < 16).long()
    shifted = [torch.randn(64, 256, generator=generator) + 0.3 * y_B[:, None] for _ in range(20)]
    found = mean_aucs(shifted, y_B)
    assert found["mean"] > 0.85
    assert found["median"] > 0.75


def test_tiny_gradients_are_told_apart_as_well_as_large_ones() -> None:
    y_B = torch.tensor([1, 0, 0, 1, 0])
    g_Bd = torch.where(y_B[:, None] == 1, -3e-30, 1e-30)
    assert mean_aucs([g_Bd], y_B) == {"mean": 1.0, "median": 1.0}
    assert mean_aucs([g_Bd * 0], y_B) == {"mean": 0.5, "median": 0.5}
