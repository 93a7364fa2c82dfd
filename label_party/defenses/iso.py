"""Isotropic noise: Li et al., "Label Leakage and Protection in Two-party Split Learning", ICLR 2022, section 4."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from cutlayer.common.randomness import Noise
from cutlayer.common.scores import norms
from cutlayer.label_party.defenses.base import Defense, defenses

_T = 1.0  # where the run file says nothing


@defenses.register("iso")
@dataclass(kw_only=True)
class IsotropicNoise(Defense):
    """Adds Gaussian noise of the same strength in every direction: N(0, (t/d) max ||g||^2 I).

    Options: `t`, the power of the noise over that of the largest row (default 1), or `ratio`, its square root,
    which is what the authors' code calls so.
    """

    paper: ClassVar[str] = "Li et al., ICLR 2022"
    one_of: ClassVar[Mapping[str, float | None]] = {"t": _T, "ratio": None}
    t: float | None = None
    ratio: float | None = None

    def __post_init__(self) -> None:
        if self.t is not None and self.ratio is not None:
            raise ValueError("give t or ratio (t = ratio squared), not both")
        if any(value is not None and not 0 < value < math.inf for value in (self.t, self.ratio)):
            raise ValueError("t and ratio are numbers above 0")

    @property
    def power(self) -> float:
        """t, however it was given."""
        if self.ratio is not None:
            return self.ratio**2
        return _T if self.t is None else self.t

    def perturb(self, g_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Tensor:
        """`g_Bd` with noise on every number."""
        sigma = math.sqrt(self.power / g_Bd.shape[1]) * float(norms(g_Bd).max())
        return noise.normal(tuple(g_Bd.shape)).to(g_Bd.dtype).mul_(sigma).add_(g_Bd)
