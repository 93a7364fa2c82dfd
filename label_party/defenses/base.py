"""The contract of a defense: what the label party does to a cut-layer gradient before it leaves.

Shape suffixes: B rows of the batch, d cut-layer width.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from cutlayer.common.errors import DefenseError
from cutlayer.common.randomness import Noise
from cutlayer.common.registry import Registry
from cutlayer.label_party.objectives import Objective, ObjectiveSetting


@dataclass(frozen=True)
class Perturbed:
    """A gradient (B, d) that a defense has passed. Only this type can be put on the wire."""

    g_Bd: Tensor


@dataclass(frozen=True)
class Search:
    """An option that the run file leaves open: short runs of all parties find it before the run.

    Attributes:
        values: what is tried for `option`.
        row_fraction: of all rows, how many the short runs have.
    """

    option: str
    values: tuple[Any, ...]
    row_fraction: float


class Defense(ABC):
    """Turns exact gradients into what may leave. Subclasses are dataclasses; their fields are the options.

    A method writes `perturb`. It draws randomness from `noise` alone, which is keyed by (secret, party,
    step, digest of z): the same z gets the same answer, so that replaying a step teaches nothing.
    One instance serves one non-label party.
    """

    paper: ClassVar[str]
    tasks: ClassVar[frozenset[str]] = frozenset({"binary", "multiclass"})
    passes_unchanged: ClassVar[bool] = False  # only `none` may send what it was given
    one_of: ClassVar[Mapping[str, float | None]] = {}  # of these one is given at most -> what holds where none is

    def objective(self, setting: ObjectiveSetting) -> Objective | None:
        """What to train by, in place of the cross-entropy of the job; asked once, of the first party's defense.

        Raises:
            ConfigError: it does not fit the setting.
        """
        return None

    def takes_probabilities(self) -> bool:
        """Whether each activation must be between 0 and 1."""
        return False

    def search(self) -> Search | None:
        """What `cutlayer run` must find before the run."""
        return None

    def encode_labels(self, y_B: Tensor) -> Tensor:
        """The labels to train on, in place of the true ones."""
        return y_B

    def perturb(self, g_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Tensor:
        """What may leave instead of `g_Bd`; same shape and dtype. Must not modify its arguments.

        Args:
            g_Bd: gradient of the mean loss with respect to the party's activations.
            y_B: true labels, 0/1 or 0..k-1.
        """
        return g_Bd

    def state(self) -> Mapping[str, Tensor]:
        """What a checkpoint must hold for `perturb` to go on with the same bits."""
        return {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, got {sorted(state)}")

    def telemetry(self) -> Mapping[str, float]:
        """Figures of the last step for the label party's own log: noise power, sum_kl, fallbacks."""
        return {}

    def counts(self) -> Mapping[str, int]:
        """How often so far something else than the method itself has served, by a name in words with underscores.

        Shown to a person, and kept in `summary.json`.
        """
        return {}

    @final
    def defend(self, g_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Perturbed:
        """`perturb`, failing closed.

        Raises:
            DefenseError: the method raised, or returned another shape or dtype, a number that is not
                finite, or the very gradient it was given. Nothing may be sent then.
        """
        try:
            with torch.no_grad():
                out_Bd = self.perturb(g_Bd, y_B, noise=noise)
        except Exception as error:
            raise DefenseError(f"defense {self!r} failed: {error}") from error
        if not isinstance(out_Bd, Tensor):
            raise DefenseError(f"defense {self!r} returned a {type(out_Bd).__name__}, expected a tensor")
        if out_Bd.shape != g_Bd.shape or out_Bd.dtype != g_Bd.dtype:
            raise DefenseError(
                f"defense {self!r} returned {tuple(out_Bd.shape)} {out_Bd.dtype}, "
                f"expected {tuple(g_Bd.shape)} {g_Bd.dtype}"
            )
        if not math.isfinite(float(out_Bd.abs().amax())):  # NaN too; an eighth of isfinite().all()
            raise DefenseError(f"defense {self!r} returned numbers that are not finite")
        if out_Bd.data_ptr() == g_Bd.data_ptr() and not self.passes_unchanged:  # itself, a view, or changed in place
            raise DefenseError(f"defense {self!r} returned the gradient it was given; declare `passes_unchanged`")
        return Perturbed(out_Bd)


defenses: Registry[Defense] = Registry("defense", "cutlayer.defenses")
