"""Marvell, held to Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022 ([M]).

Shape suffixes: T trials, B rows of the batch, d cut-layer width.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutlayer.common.leakage import auc_bound, leak_auc
from cutlayer.common.randomness import Noise
from cutlayer.common.scores import cosines, norms
from cutlayer.label_party.defenses import Marvell
from cutlayer.label_party.defenses.marvell import ClassStatistics
from cutlayer.label_party.defenses.marvell_solver import Spectrum, solve

WIDTH = 32
TRIALS = 4000


def noise(step: int = 1) -> Noise:
    return Noise.keyed(bytes(32), "bank", step, bytes(32))


def gaussians(
    rows: int, u: float, v: float, gap: float, p: float, seed: int = 1, width: int = WIDTH
) -> tuple[Tensor, Tensor]:
    """Rows of N(0, u I) for class 0, the first ones, and of N(sqrt(gap) e_1, v I) for class 1."""
    y_B = (torch.arange(rows) >= round((1 - p) * rows)).long()
    spread_B = torch.tensor([u, v]).sqrt()[y_B]
    g_Bd = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * spread_B[:, None]
    g_Bd[:, 0] += math.sqrt(gap) * y_B
    return g_Bd, y_B


def solution(g_Bd: Tensor, y_B: Tensor, power: float) -> tuple[ClassStatistics, Spectrum]:
    s = ClassStatistics.of(g_Bd, y_B)
    assert s is not None
    return s, solve(u=s.u, v=s.v, d=g_Bd.shape[1], gap=s.gap, p=s.p, power=power)


def log_likelihood_ratio(g_Bd: Tensor, gap: float, variances: tuple[tuple[float, float], ...]) -> Tensor:
    """Of class 1 over class 0, from each one's (variance along e_1, variance across): no score tells more."""

    def log_density(mean: float, along: float, across: float) -> Tensor:
        squares_B = (g_Bd[:, 0] - mean) ** 2 / along + g_Bd[:, 1:].square().sum(1) / across
        return -(squares_B + math.log(along) + (g_Bd.shape[1] - 1) * math.log(across)) / 2

    class_0, class_1 = variances
    return log_density(math.sqrt(gap), *class_1) - log_density(0, *class_0)


# What the noise is [M, section 4.2].


def test_statistics_of_the_batch() -> None:
    """p, delta, and the mean squared deviation per coordinate of each class, all by division by n."""
    g_Bd = torch.tensor([[0.0, 0], [2, 0], [1, 5], [1, 9], [4, 7]])
    s = ClassStatistics.of(g_Bd, torch.tensor([0, 0, 1, 1, 1]))
    assert s is not None
    assert (s.p, s.u, s.gap) == (0.6, 0.5, 50)
    assert s.v == pytest.approx((6 + 8) / 6)
    assert s.delta_d.tolist() == [1, 7]


def test_mean_and_covariance_of_the_noise() -> None:
    """(l1_c - l2_c) delta delta^T / ||delta||^2 + l2_c I for rows of class c, and none of it shared by two rows."""
    g_Bd, y_B = gaussians(8, u=0.5, v=2.0, gap=9.0, p=0.5, width=3)
    s, spectrum = solution(g_Bd, y_B, power=9.0)
    defense = Marvell(power=9.0)
    noise_TBd = torch.stack([defense.defend(g_Bd, y_B, noise=noise(t)).g_Bd - g_Bd for t in range(TRIALS)]).double()
    delta_d = s.delta_d / s.delta_d.norm()
    of_class = [
        (l1 - l2) * torch.outer(delta_d, delta_d) + l2 * torch.eye(3)
        for l1, l2 in ((spectrum.l1_0, spectrum.l2_0), (spectrum.l1_1, spectrum.l2_1))
    ]
    expected = torch.zeros(8, 3, 8, 3)
    for row, y in enumerate(y_B.tolist()):
        expected[row, :, row] = of_class[y]
    expected = expected.reshape(24, 24)
    largest = float(expected.max())
    assert spectrum.l2_0 > 0.1  # noise across, too
    assert (torch.cov(noise_TBd.flatten(1).T) - expected).abs().max() < 5 * largest * math.sqrt(2 / TRIALS)
    assert noise_TBd.mean(0).abs().max() < 5 * math.sqrt(largest / TRIALS)


