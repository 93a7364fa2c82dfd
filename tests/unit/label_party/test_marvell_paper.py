"""Marvell against its paper: Li et al., ICLR 2022 ([M]). Shape suffixes: B rows of the batch, d cut-layer width."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from cutlayer.common.leakage import auc_bound, leak_auc, sum_kl_of
from cutlayer.common.randomness import Noise
from cutlayer.common.scores import cosines, norms
from cutlayer.label_party.defenses.marvell import Marvell
from cutlayer.label_party.defenses.marvell_solver import Spectrum, solve

KEY = bytes(32)
D = 32
U, V, GAP, P = 1e-3, 2e-3, 0.09, 0.25
ROWS = 40_000
DELTA_D = torch.eye(D, dtype=torch.float64)[0] * math.sqrt(GAP)


def gaussian_batch(rows: int = ROWS, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gradients of two Gaussian classes: N(0, u I) for class 0, N(delta, v I) for class 1; a share P is positive."""
    generator = torch.Generator().manual_seed(seed)
    y_B = (torch.arange(rows) % round(1 / P) == 0).long()
    spread_B = torch.tensor([math.sqrt(U), math.sqrt(V)], dtype=torch.float64)[y_B]
    g_Bd = spread_B[:, None] * torch.randn(rows, D, generator=generator, dtype=torch.float64)
    return g_Bd + y_B[:, None] * DELTA_D, y_B


def small_batch(rows: int = 40, width: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y_B = (torch.arange(rows) % 4 == 0).long()
    return (torch.randn(rows, width, generator=generator) + 2.0 * y_B[:, None]) / rows, y_B


def spectrum_of(scale: float) -> Spectrum:
    return solve(u=U, v=V, d=D, gap=GAP, p=P, power=scale * GAP)


def statistics_of(g_Bd: Tensor, y_B: Tensor) -> tuple[float, float, float, float]:
    """u, v, gap, p as in [M, section 4.2], row by row."""
    classes = {c: [row for row, y in zip(g_Bd.double().tolist(), y_B.tolist(), strict=True) if y == c] for c in (0, 1)}
    means = {c: [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)] for c, rows in classes.items()}
    spread = {
        c: math.fsum((x - m) ** 2 for row in rows for x, m in zip(row, means[c], strict=True))
        / len(rows)
        / len(means[c])
        for c, rows in classes.items()
    }
    gap = math.fsum((a - b) ** 2 for a, b in zip(means[1], means[0], strict=True))
    return spread[0], spread[1], gap, len(classes[1]) / len(y_B)


# The noise: [M, section 4.2].


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_the_noise_has_the_covariance_of_the_optimum_per_class(scale: float) -> None:
    """cov = l1 along the difference of the class means, l2 across it; [M, Theorem 2]. 4.5 standard errors."""
    g_Bd, y_B = gaussian_batch()
    noise_Bd = Marvell(scale=scale).perturb(g_Bd, y_B, noise=Noise(KEY)) - g_Bd
    spectrum = spectrum_of(scale)
    mean_difference_d = g_Bd[y_B == 1].mean(dim=0) - g_Bd[y_B == 0].mean(dim=0)
    axis_d = mean_difference_d / mean_difference_d.norm()
    for label, l1, l2 in ((0, spectrum.l1_0, spectrum.l2_0), (1, spectrum.l1_1, spectrum.l2_1)):
        rows = noise_Bd[y_B == label]
        along = rows @ axis_d
        across = (rows.square().sum(dim=1) - along.square()).mean() / (D - 1)
        assert float(along.square().mean()) == pytest.approx(l1, rel=4.5 * math.sqrt(2 / len(rows)) + 0.01)
        assert float(across) == pytest.approx(l2, rel=4.5 * math.sqrt(2 / (D - 1) / len(rows)) + 0.01, abs=1e-12)


def test_the_noise_is_unbiased() -> None:
    """E[g~ | g] = g."""
    g_Bd, y_B = small_batch()
    defense, noise = Marvell(scale=1.0), Noise(KEY)
    outputs = torch.stack([defense.perturb(g_Bd, y_B, noise=noise) for _ in range(4000)]).double()
    standard_error_Bd = outputs.std(dim=0) / math.sqrt(len(outputs))
    assert ((outputs.mean(dim=0) - g_Bd).abs() <= 5 * standard_error_Bd + 1e-9).all()


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_the_noise_spends_scale_times_the_squared_distance_of_the_means(scale: float) -> None:
    """E||noise||^2 = P = s ||Delta||^2, the mean over both classes [M, constraint of Theorem 2]."""
    g_Bd, y_B = gaussian_batch()
    defense = Marvell(scale=scale)
    noise_Bd = defense.perturb(g_Bd, y_B, noise=Noise(KEY)) - g_Bd
    assert float(noise_Bd.square().sum(dim=1).mean()) == pytest.approx(scale * GAP, rel=0.04)
    assert defense.telemetry()["power"] == pytest.approx(scale * GAP, rel=0.03)


