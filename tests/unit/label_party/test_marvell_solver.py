"""The noise problem of Marvell (Li et al., ICLR 2022, section 4.2) against golden vectors and a slow exact solver."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import TypedDict

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cutlayer.common.leakage import sum_kl_of
from cutlayer.label_party.defenses.marvell_solver import Spectrum, solve, solve_for

EXACT = 1e-12
NOTHING = 1e-20  # a sum of KL divergences that is rounding: classes whose noise makes them equal
SHRINK = (Decimal(5).sqrt() - 1) / 2  # of golden-section search


class Classes(TypedDict):
    u: float
    v: float
    d: int
    gap: float
    p: float


def sizes(low: int = -12, high: int = 6) -> st.SearchStrategy[float]:
    return st.just(0.0) | st.floats(low, high).map(lambda exponent: 10**exponent)


def ratios() -> st.SearchStrategy[float]:
    return st.floats(-2, 2).map(lambda exponent: 10**exponent)


@st.composite
def classes(draw: st.DrawFn) -> Classes:
    p = draw(st.integers(1, 1023)) / 1024  # 1 - p is exact
    d = draw(st.integers(1, 4096) | st.integers(1, 3))
    return Classes(u=draw(sizes()), v=draw(sizes()), d=d, gap=draw(sizes()), p=p)


def power_of(of: Classes, ratio: float) -> float:
    return ratio * (of["gap"] or of["u"] + of["v"])


# Golden vectors: (u, v, d, gap, p), power -> l1_0, l2_0, l1_1, l2_1, sum_kl.


@pytest.mark.parametrize(
    ("problem", "power", "expected"),
    [
        ((1e-4, 4e-4, 16, 0.01, 0.25), 0.01, (0.0065503, 0.000278645, 0.00781008, 0, 1.405715423)),
        ((1e-4, 4e-4, 16, 0.01, 0.25), 0.04, (0.0361507, 0.00029913, 0.0380871, 0, 0.2696700885)),
        ((4e-4, 1e-4, 16, 0.01, 0.25), 0.01, (0.00838942, 0, 0.0103986, 0.00029554, 1.061890544)),
        ((2e-4, 2e-4, 16, 0.01, 0.25), 0.01, (0.00955948, 0, 0.0113216, 0, 0.960097879)),
        ((1e-4, 2e-4, 1, 0.001, 0.3), 0.002, (0.00198058, 0, 0.0020453, 0, 0.4659081743)),
        ((0, 0, 64, 0.001, 0.3), 0.002, (0.00195114, 0, 0.00211401, 0, 0.4959935794)),
        ((1e-4, 0, 64, 0.001, 0.3), 0.002, (0.000296272, 0, 0.000493573, 8.70126e-5, 2.90960836)),
        ((1e-4, 4e-4, 16, 0.01, 0.05), 0.01, (0.00599788, 0.000270628, 0.0089113, 0, 1.491515405)),
    ],
)
def test_golden(problem: tuple[float, float, int, float, float], power: float, expected: tuple[float, ...]) -> None:
    u, v, d, gap, p = problem
    found = solve(u=u, v=v, d=d, gap=gap, p=p, power=power)
    assert (found.l1_0, found.l2_0, found.l1_1, found.l2_1) == pytest.approx(expected[:4], rel=5e-6, abs=0)
    assert found.sum_kl == pytest.approx(expected[4], rel=1e-9)


def test_golden_where_the_variances_cost_most() -> None:
    """The vector's l1_0 is from a less exact solver; what is minimised is flat there."""
    found = solve(u=1e-9, v=3e-9, d=128, gap=5e-10, p=0.25, power=5e-10)
    assert found.sum_kl == pytest.approx(84.77215887, rel=1e-9)
    assert found.l1_0 == pytest.approx(8.50532e-11, rel=1e-3)
    assert found.l2_0 == pytest.approx(4.57963e-12, rel=1e-3)
    assert (found.l1_1, found.l2_1) == (0, 0)


