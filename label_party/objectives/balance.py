"""The weight of one part of a gradient against the other, by hand or so that both are as long in the mean.

Shape suffixes: B rows of the batch, d width of the aggregated activations.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cutlayer.common.checkpoints import Tensors
from cutlayer.common.scores import norms


class Balance:
    """gamma, given or found.

    Args:
        given: None to find it: the mean length of the rows of one part over that of the other, over the first
            `batches` batches, those so far while they last.
    """

    def __init__(self, given: float | None, batches: int) -> None:
        self.found = given is None
        self.gamma = 1.0 if given is None else given
        self._batches = batches
        self._lengths = torch.zeros(2, dtype=torch.float64)  # sums over batches
        self._seen = 0

    @property
    def settled(self) -> bool:
        """Whether gamma stays as it is."""
        return not self.found or self._seen >= self._batches

    def weigh(self, one_Bd: Tensor, other_Bd: Tensor) -> float:
        """The weight of `other_Bd` in this batch, where `one_Bd` has 1."""
        if not self.settled:
            self._lengths += torch.stack([norms(one_Bd).mean(), norms(other_Bd).mean()])
            self._seen += 1
            one, other = self._lengths.tolist()
            self.gamma = one / other if one > 0 and other > 0 else 1.0
        return self.gamma

    def tensors(self) -> Tensors:
        """What a checkpoint must hold."""
        return {"lengths": self._lengths.clone(), "seen": torch.tensor(self._seen)} if self.found else {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        if self.found:
            self._lengths, self._seen = tensors["lengths"].clone(), int(tensors["seen"])
            one, other = self._lengths.tolist()
            self.gamma = one / other if one > 0 and other > 0 else 1.0