def test_the_statistics_are_those_of_the_batch() -> None:
    g_Bd, y_B = small_batch()
    u, v, gap, p = statistics_of(g_Bd, y_B)
    defense = Marvell(scale=0.7)
    defense.perturb(g_Bd, y_B, noise=Noise(KEY))
    figures = defense.telemetry()
    assert figures["power"] == pytest.approx(0.7 * gap, rel=1e-12)
    expected = solve(u=u, v=v, d=8, gap=gap, p=p, power=0.7 * gap).sum_kl
    assert figures["sum_kl"] == pytest.approx(expected, rel=1e-10)
    assert figures["bound"] == pytest.approx(auc_bound(expected), rel=1e-10)


def test_scale_1_is_the_default() -> None:
    g_Bd, y_B = small_batch()
    plain, given = (defense.perturb(g_Bd, y_B, noise=Noise(KEY)) for defense in (Marvell(), Marvell(scale=1.0)))
    assert torch.equal(plain, given)


def test_the_noise_scales_with_the_gradients() -> None:
    g_Bd, y_B = small_batch()
    one, other = (Marvell().perturb(g * 1.0, y_B, noise=Noise(KEY)) for g in (g_Bd, g_Bd * 1024))
    assert torch.allclose(one * 1024, other, rtol=1e-5, atol=0)


# What it achieves: [M, Theorem 1 and figure 3].


def log_likelihood_ratio(g_Bd: Tensor, spectrum: Spectrum) -> npt.NDArray[np.float64]:
    """The best score there is, for an attacker who knows the distributions."""
    along = g_Bd[:, 0].numpy()
    across = g_Bd[:, 1:].square().sum(dim=1).numpy()
    a, b = U + spectrum.l1_0, V + spectrum.l1_1
    s_0, s_1 = U + spectrum.l2_0, V + spectrum.l2_1
    one = -((along - math.sqrt(GAP)) ** 2) / b - across / s_1
    zero = -(along**2) / a - across / s_0
    return np.asarray(one - zero)


@pytest.mark.parametrize(
    ("scale", "optimal", "cosine", "norm"),
    [(0.1, 0.997, 0.958, 0.992), (0.25, 0.974, 0.932, 0.950), (1, 0.785, 0.781, 0.682), (4, 0.645, 0.645, 0.554)],
)
def test_leak_of_gaussian_classes(scale: float, optimal: float, cosine: float, norm: float) -> None:
    """Leak AUC falls as the power grows, and never beats the bound of [M, Theorem 1]."""
    g_Bd, y_B = gaussian_batch()
    defense = Marvell(scale=scale)
    out_Bd = defense.perturb(g_Bd, y_B, noise=Noise(KEY))
    scores = log_likelihood_ratio(out_Bd, spectrum_of(scale)), cosines(out_Bd, DELTA_D), norms(out_Bd)
    leaks = [leak_auc(score, y_B) for score in scores]
    assert leaks == pytest.approx([optimal, cosine, norm], abs=0.01)
    assert max(leak for leak in leaks if leak is not None) < defense.telemetry()["bound"]


@pytest.mark.parametrize(("scale", "bound"), [(1, 0.906), (4, 0.724)])
def test_the_bound_of_gaussian_classes(scale: float, bound: float) -> None:
    assert auc_bound(spectrum_of(scale).sum_kl) == pytest.approx(bound, abs=5e-4)


@pytest.mark.parametrize("target", [0.55, 0.6, 0.75, 0.9])
def test_max_leak_auc_holds_for_the_best_attack(target: float) -> None:
    g_Bd, y_B = gaussian_batch()
    defense = Marvell(max_leak_auc=target)
    out_Bd = defense.perturb(g_Bd, y_B, noise=Noise(KEY))
    figures = defense.telemetry()
    assert figures["bound"] == pytest.approx(target, abs=1e-6)
    assert figures["sum_kl"] <= sum_kl_of(target) * (1 + 1e-8)
    best = leak_auc(log_likelihood_ratio(out_Bd, spectrum_of(figures["power"] / GAP)), y_B)
    assert best is not None
    assert 0.5 < best < target


def test_power_is_spent_as_given() -> None:
    g_Bd, y_B = gaussian_batch()
    noise_Bd = Marvell(power=0.5).perturb(g_Bd, y_B, noise=Noise(KEY)) - g_Bd
    assert float(noise_Bd.square().sum(dim=1).mean()) == pytest.approx(0.5, rel=0.04)