def test_scale_is_the_power_over_the_gap() -> None:
    """P = s ||delta||^2, spent whole on the rows of the two classes together."""
    g_Bd, y_B = gaussians(20_000, u=1e-3, v=2e-3, gap=0.09, p=0.25)
    for scale in (0.5, 4.0):
        defense = Marvell(scale=scale)
        spent_B = (defense.defend(g_Bd, y_B, noise=noise()).g_Bd - g_Bd).square().sum(1).double()
        power = scale * solution(g_Bd, y_B, power=1)[0].gap
        assert float(spent_B.mean()) == pytest.approx(power, abs=5 * float(spent_B.std()) / math.sqrt(20_000))
        assert defense.telemetry()["power"] == pytest.approx(power)


def test_scale_is_1_unless_given() -> None:
    g_Bd, y_B = gaussians(64, u=1e-3, v=2e-3, gap=0.09, p=0.25)
    by_default, of_1 = (d.defend(g_Bd, y_B, noise=noise()).g_Bd for d in (Marvell(), Marvell(scale=1)))
    assert torch.equal(by_default, of_1)


# What an attacker makes of it.


@pytest.mark.parametrize(
    ("scale", "best", "cosine", "norm"),
    [(0.1, 0.997, 0.958, 0.992), (0.25, 0.974, 0.932, 0.950), (1, 0.785, 0.781, 0.682), (4, 0.645, 0.645, 0.554)],
)
def test_what_attacks_find(scale: float, best: float, cosine: float, norm: float) -> None:
    """Two Gaussian classes: the likelihood ratio, the direction and the norm as scores."""
    gap, u, v = 0.09, 1e-3, 2e-3
    g_Bd, y_B = gaussians(20_000, u=u, v=v, gap=gap, p=0.25)
    _, n = solution(g_Bd, y_B, power=scale * gap)
    defense = Marvell(scale=scale)
    out_Bd = defense.defend(g_Bd, y_B, noise=noise()).g_Bd
    ratio_B = log_likelihood_ratio(out_Bd, gap, ((u + n.l1_0, u + n.l2_0), (v + n.l1_1, v + n.l2_1)))
    found = leak_auc(ratio_B, y_B), leak_auc(cosines(out_Bd, torch.eye(WIDTH)[0]), y_B), leak_auc(norms(out_Bd), y_B)
    assert found == pytest.approx((best, cosine, norm), abs=0.015)
    assert max(auc for auc in found if auc is not None) <= auc_bound(defense.telemetry()["sum_kl"])


@pytest.mark.parametrize(("scale", "bound"), [(1, 0.906), (4, 0.724)])
def test_the_bound_of_theorem_1(scale: float, bound: float) -> None:
    n = solve(u=1e-3, v=2e-3, d=32, gap=0.09, p=0.25, power=scale * 0.09)
    assert auc_bound(n.sum_kl) == pytest.approx(bound, abs=5e-4)


@settings(max_examples=25, deadline=None)
@given(st.floats(-3, 1), st.floats(-3, 1), st.floats(0.02, 0.98), st.floats(-1.5, 1.5), st.sampled_from([2, 5, 32]))
def test_no_score_beats_the_bound(log_u: float, log_v: float, p: float, log_scale: float, width: int) -> None:
    """[M, Theorem 1], for the best score there is and classes as they are modelled."""
    u, v, rows = 10**log_u, 10**log_v, 4000
    n = solve(u=u, v=v, d=width, gap=1.0, p=p, power=10**log_scale)
    y_B = (torch.arange(rows) % 2).long()
    variances = ((u + n.l1_0, u + n.l2_0), (v + n.l1_1, v + n.l2_1))
    along_B, across_B = torch.tensor(variances).sqrt()[y_B].T
    g_Bd = noise().normal((rows, width)) * across_B[:, None]
    g_Bd[:, 0] = g_Bd[:, 0] * along_B / across_B + y_B
    auc = leak_auc(log_likelihood_ratio(g_Bd, 1.0, variances), y_B)
    assert auc is not None
    assert auc <= auc_bound(n.sum_kl) + 4 * 0.5 / math.sqrt(rows)


@pytest.mark.parametrize("target", [0.55, 0.7, 0.95])
def test_max_leak_auc_takes_the_smallest_power(target: float) -> None:
    g_Bd, y_B = gaussians(2000, u=1e-3, v=2e-3, gap=0.09, p=0.25)
    defense = Marvell(max_leak_auc=target)
    out_Bd = defense.defend(g_Bd, y_B, noise=noise()).g_Bd
    telemetry = defense.telemetry()
    assert target - 1e-6 < auc_bound(telemetry["sum_kl"]) <= target
    weaker = Marvell(power=0.99 * telemetry["power"])
    weaker.defend(g_Bd, y_B, noise=noise())
    assert auc_bound(weaker.telemetry()["sum_kl"]) > target
    auc = leak_auc(cosines(out_Bd, torch.eye(WIDTH)[0]), y_B)
    assert auc is not None
    assert auc <= target


