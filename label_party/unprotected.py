"""Counts what leaves as it is: nothing goes out unprotected without being counted and shown.

Shape suffixes: B rows of the batch, d cut-layer width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field

import torch
from torch import Tensor

from cutlayer.common.checkpoints import Tensors


@dataclass
class Releases:
    """What one party was sent: rows and steps, and how many of each left as they were."""

    rows: int = 0
    exact_rows: int = 0
    steps: int = 0
    exact_steps: int = 0

    def add(self, g_Bd: Tensor | None, sent_Bd: Tensor) -> None:
        """One release; a batch of zeros, whose rows are all alike, tells nothing and does not count as exact."""
        self.rows += len(sent_Bd)
        self.steps += 1
        if g_Bd is None:
            return
        alike = (g_Bd[:, 0] == sent_Bd[:, 0]).nonzero().squeeze(1)  # seldom any: then that is all the work
        exact = int((g_Bd[alike] == sent_Bd[alike]).all(dim=1).sum()) if len(alike) and bool(g_Bd.any()) else 0
        self.exact_rows += exact
        self.exact_steps += exact == len(g_Bd)


@dataclass
class Unprotected:
    """The releases to each party."""

    parties: dict[str, Releases] = field(default_factory=dict)

    def add(self, party: str, g_Bd: Tensor | None, sent_Bd: Tensor) -> None:
        """`sent_Bd` left for `party` in place of the exact gradient `g_Bd`; None where no row's rests on its label."""
        self.parties.setdefault(party, Releases()).add(g_Bd, sent_Bd)

    @property
    def exact_steps(self) -> int:
        """How many releases left as they were."""
        return sum(counts.exact_steps for counts in self.parties.values())

    def tensors(self) -> Tensors:
        """What a checkpoint must hold."""
        return {party: torch.tensor(astuple(counts)) for party, counts in self.parties.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self.parties = {party: Releases(*counts.tolist()) for party, counts in tensors.items()}