def test_golden_without_noise() -> None:
    assert solve(u=1e-4, v=4e-4, d=16, gap=0.01, p=0.25, power=0).sum_kl == pytest.approx(80.5)


# Properties.


@settings(max_examples=60, deadline=None)
@given(classes(), ratios())
@example(Classes(u=0.0, v=1e6, d=4096, gap=1e-12, p=1 / 1024), 0.01)
@example(Classes(u=1e-12, v=1e6, d=4096, gap=1e-12, p=1023 / 1024), 0.01)
@example(Classes(u=1e6, v=1e-12, d=2, gap=1e6, p=0.5), 100.0)
@example(Classes(u=1.0, v=1.0 + 2**-52, d=4096, gap=1e-12, p=0.25), 1.0)
@example(Classes(u=1e-12, v=1e-12, d=4096, gap=1e6, p=0.25), 100.0)
def test_is_the_minimum_and_keeps_the_budget(of: Classes, ratio: float) -> None:
    power = power_of(of, ratio)
    found = solve(**of, power=power)
    check_is_allowed(found, of, power)
    best = reference(of, power)
    assert float(abs(Decimal(found.sum_kl) - best)) <= EXACT * float(best) + NOTHING


def check_is_allowed(found: Spectrum, of: Classes, power: float) -> None:
    n, p = of["d"] - 1, of["p"]
    spent = (1 - p) * (found.l1_0 + n * found.l2_0) + p * (found.l1_1 + n * found.l2_1)
    assert spent <= power * (1 + EXACT)
    assert found.l1_0 >= found.l2_0 >= 0
    assert found.l1_1 >= found.l2_1 >= 0
    assert (found.l2_1 if of["u"] <= of["v"] else found.l2_0) == 0


@settings(max_examples=100, deadline=None)
@given(classes(), ratios())
def test_sum_kl_is_that_of_the_spectrum(of: Classes, ratio: float) -> None:
    found = solve(**of, power=power_of(of, ratio))
    with localcontext(prec=60):
        big_a, s_a = Decimal(of["u"]) + Decimal(found.l1_0), Decimal(of["u"]) + Decimal(found.l2_0)
        big_b, s_b = Decimal(of["v"]) + Decimal(found.l1_1), Decimal(of["v"]) + Decimal(found.l2_1)
        doubled = over((big_a - big_b) ** 2, big_a * big_b) + over(Decimal(of["gap"]), big_a)
        doubled += over(Decimal(of["gap"]), big_b)
        doubled += (of["d"] - 1) * over((s_a - s_b) ** 2, s_a * s_b) if of["d"] > 1 else 0
    # the spectrum itself is rounded: of differences that vanish, only that they do is left of it
    assert found.sum_kl == pytest.approx(float(doubled / 2), rel=1e-9, abs=NOTHING)


@settings(deadline=None)
@given(classes(), ratios(), st.floats(1.001, 1000))
def test_more_power_hides_no_less(of: Classes, ratio: float, more: float) -> None:
    power = power_of(of, ratio)
    assert solve(**of, power=more * power).sum_kl <= solve(**of, power=power).sum_kl * (1 + EXACT) + NOTHING


@settings(deadline=None)
@given(classes(), ratios())
def test_the_classes_may_swap(of: Classes, ratio: float) -> None:
    power = power_of(of, ratio)
    found = solve(**of, power=power)
    swapped = solve(**swap(of), power=power)
    assert swapped.sum_kl == pytest.approx(found.sum_kl, rel=EXACT, abs=NOTHING)
    noise = (swapped.l1_1, swapped.l2_1, swapped.l1_0, swapped.l2_0)
    assert noise == pytest.approx((found.l1_0, found.l2_0, found.l1_1, found.l2_1), rel=1e-6, abs=1e-9 * power)


