"""The exact solution of Marvell's noise problem: Li et al., ICLR 2022, Theorem 2 and section 4.2; solver derived.

Class 1 has variance v per coordinate, class 0 has u; their means are sqrt(gap) apart in d dimensions. Noise of class
c has variance l1_c along the difference of the means and l2_c across it. Only the class of smaller variance needs noise
across. Take u <= v (else the classes swap roles), write q = 1 - p and

    x = l2_0,  a = l1_0 >= x,  b = l1_1 >= 0,  S = u + x,  A = u + a,  B = v + b.

Minimise twice the sum of the KL divergences, M = (d-1) (S-v)^2/(S v) + (A-B)^2/(A B) + gap (1/A + 1/B),
where q a + p b = power - q (d-1) x, as the budget is always spent. This is convex in log S, log A and log B. So the
best x is that of the problem without the bounds on a and b, unless it breaks one: then one that it breaks is tight. For
given x the best a and b have a closed form, hence each of the three cases is one equation in x.

Differences such as v - u and S - v = x - (v - u) are formed once, exactly: nothing cancels where u and v nearly agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

_TOLERANCE = 1e-11  # of x; M is flat at its minimum, so its own error is of the order of the square
_MAX_ITERATIONS = 100  # 13 were the most in 100,000 random problems
_NEGLIGIBLE = 1e-200  # a power of that share of the other quantities is none: its square would underflow


@dataclass(frozen=True)
class Spectrum:
    """Variances of the noise: along the difference of the class means (l1) and across it (l2), per class.

    `sum_kl` is KL(P1||P0) + KL(P0||P1) of the two Gaussians with that noise.
    """

    l1_0: float
    l2_0: float
    l1_1: float
    l2_1: float
    sum_kl: float


def solve(*, u: float, v: float, d: int, gap: float, p: float, power: float) -> Spectrum:
    """The noise that minimises the sum of the KL divergences.

    Args:
        u, v: variance per coordinate of class 0 and class 1, >= 0.
        d: cut-layer width.
        gap: squared distance of the class means, >= 0.
        p: share of class 1, in (0, 1).
        power: expected squared norm of a row's noise, over both classes; none where <= 0.

    Returns:
        the spectrum, in the units of `power`; `sum_kl` is infinite where a class without any spread stays so.
    """
    unit = math.ldexp(1.0, math.frexp(u + v + gap + max(power, 0.0))[1])  # a power of two: scaling by it is exact
    swap = u > v
    low, high, q, p = (v, u, p, 1 - p) if swap else (u, v, 1 - p, p)
    problem = _Problem(low / unit, high / unit, d - 1, gap / unit, q, p, power / unit)
    if problem.power <= _NEGLIGIBLE:
        return Spectrum(0.0, 0.0, 0.0, 0.0, problem.sum_kl_without_noise())
    x = _across(problem)
    a, b = problem.along(x)
    sum_kl = problem.sum_kl(x, a, b)
    if swap:
        return Spectrum(b * unit, 0.0, a * unit, x * unit, sum_kl)
    return Spectrum(a * unit, x * unit, b * unit, 0.0, sum_kl)


def solve_for(*, u: float, v: float, d: int, gap: float, p: float, sum_kl: float) -> tuple[float, Spectrum]:
    """The smallest power, to a relative 1e-9, whose `solve` has at most `sum_kl` > 0; and that solution.

    The power is 0 where the classes are that hard to tell apart as they are.
    """
    at_power = partial(solve, u=u, v=v, d=d, gap=gap, p=p)
    bare = at_power(power=0.0)
    if bare.sum_kl <= sum_kl:
        return 0.0, bare

    def margin(log_power: float) -> float:
        reached = at_power(power=math.exp(log_power)).sum_kl
        return math.log(sum_kl / min(max(reached, 1e-300), 1e300))

    low = high = math.log(gap + d * (u + v))
    while margin(high) < 0:
        low, high = high, high + 3.0
    while margin(low) >= 0:
        low, high = low - 3.0, low
    power = math.exp(low + _root(lambda t: margin(low + t), high - low)) * (1 + 1e-9)
    return power, at_power(power=power)


def sum_kl_with(spectrum: Spectrum, *, u: float, v: float, d: int, gap: float) -> float:
    """What `spectrum.sum_kl` would be for classes of these variances, whatever it was chosen for."""
    a1, b1 = spectrum.l1_0 + u, spectrum.l1_1 + v
    across = (d - 1) * _divergence(spectrum.l2_0 + u, spectrum.l2_1 + v) if d > 1 else 0.0
    apart = gap * (1 / a1 + 1 / b1) if a1 and b1 else math.inf
    return 0.5 * (across + _divergence(a1, b1) + (apart if gap else 0.0))


def _divergence(a: float, b: float) -> float:
    """(a - b)^2 / (a b): twice the sum of both KL divergences of two normal distributions of one mean."""
    if a == b:
        return 0.0
    return (a - b) / a * ((a - b) / b) if a and b else math.inf


@dataclass(frozen=True, slots=True)
class _Problem:
    """The problem for u <= v; q + p = 1; n = d - 1; g is the gap."""

    u: float
    v: float
    n: int
    g: float
    q: float
    p: float
    power: float

    def rest(self, x: float) -> float:
        """What x leaves of the power for a and b."""
        return self.power - self.q * self.n * x

    def free_a(self, x: float) -> float:
        """The best a for given x, were a and b not bounded: B/A = e = sqrt((C + q g) / (C + p g)), C = q A + p B."""
        rest = self.rest(x)
        c = rest + self.q * self.u + self.p * self.v
        square_less_one = (self.q - self.p) * self.g / (c + self.p * self.g)
        e = math.sqrt(1 + square_less_one)
        e_less_one = square_less_one / (1 + e)
        return (rest + self.p * (self.v - self.u - self.u * e_less_one)) / (self.q + self.p * e)

    def along(self, x: float) -> tuple[float, float]:
        """The best a and b for given x."""
        rest = self.rest(x)
        a = max(min(self.free_a(x), rest / self.q), x)
        return a, max(rest - self.q * a, 0.0) / self.p

    def free_slope(self, x: float) -> float:
        """Has the sign of dM/dx where neither bound is tight: that of S sqrt(C^2 + t) - v C, nearly linear in x."""
        u, v, g, q, p = self.u, self.v, self.g, self.q, self.p
        s, c = u + x, self.rest(x) + q * u + p * v
        e = math.sqrt((c + q * g) / (c + p * g))
        t = q * v * g * (1 + p * e + q / e)
        return ((x - (v - u)) * (s + v) * c * c + t * s * s) / (s * math.sqrt(c * c + t) + v * c)

    def without_b(self) -> float:
        """The best x where class b gets no noise: A = S sqrt(1 + g/v)."""
        ratio = math.sqrt(1 + self.g / self.v)
        return max((self.power / self.q - (ratio - 1) * self.u) / (self.n + ratio), 0.0)

    def isotropic_slope(self, x: float) -> float:
        """Has the sign of dM/dx where class a gets as much across as along, a = x: that of S^2 dM/dx."""
        v, g, s = self.v, self.g, self.u + x
        b = v + (self.power - self.q * (self.n + 1) * x) / self.p
        across = self.n * (x - (v - self.u)) * (s + v) / v
        along = s * s / b - (b + g)
        return across + along - self.q * (self.n + 1) / self.p * (s - (s + g) * (s / b) ** 2)

    def sum_kl(self, x: float, a: float, b: float) -> float:
        """M/2."""
        spread = self.v - self.u
        big_a, big_b = self.u + a, self.v + b
        across = self.n * (x - spread) ** 2 / ((self.u + x) * self.v) if self.n and x < spread else 0.0
        return 0.5 * (across + (a - b - spread) ** 2 / (big_a * big_b) + self.g * (1 / big_a + 1 / big_b))

    def sum_kl_without_noise(self) -> float:
        """M/2 of the classes as they are."""
        if self.u == 0:
            return math.inf if self.v + self.g > 0 else 0.0
        return self.sum_kl(0.0, 0.0, 0.0)


def _across(problem: _Problem) -> float:
    """The best x."""
    most = min(problem.v - problem.u, problem.power / (problem.q * (problem.n + 1)))
    if problem.n == 0 or most == 0:
        return 0.0
    x = _root(problem.free_slope, most)
    a, b_is_free = problem.free_a(x), _b_is_free(problem, x)
    if b_is_free and a >= x:
        return x
    if not b_is_free:
        x = min(problem.without_b(), most)
        if not _b_is_free(problem, x):
            return x
    return _root(problem.isotropic_slope, most)


def _b_is_free(problem: _Problem, x: float) -> bool:
    return problem.q * problem.free_a(x) < problem.rest(x)


def _root(f: Callable[[float], float], most: float) -> float:
    """Where the increasing `f` is 0 in [0, most], or the end next to it (secants as by Anderson and Bjoerck, 1973)."""
    old, at_old = 0.0, f(0.0)
    if at_old >= 0:
        return old
    new, at_new = most, f(most)
    if at_new <= 0:
        return new
    for _ in range(_MAX_ITERATIONS):
        x = new - at_new * (new - old) / (at_new - at_old)
        at_x = f(x)
        if at_x == 0 or abs(x - new) <= _TOLERANCE * x:
            return x
        if (at_x < 0) == (at_new < 0):  # the old end stays: pull the next secant towards it
            shrink = 1 - at_x / at_new
            at_old *= shrink if shrink > 0 else 0.5
        else:
            old, at_old = new, at_new
        new, at_new = x, at_x
    return new
