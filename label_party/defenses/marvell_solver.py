"""The exact solution of Marvell's noise problem: Li et al., ICLR 2022, Theorem 2 and section 4.2; the solver is derived.

Class 1 has variance v per coordinate, class 0 has u, their means are sqrt(gap) apart in d dimensions. Noise of class
c has variance l1_c along the difference of the means and l2_c across it. With A = l1_0 + u, B = l1_1 + v, and S the
variance across of the class that gets isotropic noise, minimise twice the sum of the KL divergences,

    M = (d - 1) (S - v)^2 / (S v) + (A - B)^2 / (A B) + gap (1/A + 1/B),

at a mean noise power of at most `power`. Only the class of smaller variance gets isotropic noise, so that M, minimised
over A and B in closed form, is a convex function of S alone; its root of the slope is found in 1/S^2.

Inside, class a is that of smaller variance, `wa` its share of the rows; class b the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.optimize import brentq

_TOLERANCE = 1e-11  # of S; M is flat there, so its own error is of the order of the square
_MAX_ITERATIONS = 200


@dataclass(frozen=True)
class Spectrum:
    """Variances of the noise: along the difference of the class means (l1) and across it (l2), per class."""

    l1_0: float
    l2_0: float
    l1_1: float
    l2_1: float
    sum_kl: float


@dataclass(frozen=True)
class _Problem:
    """u, v >= 0 with u <= v: variances of class a and b; wa + wb = 1."""

    u: float
    v: float
    n: float  # d - 1
    g: float
    wa: float
    wb: float
    power: float

    def free(self, x: float) -> tuple[float, float]:
        """Best noise of class a along the difference if nothing bounded it, where it gets `x` across; and the most."""
        rest = self.power - self.wa * self.n * x
        total = rest + self.wa * self.u + self.wb * self.v
        ratio = math.sqrt((total + self.wa * self.g) / (total + self.wb * self.g)) if total + self.g > 0 else 1.0
        return (rest + self.wb * (self.v - ratio * self.u)) / (self.wa + self.wb * ratio), rest / self.wa

    def along(self, x: float) -> tuple[float, float]:
        """Best noise along the difference, (class a, class b), where class a gets `x` across it."""
        free, most = self.free(x)
        a = max(min(free, most), x)
        return a, max(self.wa * (most - a), 0.0) / self.wb

    def slope(self, s: float) -> float:
        """dM/dS over n, at S = s, to its left where it jumps; increasing."""
        x = s - self.u
        free, most = self.free(x)
        across = 1 / self.v - self.v / (s * s)
        if free >= most:  # class b gets no noise
            return (self.v + self.g) / (most + self.u) ** 2 - self.v / (s * s)
        if free <= x:  # class a gets no more along than across
            big_b = self.v + max(self.wa * (most - x), 0.0) / self.wb
            along = (1 / big_b - (big_b + self.g) / (s * s)) / self.n
            share = self.wa * (self.n + 1) / (self.wb * self.n)
            return across + along - share * (1 / s - (s + self.g) / (big_b * big_b))
        c = self.power + self.wa * self.u + self.wb * self.v - self.wa * self.n * x
        w = math.sqrt((c + self.wa * self.g) * (c + self.wb * self.g))
        return across + self.wa * self.g / (c * c) * (1 + (c + 2 * self.wa * self.wb * self.g) / w)

    def sum_kl(self, x: float, a: float, b: float) -> float:
        """M/2, without cancellation."""
        s, big_a, big_b = x + self.u, a + self.u, b + self.v
        return 0.5 * (
            self.n * _gap_over_product(s, self.v)
            + _gap_over_product(big_a, big_b)
            + (_over(self.g, big_a) + _over(self.g, big_b))
        )


def solve(*, u: float, v: float, d: int, gap: float, p: float, power: float) -> Spectrum:
    """The noise that minimises the sum of the KL divergences.

    Args:
        u, v: variance per coordinate of class 0 and class 1.
        d: cut-layer width.
        gap: squared distance of the class means.
        p: share of class 1, in (0, 1).
        power: most noise power per row, the expected squared norm over both classes.

    Returns:
        the spectrum; `sum_kl` is infinite where the noise cannot hide a class that has no spread at all.
    """
    swap = u > v
    problem = _Problem(
        u=min(u, v), v=max(u, v), n=d - 1, g=gap, wa=p if swap else 1 - p, wb=1 - p if swap else p, power=max(power, 0.0)
    )
    x = _across(problem)
    a, b = problem.along(x)
    kl = problem.sum_kl(x, a, b)
    return Spectrum(b, 0.0, a, x, kl) if swap else Spectrum(a, x, b, 0.0, kl)


def solve_for(*, u: float, v: float, d: int, gap: float, p: float, sum_kl: float) -> tuple[float, Spectrum]:
    """The smallest power, and its spectrum, at which the sum of the KL divergences is at most `sum_kl` > 0."""

    def excess(log_power: float) -> float:
        reached = solve(u=u, v=v, d=d, gap=gap, p=p, power=math.exp(log_power)).sum_kl
        return math.log(reached / sum_kl) if reached > 0 else -1e3

    unprotected = solve(u=u, v=v, d=d, gap=gap, p=p, power=0.0)
    if unprotected.sum_kl <= sum_kl:
        return 0.0, unprotected
    low = high = math.log(gap + d * max(u, v))
    while excess(high) > 0:
        low, high = high, high + 3.0
    while excess(low) <= 0:
        low, high = low - 3.0, low
    power = math.exp(brentq(lambda t: min(excess(t), 1e3), low, high, xtol=1e-12, rtol=1e-12) + 1e-12)
    return power, solve(u=u, v=v, d=d, gap=gap, p=p, power=power)


def _across(problem: _Problem) -> float:
    """Isotropic noise of class a: where the slope is zero, or an end of what is allowed."""
    u, v, n = problem.u, problem.v, problem.n
    if n == 0 or u == v or problem.power == 0:
        return 0.0
    top = u + min(v - u, problem.power / (problem.wa * (n + 1)))
    if top == u:
        return 0.0
    slope = problem.slope(top)
    if slope <= 0:
        return top - u
    if u > 0 and problem.slope(u) >= 0:
        return 0.0
    return max(_root(problem, u, top, slope) - u, 0.0)


def _root(problem: _Problem, low: float, high: float, slope: float) -> float:
    """Where the slope is zero, in (low, high]: secant steps in y = 1/S^2, in which it is nearly linear."""
    y, per_y = 1 / (high * high), -problem.v
    for _ in range(_MAX_ITERATIONS):
        s_old = 1 / math.sqrt(y)
        y_new = y - slope / per_y
        s = 1 / math.sqrt(y_new) if y_new > 0 else high
        if abs(s - s_old) <= _TOLERANCE * s_old:
            return s
        if not low < s < high:
            s = math.sqrt(low * high) if low > 0 else high / 4
            y_new = 1 / (s * s)
        slope_new = problem.slope(s)
        if slope_new == 0 or high - low <= _TOLERANCE * high:
            return s
        low, high = (low, s) if slope_new > 0 else (s, high)
        if slope_new != slope and y_new != y:
            per_y = min((slope_new - slope) / (y_new - y), -1e-300)
        y, slope = y_new, slope_new
    return 1 / math.sqrt(y)


def _gap_over_product(a: float, b: float) -> float:
    return 0.0 if a == b else _over((a - b) / a * (a - b), b) if a > 0 else math.inf


def _over(a: float, b: float) -> float:
    if a == 0:
        return 0.0
    return a / b if b > 0 else math.inf
