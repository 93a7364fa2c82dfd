"""Leak AUC of the scores of a whole epoch together, as Han and Guan take it (arXiv 2302.02245, section 5).

Scores of different batches are compared with each other here, as an attacker does who looks at an epoch as a whole.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.common.checkpoints import Tensors
from cutlayer.common.leakage import leak_auc, pooled_figures

Scores = npt.NDArray[np.float64]
Targets = npt.NDArray[np.bool_]


class PooledLeak:
    """One attack's scores of the epoch that goes on, by party, and the leak AUCs of those that have ended.

    Holds the scores of one epoch: 9 bytes for each training row and party.
    """

    def __init__(self) -> None:
        self._open: defaultdict[str, list[tuple[Scores, Targets]]] = defaultdict(list)
        self._ended: list[float] = []

    def add(self, party: str, score_B: Scores, target_B: Targets) -> None:
        """One batch's scores of rows that should, or should not, have a high one."""
        self._open[party].append((score_B, target_B))

    def end_epoch(self) -> float | None:
        """The leak AUC of the epoch that ends, of the party that leaks most; None where it is undefined."""
        found = [leak_auc(*map(np.concatenate, zip(*parts, strict=True))) for parts in self._open.values()]
        self._open.clear()
        known = [auc for auc in found if auc is not None]
        self._ended += [max(known)] if known else []
        return max(known, default=None)

    def summary(self) -> dict[str, float | None]:
        """Means over the epochs: `pooled`, and `pooled_flipped` for an attacker who may turn the score round."""
        return pooled_figures(self._ended)

    def tensors(self) -> Tensors:
        """What a checkpoint must hold."""
        parties = json.dumps(list(self._open)).encode()
        found = {"ended": torch.tensor(self._ended, dtype=torch.float64), "parties": torch.tensor(list(parties))}
        for number, parts in enumerate(self._open.values()):
            score_N, target_N = map(np.concatenate, zip(*parts, strict=True))
            found |= {f"score/{number}": torch.from_numpy(score_N), f"target/{number}": torch.from_numpy(target_N)}
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self._ended = tensors["ended"].tolist()
        self._open.clear()
        for number, party in enumerate(json.loads(bytes(tensors["parties"].tolist()))):
            self.add(party, tensors[f"score/{number}"].numpy(), tensors[f"target/{number}"].numpy())
