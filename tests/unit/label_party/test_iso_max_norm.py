"""Isotropic noise and max-norm alignment, held to their definitions (Li et al., ICLR 2022, sections 4 and 4.1).

Shape suffixes: T trials, B rows of the batch, d cut-layer width.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from cutlayer.common.randomness import Noise
from cutlayer.label_party.defenses import Defense, IsotropicNoise, MaxNorm

TRIALS = 4000


def noise(step: int = 1) -> Noise:
    return Noise.keyed(bytes(32), "bank", step, bytes(32))


def trials(defense: Defense, g_Bd: Tensor, y_B: Tensor) -> Tensor:
    return torch.stack([defense.defend(g_Bd, y_B, noise=noise(t)).g_Bd for t in range(TRIALS)]).double()


@pytest.fixture(scope="module")
def g_Bd() -> Tensor:
    drawn = torch.Generator().manual_seed(1)
    return torch.randn(6, 4, generator=drawn) * torch.tensor([1e-3, 1, 2, 3, 0.5, 1])[:, None]


Y_B = torch.tensor([0, 1, 0, 1, 0, 1])


# Isotropic noise: N(0, (t/d) max ||g||^2 I) on every row.


def test_iso_covariance(g_Bd: Tensor) -> None:
    noise_TBd = trials(IsotropicNoise(t=2.0), g_Bd, Y_B) - g_Bd
    per_number = 2 / 4 * float(g_Bd.norm(dim=1).max()) ** 2
    flat_TD = noise_TBd.flatten(1)
    assert flat_TD.mean(0).abs().max() < 5 * math.sqrt(per_number / TRIALS)
    covariance_DD = torch.cov(flat_TD.T) / per_number
    assert (covariance_DD - torch.eye(24)).abs().max() < 5 * math.sqrt(2 / TRIALS)


def test_ratio_is_the_root_of_t(g_Bd: Tensor) -> None:
    of_t, of_ratio = (d.defend(g_Bd, Y_B, noise=noise()).g_Bd for d in (IsotropicNoise(t=9), IsotropicNoise(ratio=3)))
    assert torch.equal(of_t, of_ratio)


def test_t_is_1_unless_given(g_Bd: Tensor) -> None:
    by_default, of_1 = (d.defend(g_Bd, Y_B, noise=noise()).g_Bd for d in (IsotropicNoise(), IsotropicNoise(t=1)))
    assert torch.equal(by_default, of_1)


# Max-norm alignment: g~_j = g_j (1 + sigma_j xi_j), sigma_j^2 = max ||g||^2 / ||g_j||^2 - 1.


def test_rows_keep_their_direction(g_Bd: Tensor) -> None:
    out_Bd = MaxNorm().defend(g_Bd, Y_B, noise=noise()).g_Bd
    cosine_B = torch.cosine_similarity(out_Bd.double(), g_Bd.double())
    assert cosine_B.abs() == pytest.approx(torch.ones(6, dtype=torch.float64), abs=1e-6)


def test_unbiased_and_of_equal_expected_squared_norm(g_Bd: Tensor) -> None:
    out_TBd = trials(MaxNorm(), g_Bd, Y_B)
    largest = float(g_Bd.norm(dim=1).max())
    assert ((out_TBd.mean(0) - g_Bd).norm(dim=1) < 5 * largest / math.sqrt(TRIALS)).all()
    squared_TB = out_TBd.square().sum(2)
    tolerance_B = 5 * squared_TB.std(0) / math.sqrt(TRIALS) + 1e-6 * largest**2
    assert ((squared_TB.mean(0) - largest**2).abs() < tolerance_B).all()


def test_the_longest_row_stays(g_Bd: Tensor) -> None:
    longest = int(g_Bd.norm(dim=1).argmax())
    assert torch.equal(MaxNorm().defend(g_Bd, Y_B, noise=noise()).g_Bd[longest], g_Bd[longest])


def test_a_row_of_length_0_does_not_stand_out(g_Bd: Tensor) -> None:
    with_zero_Bd = torch.cat([g_Bd[:5], torch.zeros(1, 4)])
    squared_T = trials(MaxNorm(), with_zero_Bd, Y_B)[:, 5].square().sum(1)
    largest = float(g_Bd[:5].norm(dim=1).max())
    assert float(squared_T.mean()) == pytest.approx(largest**2, abs=5 * float(squared_T.std()) / math.sqrt(TRIALS))


def test_a_row_of_length_0_where_the_mean_is_0() -> None:
    out_Bd = MaxNorm().defend(torch.tensor([[1.0, 0], [-1, 0], [0, 0]]), Y_B[:3], noise=noise()).g_Bd
    assert out_Bd[2, 0] != 0
    assert out_Bd[2, 1] == 0


def test_nothing_to_align() -> None:
    zeros_Bd = torch.zeros(3, 2)
    assert torch.equal(MaxNorm().defend(zeros_Bd, Y_B[:3], noise=noise()).g_Bd, zeros_Bd)
