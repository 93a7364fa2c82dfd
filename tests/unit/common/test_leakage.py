"""Leak AUC against scikit-learn, and the bounds of Li et al., ICLR 2022 ([M]), against figures worked out by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from cutlayer.common.leakage import (
    EpochLeak,
    LeakTally,
    auc_bound,
    flipped,
    leak_auc,
    null_floor,
    null_floor_over,
    pooled_figures,
    sum_kl_of,
)

Rows = list[tuple[float, int]]

tied = st.integers(-3, 3).map(float)
any_score = st.floats(allow_nan=False, allow_infinity=False)
rows = st.lists(st.tuples(tied | any_score, st.integers(0, 1)), min_size=2, max_size=60)


def split(of: Rows) -> tuple[list[float], list[int]]:
    return [score for score, _ in of], [label for _, label in of]


def exact_auc(of: Rows) -> float:
    """How often a positive outscores a negative, ties counted half: [M, section 3.2], to the last bit."""
    pairs = [(a, b) for a, label in of if label for b, other in of if not other]
    return float(Fraction(sum(2 * (a > b) + (a == b) for a, b in pairs), 2 * len(pairs)))


@settings(deadline=None)
@given(rows)
@example([(0.0, 0), (-0.0, 1)])
@example([(1e308, 0), (-1e308, 1), (5e-324, 1)])
def test_equals_scikit_learn(of: Rows) -> None:
    score, label = split(of)
    assume(0 < sum(label) < len(label))
    assert leak_auc(np.array(score), np.array(label)) == exact_auc(of)
    assert exact_auc(of) == pytest.approx(roc_auc_score(label, score), rel=1e-14, abs=1e-15)


def test_equals_scikit_learn_on_a_batch() -> None:
    drawn = np.random.default_rng(1)
    label = drawn.integers(0, 2, 1024)
    for decimals in (1, 8):
        score = drawn.normal(label * 0.3).round(decimals)
        assert leak_auc(score, label) == pytest.approx(roc_auc_score(label, score), rel=1e-14)


@settings(deadline=None)
@given(rows)
def test_turning_the_score_or_the_labels_round(of: Rows) -> None:
    score, label = split(of)
    auc = leak_auc(np.array(score), np.array(label))
    assume(auc is not None)
    assert auc is not None
    for turned in (leak_auc(-np.array(score), np.array(label)), leak_auc(np.array(score), 1 - np.array(label))):
        assert turned == pytest.approx(1 - auc)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_none(label: int) -> None:
    assert leak_auc(torch.ones(3), torch.full((3,), label)) is None
    assert leak_auc(torch.ones(0), torch.ones(0)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_takes_tensors(dtype: torch.dtype) -> None:
    assert leak_auc(torch.tensor([0.1, 0.9, 0.9], dtype=dtype), torch.tensor([0, 1, 0])) == 0.75


def test_infinite_scores_have_a_place() -> None:
    assert leak_auc(np.array([-math.inf, math.inf, 0]), np.array([0, 1, 1])) == 1


@pytest.mark.parametrize("label", [0, 1])
def test_a_score_that_is_no_number_is_refused(label: int) -> None:
    with pytest.raises(ValueError, match="a score is not a number"):
        leak_auc(np.array([math.nan, 1.0, 2.0]), np.array([label, 0, 1]))


@pytest.mark.parametrize(("auc", "expected"), [(0.2, 0.8), (0.5, 0.5), (0.8, 0.8)])
def test_flipped(auc: float, expected: float) -> None:
    assert flipped(auc) == expected


# Bounds.


@pytest.mark.parametrize(
    ("sum_kl", "bound"),
    [(0, 0.5), (0.04, 0.595), (0.16, 0.68), (0.25, 0.71875), (0.64, 0.82), (1, 0.875), (2, 0.9571)],
)
def test_theorem_1(sum_kl: float, bound: float) -> None:
    """[M, Theorem 1]: 1/2 + sqrt(e)/2 - e/8."""
    assert auc_bound(sum_kl) == pytest.approx(bound, abs=5e-5)


@pytest.mark.parametrize("sum_kl", [3, 3.9, 4, 10, 30])
def test_where_theorem_1_says_less(sum_kl: float) -> None:
    """Bretagnolle and Huber: the total variation is at most sqrt(1 - exp(-KL)), of the smaller KL."""
    tau = math.sqrt(1 - math.exp(-sum_kl / 2))
    paper = 0.5 + math.sqrt(sum_kl) / 2 - sum_kl / 8 if sum_kl < 4 else 1
    assert auc_bound(sum_kl) == pytest.approx(min(paper, 0.5 + tau - tau**2 / 2))
    assert auc_bound(sum_kl) < 1


def test_everything_leaks() -> None:
    assert auc_bound(math.inf) == 1


@given(st.floats(1e-12, 50), st.floats(1, 10))
def test_the_bound_grows(sum_kl: float, factor: float) -> None:
    assert 0.5 <= auc_bound(sum_kl) <= auc_bound(sum_kl * factor) <= 1


@given(st.floats(0.5, 0.999))
def test_the_inverse(auc: float) -> None:
    assert auc_bound(sum_kl_of(auc)) == pytest.approx(auc, abs=1e-12)
    assert auc_bound(sum_kl_of(auc) * 1.01 + 1e-9) > auc


@pytest.mark.parametrize("auc", [0.499, 1, 1.5, math.nan])
def test_no_inverse(auc: float) -> None:
    with pytest.raises(ValueError, match=r"expected a leak AUC from 0\.5 to below 1"):
        sum_kl_of(auc)


@given(st.floats(0.02, 4), st.floats(0.2, 5))
def test_no_gaussian_pair_beats_the_bound(shift: float, spread: float) -> None:
    """N(0, 1) and N(shift, spread^2) under the score x, whose AUC has a closed form."""
    auc = 0.5 * math.erfc(-shift / math.sqrt(2 * (1 + spread**2)))
    sum_kl = 0.5 * ((spread**2 - 1) ** 2 / spread**2 + shift**2 * (1 + 1 / spread**2))
    assert auc <= auc_bound(sum_kl)


@pytest.mark.parametrize(
    ("positives", "negatives", "expected"), [(13, 115, 0.667), (262, 762, 0.541), (5500, 27268, 0.5083)]
)
def test_null_floor(positives: int, negatives: int, expected: float) -> None:
    assert null_floor(positives, negatives) == pytest.approx(expected, abs=1e-3)


def test_null_floor_is_what_knows_nothing() -> None:
    drawn = np.random.default_rng(1)
    label = np.arange(100) < 30
    aucs = [leak_auc(drawn.random(100), label) for _ in range(2000)]
    assert np.mean(np.array(aucs, dtype=float) <= null_floor(30, 70)) == pytest.approx(0.975, abs=0.012)


@pytest.mark.parametrize("best_of", [1, 2, 10])
def test_null_floor_of_batches_of_one_size_is_that_of_each(best_of: int) -> None:
    assert null_floor_over({(30, 70): 12}, best_of) == pytest.approx(null_floor(30, 70, best_of), abs=1e-9)


def test_a_few_small_batches_raise_the_null_floor_less_than_they_would_alone() -> None:
    floor = null_floor_over({(12, 24): 95, (2, 3): 5})
    assert floor is not None
    assert null_floor(12, 24) < floor < null_floor(2, 3)


@pytest.mark.parametrize("best_of", [1, 3])
def test_null_floor_of_mixed_batches_is_what_knows_nothing(best_of: int) -> None:
    """Of the largest of `best_of` AUCs, for batches of 100 and of 24 rows in turn."""
    drawn = np.random.default_rng(2)
    sizes = {(30, 70): 1000, (8, 16): 1000}
    largest = []
    for (positives, negatives), count in sizes.items():
        label = np.arange(positives + negatives) < positives
        aucs = [[leak_auc(drawn.random(len(label)), label) for _ in range(best_of)] for _ in range(count)]
        largest += np.max(np.array(aucs, dtype=float), axis=1).tolist()
    floor = null_floor_over(sizes, best_of)
    assert floor is not None
    assert np.mean(np.array(largest) <= floor) == pytest.approx(0.975, abs=0.012)


def test_no_batch_no_floor() -> None:
    assert null_floor_over({}) is None


# Tally.


def tally_of(aucs: list[float | None], sizes: tuple[int, int] = (30, 70)) -> dict[str, float | int | None]:
    tally = LeakTally()
    for auc in aucs:
        tally.add(auc, *sizes)
    return tally.summary()


def test_a_tally() -> None:
    found = tally_of([None, *(k / 100 for k in range(1, 101)), None])
    assert [found[key] for key in ("mean", "p95", "max", "batches", "skipped")] == [
        pytest.approx(0.505),
        0.95,
        1,
        100,
        2,
    ]
    assert found["null_floor"] == pytest.approx(null_floor(30, 70), abs=1e-9)


@pytest.mark.parametrize("count", [1, 2, 19, 20, 33, 334])
def test_p95_is_the_nearest_rank(count: int) -> None:
    aucs = np.random.default_rng(count).random(count)
    assert tally_of(aucs.tolist())["p95"] == np.quantile(aucs, 0.95, method="nearest")


def test_intervals_are_those_of_a_bootstrap() -> None:
    drawn = np.random.default_rng(3)
    aucs = drawn.beta(20, 14, 400)
    found = tally_of(aucs.tolist())
    again = aucs[drawn.integers(0, len(aucs), (4000, len(aucs)))]
    for name, figures in (("mean", again.mean(axis=1)), ("p95", np.quantile(again, 0.95, axis=1, method="nearest"))):
        low, high = np.quantile(figures, [0.025, 0.975])
        assert found[f"{name}_low"] == pytest.approx(low, abs=0.008)
        assert found[f"{name}_high"] == pytest.approx(high, abs=0.008)


def test_an_auc_of_zero_counts() -> None:
    found = tally_of([0.0])
    assert (found["mean"], found["p95"], found["max"], found["batches"]) == (0, 0, 0, 1)


def test_nothing_to_tally() -> None:
    found = LeakTally().summary()
    assert (found.pop("batches"), found.pop("skipped")) == (0, 0)
    assert found.keys() == tally_of([0.5]).keys() - {"batches", "skipped"}
    assert set(found.values()) == {None}


def test_tallies_are_their_own() -> None:
    LeakTally().add(0.5, 1, 1)
    assert LeakTally().summary()["batches"] == 0


def test_pooled_figures() -> None:
    names = ["pooled", "pooled_flipped", "pooled_last", "pooled_last_flipped", "pooled_last_null_floor"]
    assert pooled_figures([]) == dict.fromkeys(names)
    epochs = [EpochLeak(0.3, 0.7), EpochLeak(0.6, 0.8, 0.55)]
    assert pooled_figures(epochs) == pytest.approx(dict(zip(names, (0.45, 0.75, 0.6, 0.8, 0.55), strict=True)))


def test_flipped_tallies() -> None:
    found = tally_of([0.2, 0.5, 0.6])
    assert found["mean_flipped"] == pytest.approx((0.8 + 0.5 + 0.6) / 3)
    assert (found["p95_flipped"], found["max_flipped"]) == (0.8, 0.8)


def test_null_floor_is_the_p95_of_flipped_aucs() -> None:
    random = np.random.default_rng(0)
    y = np.arange(60) < 20
    flips = [flipped(leak_auc(random.normal(size=60), y) or 0.5) for _ in range(4000)]
    assert np.quantile(flips, 0.95) == pytest.approx(null_floor(20, 40), abs=0.006)