# Batches whose statistics are undefined.

ORDINARY = gaussians(64, u=1e-3, v=2e-3, gap=0.09, p=0.25)
SAME_MEANS = (torch.cat([ORDINARY[0][:4], ORDINARY[0][:4]]), torch.tensor([0, 1]).repeat_interleave(4))
UNDEFINED = pytest.mark.parametrize(
    ("g_Bd", "y_B"),
    [
        pytest.param(ORDINARY[0][48:], ORDINARY[1][48:], id="class 1 only"),
        pytest.param(ORDINARY[0][:48], ORDINARY[1][:48], id="class 0 only"),
        pytest.param(ORDINARY[0][:49], ORDINARY[1][:49], id="one row of class 1"),
        pytest.param(ORDINARY[0][47:], ORDINARY[1][47:], id="one row of class 0"),
        pytest.param(ORDINARY[0][:1], ORDINARY[1][:1], id="one row"),
        pytest.param(*SAME_MEANS, id="equal means"),
    ],
)


def fallbacks(defense: Marvell) -> tuple[float, float]:
    telemetry = defense.telemetry()
    return telemetry["fallback_running"], telemetry["fallback_max_norm"]


def changed_rows(out_Bd: Tensor, g_Bd: Tensor) -> int:
    return int((out_Bd != g_Bd).any(dim=1).sum())


@UNDEFINED
def test_before_any_statistics_rows_are_stretched(g_Bd: Tensor, y_B: Tensor) -> None:
    defense = Marvell()
    out_Bd = defense.defend(g_Bd, y_B, noise=noise()).g_Bd
    assert fallbacks(defense) == (0, 1)
    assert changed_rows(out_Bd, g_Bd) == len(g_Bd)
    assert "sum_kl" not in defense.telemetry()


@UNDEFINED
def test_then_running_statistics_serve(g_Bd: Tensor, y_B: Tensor) -> None:
    defense = Marvell()
    defense.defend(*ORDINARY, noise=noise(1))
    out_Bd = defense.defend(g_Bd, y_B, noise=noise(2)).g_Bd
    assert fallbacks(defense) == (1, 0)
    assert changed_rows(out_Bd, g_Bd) == len(g_Bd)
    # a mean loss divides every row by the rows of its batch: so the statistics follow
    assert defense.telemetry()["power"] == pytest.approx(solution(*ORDINARY, power=1)[0].gap * (64 / len(g_Bd)) ** 2)


def test_running_statistics_forget() -> None:
    """Weights 0.9 of the past, 0.1 of the newest batch."""
    defense, newer = Marvell(), gaussians(64, u=1e-2, v=3e-2, gap=0.5, p=0.5, seed=2)
    for step, batch in enumerate((ORDINARY, newer)):
        defense.defend(*batch, noise=noise(step))
    first, second = (solution(*batch, power=1)[0] for batch in (ORDINARY, newer))
    defense.defend(newer[0][:32], newer[1][:32], noise=noise(3))
    expected_d = (0.9 * first.delta_d + 0.1 * second.delta_d) * 2
    assert defense.telemetry()["power"] == pytest.approx(float(expected_d @ expected_d))


def test_fallbacks_are_counted() -> None:
    defense, one_class = Marvell(), (ORDINARY[0][:8], ORDINARY[1][:8])
    for step, batch in enumerate([one_class, one_class, ORDINARY, one_class, ORDINARY]):
        defense.defend(*batch, noise=noise(step))
    assert fallbacks(defense) == (1, 2)


def test_the_noise_drawn_does_not_tell_the_labels() -> None:
    """Else the time that an answer takes would."""
    g_Bd, y_B = ORDINARY
    after = []
    for labels_B in (y_B, 1 - y_B, y_B.flip(0), torch.zeros_like(y_B)):
        defense, drawn = Marvell(), noise(2)
        defense.defend(*ORDINARY, noise=noise(1))
        defense.defend(g_Bd, labels_B, noise=drawn)
        after.append(float(drawn.uniform((1,))))
    assert len(set(after)) == 1
