"""Marvell: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, section 4.2.

Shape suffixes: B rows of the batch, d cut-layer width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from cutlayer.common.leakage import auc_bound, sum_kl_of
from cutlayer.common.randomness import Noise
from cutlayer.label_party.defenses.base import Defense, defenses
from cutlayer.label_party.defenses.marvell_solver import Spectrum, solve, solve_for, sum_kl_with
from cutlayer.label_party.defenses.max_norm import align_norms

_SCALE = 1.0  # where the run file says nothing
_KEEP = 0.9  # weight of the past in the running statistics
_MIN_MEMBERS = 2  # rows of a class from which its statistics mean something
_COUNTED = ("fallback_running", "fallback_max_norm", "batch_without_noise")


@dataclass(frozen=True)
class ClassStatistics:
    """Two classes of gradients, modelled as Gaussians with one variance each [M, section 4.2].

    Attributes:
        delta_d: mean of class 1 minus mean of class 0, float64.
        u, v: mean squared deviation per coordinate of class 0 and class 1.
        p: share of class 1.
    """

    delta_d: Tensor
    u: float
    v: float
    p: float

    @property
    def gap(self) -> float:
        """Squared distance of the means."""
        return float(self.delta_d @ self.delta_d)

    @classmethod
    def of(cls, g_Bd: Tensor, y_B: Tensor) -> ClassStatistics | None:
        """Statistics of a batch; None where a class has too few rows, or the means coincide."""
        rows = [g_Bd[y_B == label].double() for label in (0, 1)]
        if sum(map(len, rows)) != len(y_B):
            raise ValueError("a label is neither 0 nor 1")
        if min(map(len, rows)) < _MIN_MEMBERS:
            return None
        means = [r.mean(dim=0) for r in rows]
        # in place: fresh memory costs more than the arithmetic
        u, v = (float(r.sub_(mean).square_().mean()) for r, mean in zip(rows, means, strict=True))
        statistics = cls(means[1] - means[0], u, v, len(rows[1]) / len(y_B))
        return statistics if statistics.gap > 0 else None

    def variances(self, model: Literal["uv", "same", "zero"]) -> tuple[float, float]:
        """u and v as `model` takes them."""
        if model == "uv":
            return self.u, self.v
        mean = (self.u + self.v) / 2 if model == "same" else 0.0
        return mean, mean

    def sum_kl_with(self, spectrum: Spectrum) -> float:
        """The sum of the KL divergences with that noise, for the variances as they are, whatever was taken for them."""
        return sum_kl_with(spectrum, u=self.u, v=self.v, d=len(self.delta_d), gap=self.gap)

    def times(self, factor: float) -> ClassStatistics:
        """Statistics of the gradients times `factor`."""
        return ClassStatistics(self.delta_d * factor, self.u * factor**2, self.v * factor**2, self.p)

    def blend(self, newer: ClassStatistics) -> ClassStatistics:
        """Exponentially weighted with newer ones."""

        def mix(old: float, new: float) -> float:
            return _KEEP * old + (1 - _KEEP) * new

        delta_d = _KEEP * self.delta_d + (1 - _KEEP) * newer.delta_d
        return ClassStatistics(delta_d, mix(self.u, newer.u), mix(self.v, newer.v), mix(self.p, newer.p))


@defenses.register("marvell")
@dataclass(kw_only=True)
class Marvell(Defense):
    """Adds the Gaussian noise that, for its power, makes the two classes' gradients hardest to tell apart.

    Options, of which one is given: `scale`, the noise power over the squared distance of the class means (the paper's
    s; 1 by default); `power`, the power itself, which is the expected squared norm of the noise on a row;
    `max_leak_auc`, for the smallest power at which no attacker does better on one batch, if the classes are Gaussian:
    a batch that already meets it gets no noise.

    Where a class has fewer than two rows in the batch, or the means coincide, the running statistics of earlier batches
    serve instead. Before there are any, rows are stretched as by max_norm, but to twice the power, so that the longest
    row is changed as well. Both are counted, and so is a batch without noise. Only a batch of zeros leaves as it is.

    `model` is what is taken for the variances of the classes, u and v: `uv`, that of each class; `same`, their mean for
    both; `zero`, none, as if all gradients of a class were the same (the variants of the authors' code). What is stated
    as the bound is for the variances as they are, so only `uv` can hold a `max_leak_auc`.
    """

    paper: ClassVar[str] = "Li et al., ICLR 2022"
    tasks: ClassVar[frozenset[str]] = frozenset({"binary"})
    one_of: ClassVar[Mapping[str, float | None]] = {"scale": _SCALE, "power": None, "max_leak_auc": None}
    scale: float | None = None
    power: float | None = None
    max_leak_auc: float | None = None
    model: Literal["uv", "same", "zero"] = "uv"
    _running: ClassStatistics | None = field(default=None, init=False, repr=False)  # of B g: whatever the batch size
    _fallbacks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0), init=False, repr=False)
    _last: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.scale, self.power, self.max_leak_auc)) > 1:
            raise ValueError("give one of scale, power and max_leak_auc")
        if any(value is not None and not 0 < value < math.inf for value in (self.scale, self.power)):
            raise ValueError("scale and power are numbers above 0")
        if self.max_leak_auc is not None and not 0.5 < self.max_leak_auc < 1:
            raise ValueError("max_leak_auc lies between 0.5 and 1")
        if self.max_leak_auc is not None and self.model != "uv":
            raise ValueError(
                f"max_leak_auc would not be held with model: {self.model}; give scale or power, or model: uv"
            )

    def perturb(self, g_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Tensor:
        """`g_Bd` with the noise of each row's class."""
        statistics = self._statistics(g_Bd, y_B)
        if statistics is None:
            self._fallbacks["fallback_max_norm"] += 1
            self._last = {}
            return align_norms(g_Bd, noise, power=2.0)
        power, spectrum = self._solve(statistics)
        self._fallbacks["batch_without_noise"] += power == 0
        sum_kl = spectrum.sum_kl if self.model == "uv" else statistics.sum_kl_with(spectrum)
        self._last = {"power": power, "sum_kl": sum_kl, "bound": auc_bound(sum_kl)}
        return _draw(spectrum, statistics.delta_d, y_B, noise).to(g_Bd.dtype).add_(g_Bd)

    def telemetry(self) -> Mapping[str, float]:
        """Noise power, sum of the KL divergences and the bound on the leak AUC that follows, of the last step, unless
        max_norm served; and how often each fallback has served so far."""
        return self._last | self._fallbacks

    def counts(self) -> Mapping[str, int]:
        """How often running statistics or max_norm have served, and how many batches met the target as they were."""
        return dict(self._fallbacks)

    def state(self) -> Mapping[str, Tensor]:
        """The running statistics and the counts."""
        counts = torch.tensor(list(self._fallbacks.values()))
        if self._running is None:
            return {"fallbacks": counts}
        numbers = torch.tensor([self._running.u, self._running.v, self._running.p], dtype=torch.float64)
        return {"fallbacks": counts, "delta": self._running.delta_d.clone(), "u_v_p": numbers}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        counts = state["fallbacks"].tolist()  # older ones have no batches without noise
        self._fallbacks = dict.fromkeys(_COUNTED, 0) | dict(zip(_COUNTED, counts, strict=False))
        self._running = None
        if "delta" in state:
            self._running = ClassStatistics(state["delta"].clone(), *state["u_v_p"].tolist())

    def _statistics(self, g_Bd: Tensor, y_B: Tensor) -> ClassStatistics | None:
        rows = len(y_B)
        if (batch := ClassStatistics.of(g_Bd, y_B)) is not None:
            newer = batch.times(rows)
            self._running = newer if self._running is None else self._running.blend(newer)
            return batch
        if self._running is None or self._running.gap == 0:
            return None
        self._fallbacks["fallback_running"] += 1
        return self._running.times(1 / rows)

    def _solve(self, statistics: ClassStatistics) -> tuple[float, Spectrum]:
        u, v = statistics.variances(self.model)
        gap, p, d = statistics.gap, statistics.p, len(statistics.delta_d)
        if self.max_leak_auc is not None:
            return solve_for(u=u, v=v, d=d, gap=gap, p=p, sum_kl=sum_kl_of(self.max_leak_auc))
        power = self.power if self.power is not None else (self.scale or _SCALE) * gap
        return power, solve(u=u, v=v, d=d, gap=gap, p=p, power=power)


def _draw(spectrum: Spectrum, delta_d: Tensor, y_B: Tensor, noise: Noise) -> Tensor:
    """Noise of class c: sqrt(l1_c - l2_c) xi delta/||delta|| + sqrt(l2_c) N(0, I) [M, section 4.2], (B, d) float32.

    Both are drawn for every row, whatever its class needs, so that the time taken does not tell the classes.
    """
    along = torch.tensor([spectrum.l1_0 - spectrum.l2_0, spectrum.l1_1 - spectrum.l2_1], dtype=torch.float64).sqrt()
    across = torch.tensor([spectrum.l2_0, spectrum.l2_1], dtype=torch.float64).sqrt()
    xi_B = noise.normal((len(y_B),))
    zeta_Bd = noise.normal((len(y_B), len(delta_d)))
    along_B, across_B = along[y_B.long()].float() * xi_B, across[y_B.long()].float()
    return zeta_Bd.mul_(across_B[:, None]).addr_(along_B, (delta_d / delta_d.norm()).float())