@settings(deadline=None)
@given(classes(), ratios(), st.integers(-60, 60))
def test_units_do_not_matter(of: Classes, ratio: float, exponent: int) -> None:
    unit = 2.0**exponent
    other = Classes(u=of["u"] * unit, v=of["v"] * unit, d=of["d"], gap=of["gap"] * unit, p=of["p"])
    found, scaled = (solve(**c, power=power_of(c, ratio)) for c in (of, other))
    assert scaled.sum_kl == pytest.approx(found.sum_kl, rel=EXACT, abs=NOTHING)
    assert scaled.l1_0 == pytest.approx(found.l1_0 * unit, rel=1e-6, abs=1e-9 * power_of(other, ratio))


@pytest.mark.parametrize("gap", [0.0, 1.0])
def test_no_noise_cannot_hide_a_class_without_spread(gap: float) -> None:
    assert solve(u=0, v=1, d=4, gap=gap, p=0.5, power=0).sum_kl == math.inf


def test_equal_classes_need_no_noise() -> None:
    assert solve(u=1, v=1, d=4, gap=0, p=0.5, power=0) == Spectrum(0, 0, 0, 0, 0)


# The smallest power that does.


@settings(deadline=None)
@given(classes(), st.floats(0.501, 0.999))
def test_the_smallest_power(of: Classes, auc: float) -> None:
    target = sum_kl_of(auc)
    power, found = solve_for(**of, sum_kl=target)
    assert found == solve(**of, power=power)
    assert found.sum_kl <= target
    if power > 0:
        assert solve(**of, power=power * (1 - 1e-6)).sum_kl > target
    else:
        assert solve(**of, power=0).sum_kl <= target


def test_the_power_found_is_the_power_given() -> None:
    of = Classes(u=1e-4, v=4e-4, d=16, gap=0.01, p=0.25)
    power, _ = solve_for(**of, sum_kl=solve(**of, power=0.04).sum_kl)
    assert power == pytest.approx(0.04, rel=1e-8)


# A slow solver to hold the fast one to: golden-section search in decimals.


def swap(of: Classes) -> Classes:
    return Classes(u=of["v"], v=of["u"], d=of["d"], gap=of["gap"], p=1 - of["p"])


def reference(of: Classes, power: float) -> Decimal:
    """The least sum of the KL divergences, to some 30 digits.

    Class 0 gets isotropic noise that takes its variance across from u to s; along, A = C / (p E + 1 - p) with
    E = sqrt((C + (1-p) gap) / (C + p gap)) were it not bounded. What is minimised is convex in log s.
    """
    if of["u"] > of["v"]:
        return reference(swap(of), power)
    with localcontext(prec=60):
        u, v, gap, p, budget = (Decimal(x) for x in (of["u"], of["v"], of["gap"], of["p"], power))
        n = of["d"] - 1

        def doubled(s: Decimal) -> Decimal:
            most = budget / (1 - p) - n * (s - u)
            c = (1 - p) * (u + most) + p * v
            e = ((c + (1 - p) * gap) / (c + p * gap)).sqrt() if c + gap else Decimal(1)
            a = min(max(c / (p * e + 1 - p), s), u + most)
            b = (c - (1 - p) * a) / p
            across = n * over((s - v) ** 2, s * v) if n else Decimal(0)
            return across + over((a - b) ** 2, a * b) + over(gap, a) + over(gap, b)

        top = u + budget / ((1 - p) * of["d"])
        if n == 0 or top == u:
            return doubled(u) / 2
        bottom = u or top * Decimal("1e-40")
        inside = least(lambda log_s: doubled(log_s.exp()), bottom.ln(), top.ln())
        return min(inside, doubled(u), doubled(top)) / 2


def least(f: Callable[[Decimal], Decimal], low: Decimal, high: Decimal) -> Decimal:
    """The least value of a convex `f`, by golden-section search."""
    left, right = high - SHRINK * (high - low), low + SHRINK * (high - low)
    at_left, at_right = f(left), f(right)
    while high - low > Decimal("1e-18"):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - SHRINK * (high - low)
            at_left = f(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + SHRINK * (high - low)
            at_right = f(right)
    return min(at_left, at_right)


def over(a: Decimal, b: Decimal) -> Decimal:
    if a == 0:
        return Decimal(0)
    return a / b if b else Decimal("inf")
