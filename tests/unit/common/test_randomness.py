"""Noise: secret, the same for the same key, and normal; permutations that no library's version changes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from cutlayer.common.randomness import Noise, _box_muller, permutation, public_key, public_seed

SECRET = bytes(range(32))
DIGEST = bytes(32)
MANY = 1_000_000


def keyed(secret: bytes = SECRET, party: str = "bank", step: int = 1, z_digest: bytes = DIGEST) -> Noise:
    return Noise.keyed(secret, party, step, z_digest)


@pytest.fixture(scope="module")
def normals() -> Tensor:
    return keyed().normal((MANY,)).double()


def correlation(a: Tensor, b: Tensor) -> float:
    return float(np.corrcoef(a, b)[0, 1])


# Normal numbers. The key is fixed, so that a test which passes once always passes; limits are 4 to 5 deviations.


def test_normal_distribution(normals: Tensor) -> None:
    assert stats.kstest(normals.numpy(), "norm").pvalue > 0.01


@pytest.mark.parametrize(("order", "moment"), [(1, 0), (2, 1), (3, 0), (4, 3), (6, 15)])
def test_moments(normals: Tensor, order: int, moment: int) -> None:
    powers = normals**order
    assert abs(float(powers.mean()) - moment) < 4.5 * float(powers.std()) / math.sqrt(MANY)


@pytest.mark.parametrize("limit", [2, 3, 4, 4.5])
@pytest.mark.parametrize("sign", [-1, 1])
def test_tails(normals: Tensor, limit: float, sign: int) -> None:
    expected = MANY * float(stats.norm.sf(limit))
    assert abs(int((sign * normals > limit).sum()) - expected) < 4.5 * math.sqrt(expected) + 1


def test_neighbours_and_halves_are_unrelated(normals: Tensor) -> None:
    """The two numbers made of one radius are half the shape apart; their squares would show it."""
    half = MANY // 2
    for of in (normals, normals**2, normals.abs()):
        assert abs(correlation(of[:-1], of[1:])) < 4.5 / math.sqrt(MANY)
        assert abs(correlation(of[:half], of[half:])) < 4.5 / math.sqrt(half)


@pytest.mark.parametrize("angle", [0, 1, -1, 2**31 - 1, -(2**31), 2**30, -(2**30)])
@pytest.mark.parametrize("radius", [0, 1, -1, 2**31 - 1, -(2**31), 2**24])
def test_no_word_makes_anything_but_a_number(radius: int, angle: int) -> None:
    normal = _box_muller(np.array([radius, angle], dtype=np.int32))
    assert np.isfinite(normal).all()
    assert np.abs(normal).max() < 6.7


def test_the_tail_reaches_beyond_six() -> None:
    assert _box_muller(np.array([0, 0], dtype=np.int32))[0] > 6.5


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2,), (3, 5), (7, 1, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    normal, uniform = keyed().normal(shape), keyed().uniform(shape)
    assert (normal.shape, normal.dtype) == (shape, torch.float32)
    assert (uniform.shape, uniform.dtype) == (shape, torch.float64)


def test_the_stream_goes_on() -> None:
    noise = keyed()
    assert not torch.equal(noise.normal((8,)), noise.normal((8,)))


def test_uniform_distribution() -> None:
    uniform = keyed().uniform((100_000,)).numpy()
    assert uniform.min() > 0
    assert uniform.max() < 1
    assert stats.kstest(uniform, "uniform").pvalue > 0.01
    bits = (uniform * 2**53).astype(np.uint64)
    assert all(abs(float(((bits >> bit) & 1).mean()) - 0.5) < 4.5 / 2 / math.sqrt(1e5) for bit in range(1, 53))


# Keys.


def test_the_same_key_gives_the_same_bits() -> None:
    assert torch.equal(keyed().normal((1000,)), keyed().normal((1000,)))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(keyed(party="shop"), id="party"),
        pytest.param(keyed(step=2), id="step"),
        pytest.param(keyed(z_digest=bytes(31) + b"\1"), id="z"),
        pytest.param(keyed(party="ban", step=11), id="party and step"),
    ],
)
def test_another_step_gets_unrelated_numbers(other: Noise) -> None:
    assert abs(correlation(keyed().normal((40_000,)), other.normal((40_000,)))) < 4.5 / 200


def test_all_bits_of_a_key_count() -> None:
    """A torch.Generator would take 32 of them."""
    changed = bytearray(SECRET)
    changed[100 // 8] ^= 1 << 100 % 8
    for one, other in ((keyed(), keyed(secret=bytes(changed))), (Noise(SECRET), Noise(bytes(changed)))):
        a, b = one.normal((40_000,)), other.normal((40_000,))
        assert not (a == b).any()
        assert abs(correlation(a, b)) < 4.5 / 200


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_secret_has_32_bytes(length: int) -> None:
    with pytest.raises(ValueError, match=f"the noise secret has {length} bytes, expected 32"):
        keyed(secret=bytes(length))


def test_the_public_key_is_no_noise_key() -> None:
    assert not torch.equal(keyed().normal((8,)), Noise(public_key("bank", 1, DIGEST)).normal((8,)))


def test_pinned_noise() -> None:
    """To the last bits, which another processor may round otherwise: a changed stream could not be replayed."""
    normal = [0.9231108, 3.154536, -1.160227, 0.2155722]
    assert keyed().normal((4,)).tolist() == pytest.approx(normal, rel=1e-5)
    assert keyed().uniform((2,)).tolist() == [0.5033730706587853, 0.010859323166535095]


# What all parties compute alike.


def test_pinned_permutations() -> None:
    assert permutation(10, 7, "epoch", 1).tolist() == [8, 4, 1, 6, 3, 0, 9, 5, 7, 2]
    assert permutation(10, 7, "epoch", 2).tolist() == [9, 0, 4, 3, 1, 8, 2, 7, 5, 6]
    assert public_seed(7, "bottom") == 7488111417638750617


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_a_permutation_has_every_index_once(count: int) -> None:
    order = permutation(count, "any")
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(count))


def test_permutations_are_uniform() -> None:
    orders = np.array([permutation(4, seed) for seed in range(24 * 200)])
    counts = np.unique(orders @ [1, 4, 16, 64], return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 0.01


def test_seeds_are_63_bits() -> None:
    seeds = [public_seed(part) for part in range(200)]
    assert len(set(seeds)) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**62