def test_a_batch_that_meets_the_target_gets_no_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    g_Bd, y_B = torch.randn(4000, 2, generator=generator), torch.arange(4000) % 2
    defense = Marvell(max_leak_auc=0.95)
    assert torch.equal(defense.perturb(g_Bd, y_B, noise=Noise(KEY)), g_Bd)
    assert defense.telemetry()["power"] == 0


# Where the batch has no statistics.


def fallbacks(defense: Marvell) -> tuple[float, float]:
    figures = defense.telemetry()
    return figures["fallback_running"], figures["fallback_max_norm"]


ONE_CLASS = {
    "no positive": torch.zeros(40, dtype=torch.long),
    "no negative": torch.ones(40, dtype=torch.long),
    "one positive": (torch.arange(40) == 3).long(),
    "one negative": (torch.arange(40) != 3).long(),
}


@pytest.mark.parametrize("y_B", ONE_CLASS.values(), ids=ONE_CLASS)
def test_before_there_are_statistics_all_rows_are_stretched(y_B: Tensor) -> None:
    defense = Marvell()
    g_Bd = small_batch()[0]
    out_Bd = defense.perturb(g_Bd, y_B, noise=Noise(KEY))
    assert (out_Bd != g_Bd).any(dim=1).all()
    assert fallbacks(defense) == (0, 1)
    assert "sum_kl" not in defense.telemetry()


@pytest.mark.parametrize("y_B", ONE_CLASS.values(), ids=ONE_CLASS)
def test_then_the_statistics_of_earlier_batches_serve(y_B: Tensor) -> None:
    defense = Marvell()
    defense.perturb(*small_batch(seed=1), noise=Noise(KEY))
    earlier = defense.telemetry()
    g_Bd = small_batch(seed=2)[0]
    out_Bd = defense.perturb(g_Bd, y_B, noise=Noise(KEY))
    assert (out_Bd != g_Bd).any(dim=1).all()
    assert fallbacks(defense) == (1, 0)
    assert defense.telemetry()["power"] == pytest.approx(earlier["power"], rel=1e-12)
    assert defense.telemetry()["sum_kl"] == pytest.approx(earlier["sum_kl"], rel=1e-10)


def test_a_single_row_is_never_sent_as_it_is() -> None:
    defense = Marvell()
    row, label = small_batch()[0][:1], torch.tensor([1])
    out = [defense.perturb(row, label, noise=Noise(KEY)) for _ in range(2)]
    assert not any(torch.equal(o, row) for o in out)
    assert fallbacks(defense) == (0, 2)


def test_running_statistics_are_of_rows_not_of_batches() -> None:
    """Rows of the mean loss of 10 rows are four times as long as those of 40; so is the noise that hides them."""
    defense = Marvell()
    g_Bd, y_B = small_batch(rows=40)
    defense.perturb(g_Bd, y_B, noise=Noise(KEY))
    power = defense.telemetry()["power"]
    defense.perturb(g_Bd[:10] * 4, torch.zeros(10, dtype=torch.long), noise=Noise(KEY))
    assert defense.telemetry()["power"] == pytest.approx(16 * power, rel=1e-12)


def test_running_statistics_follow_the_batches() -> None:
    """A tenth of each new batch, nine tenths of what was."""
    defense, one_class = Marvell(power=1.0), torch.zeros(40, dtype=torch.long)
    for factor in (1.0, 3.0):
        g_Bd, y_B = small_batch()
        defense.perturb(g_Bd * factor, y_B, noise=Noise(KEY))
    defense.perturb(g_Bd, one_class, noise=Noise(KEY))
    u, v, gap, p = statistics_of(g_Bd, y_B)
    mixed_square, mixed = 0.9 + 0.1 * 9, 0.9 + 0.1 * 3
    expected = solve(u=u * mixed_square, v=v * mixed_square, d=8, gap=gap * mixed**2, p=p, power=1.0)
    assert defense.telemetry()["sum_kl"] == pytest.approx(expected.sum_kl, rel=1e-9)


@pytest.mark.parametrize("options", [{}, {"power": 1.0}, {"max_leak_auc": 0.6}], ids=str)
def test_equal_means_are_not_sent_unprotected(options: dict[str, float]) -> None:
    """There P = s ||Delta||^2 is 0, though the variances may tell the classes."""
    defense = Marvell(**options)
    g_Bd = torch.tensor([[3.0, 1.0], [-3.0, -1.0], [0.5, 2.0], [-0.5, -2.0]])
    out_Bd = defense.perturb(g_Bd, torch.tensor([0, 0, 1, 1]), noise=Noise(KEY))
    assert (out_Bd != g_Bd).any(dim=1).all()
    assert fallbacks(defense) == (0, 1)


def test_zeros_stay_zeros() -> None:
    g_Bd, y_B = torch.zeros(8, 3), torch.arange(8) % 2
    assert torch.equal(Marvell().perturb(g_Bd, y_B, noise=Noise(KEY)), g_Bd)
