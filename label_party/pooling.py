"""Leak AUC of the scores of a whole epoch together, as Han and Guan take it (arXiv 2302.02245, section 5).

Scores of different batches are compared with each other here, as an attacker does who looks at an epoch as a whole.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.common.checkpoints import Tensors
from cutlayer.common.leakage import EpochLeak, flipped, leak_auc, null_floor, pooled_figures

Scores = npt.NDArray[np.float64]
Targets = npt.NDArray[np.bool_]


@dataclass
class _Open:
    """Scores of one party and the epoch that goes on, in blocks that grow.

    A small array for each step, which stays, would keep the large ones that come and go around it from being used
    again (see the tests of memory).
    """

    scores: bytearray = field(default_factory=bytearray)  # float64
    targets: bytearray = field(default_factory=bytearray)  # bool

    def add(self, score_B: Scores, target_B: Targets) -> None:
        self.scores += score_B.tobytes()
        self.targets += target_B.tobytes()

    def arrays(self) -> tuple[Scores, Targets]:
        """Copies, (N,)."""
        return np.frombuffer(self.scores).copy(), np.frombuffer(self.targets, dtype=np.bool_).copy()


class PooledLeak:
    """One attack's scores of the epoch that goes on, by party, and the leak AUCs of those that have ended.

    Holds the scores of one epoch: 9 bytes for each training row and party.

    Args:
        parties: how many there are.
    """

    def __init__(self, parties: int = 1) -> None:
        self._parties = parties
        self._open: defaultdict[str, _Open] = defaultdict(_Open)
        self._ended: list[EpochLeak] = []

    def add(self, party: str, score_B: Scores, target_B: Targets) -> None:
        """One batch's scores of rows that should, or should not, have a high one."""
        self._open[party].add(score_B, target_B)

    def end_epoch(self) -> EpochLeak | None:
        """The leak of the epoch that ends, of the party that leaks most; None where it is undefined."""
        joined = [scores.arrays() for scores in self._open.values()]
        self._open.clear()
        known = [auc for scores, targets in joined if (auc := leak_auc(scores, targets)) is not None]
        if not known:
            return None
        sizes = max((int(targets.sum()), int((~targets).sum())) for _, targets in joined)
        floor = null_floor(*sizes, self._parties)
        self._ended.append(EpochLeak(max(known), max(map(flipped, known)), floor))
        return self._ended[-1]

    def summary(self) -> dict[str, float | None]:
        """What `pooled_figures` says of the epochs that have ended."""
        return pooled_figures(self._ended)

    def tensors(self) -> Tensors:
        """What a checkpoint must hold."""
        parties = json.dumps(list(self._open)).encode()
        ended = [(e.auc, e.flipped, math.nan if e.floor is None else e.floor) for e in self._ended]
        found = {
            "ended": torch.tensor(ended, dtype=torch.float64).reshape(-1, 3),
            "parties": torch.tensor(list(parties)),
        }
        for number, scores in enumerate(self._open.values()):
            score_N, target_N = scores.arrays()
            found |= {f"score/{number}": torch.from_numpy(score_N), f"target/{number}": torch.from_numpy(target_N)}
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        ended = tensors["ended"]
        if ended.dim() == 1:  # an older checkpoint has the leak AUCs alone
            ended = torch.stack([ended, ended.maximum(1 - ended), torch.full_like(ended, math.nan)], dim=1)
        self._ended = [
            EpochLeak(auc, flip, None if math.isnan(floor) else floor) for auc, flip, floor in ended.tolist()
        ]
        self._open.clear()
        for number, party in enumerate(json.loads(bytes(tensors["parties"].tolist()))):
            self.add(party, tensors[f"score/{number}"].numpy(), tensors[f"target/{number}"].numpy())
