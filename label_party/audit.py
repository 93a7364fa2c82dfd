"""The leak audit: what would the attacks make of the gradients that leave?

The worst case: the direction attack of [M, section 3.3] knows the clean gradient of one positive row of the batch,
drawn anew each step; the mean and the median attack of [G, equations 8 and 9] know the class centres of the very
gradients that leave. The neighbours attack knows the activations, as their party does. Shape suffixes: B rows of the
batch, d cut-layer width.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from cutlayer.common.checkpoints import Tensors, below, prefixed
from cutlayer.common.leakage import LeakTally, flipped, leak_auc, null_floor
from cutlayer.common.randomness import Noise
from cutlayer.common.scores import cosines, neighbour_scores, norms
from cutlayer.label_party.centres import centre_scores
from cutlayer.label_party.pooling import PooledLeak, Scores, Targets


@dataclass(frozen=True)
class Reference:
    """The row whose clean gradient the direction attack knows; `row` is its index in the batch."""

    row: int
    g_d: Tensor


def draw_reference(g_Bd: Tensor, y_B: Tensor, *, multiclass: bool, noise: Noise) -> Reference | None:
    """A random positive row (any row for more classes) and its clean gradient; None where there is none."""
    candidates = torch.arange(len(y_B)) if multiclass else y_B.nonzero().squeeze(1)
    if not len(candidates):
        return None
    row = int(candidates[int(float(noise.uniform((1,))) * len(candidates))])
    return Reference(row, g_Bd[row].clone())


@dataclass(frozen=True)
class BatchLeak:
    """What one attack makes of one batch.

    Attributes:
        auc: leak AUC; None where it is undefined.
        sizes: rows that are to be told apart, positives and negatives.
        score_B, target_B: the scores, and which rows should have the high ones; empty where there is no score.
    """

    auc: float | None = None
    sizes: tuple[int, int] = (0, 0)
    score_B: Scores = field(default_factory=lambda: np.empty(0), repr=False, compare=False)
    target_B: Targets = field(default_factory=lambda: np.empty(0, dtype=np.bool_), repr=False, compare=False)

    @classmethod
    def of(cls, score_B: Tensor, y_B: Tensor) -> BatchLeak:
        """Scores (B,) of rows that are 0 or 1."""
        target_B = y_B.numpy() == 1
        positives = int(np.count_nonzero(target_B))
        return cls(leak_auc(score_B, y_B), (positives, len(y_B) - positives), score_B.numpy(), target_B)


def batch_leaks(
    g_Bd: Tensor, z_Bd: Tensor, y_B: Tensor, reference: Reference | None, *, multiclass: bool
) -> dict[str, BatchLeak]:
    """What each attack makes of one batch of perturbed gradients, and of the activations of whoever gets them.

    For more than two classes the direction attack tells rows of the reference's class from the others,
    and the other attacks are not defined.
    """
    leaks = {"cosine": BatchLeak()}
    if reference is not None:
        target_B = (y_B == y_B[reference.row]).long() if multiclass else y_B
        leaks["cosine"] = BatchLeak.of(cosines(g_Bd, reference.g_d), target_B)
    if not multiclass:
        scores = {"norm": norms(g_Bd), **centre_scores(g_Bd, y_B), "neighbours": neighbour_scores(g_Bd, z_Bd)}
        leaks |= {name: BatchLeak() if one is None else BatchLeak.of(one, y_B) for name, one in scores.items()}
    return leaks


Leaks = Mapping[str, Mapping[str, BatchLeak]]  # party -> attack -> what it makes of the step


@dataclass
class Audit:
    """Leak figures over a run, at the cut layer. With several parties, those of the worst off at each step.

    Args:
        parties: how many there are.
    """

    multiclass: bool
    parties: int = 1
    tallies: dict[str, LeakTally] = field(default_factory=dict)
    _epoch_tallies: dict[str, LeakTally] = field(default_factory=dict)
    _pools: dict[str, PooledLeak] = field(default_factory=dict)
    _rows: list[tuple[int, int, str, str, float | None, int, int]] = field(default_factory=list)

    def record(self, step: int, epoch: int, leaks: Leaks) -> dict[str, BatchLeak]:
        """Add what the attacks make of one step; returns the largest leak of each attack."""
        for party, by_attack in leaks.items():
            for attack, leak in by_attack.items():
                self._pools.setdefault(attack, PooledLeak(self.parties)).add(party, leak.score_B, leak.target_B)
        return self._tally(step, epoch, leaks)

    def end_epoch(self) -> dict[str, dict[str, float | int | None]]:
        """The figures of the epoch that ends, attack -> mean, p95, ..., and its leak AUC as a whole, pooled."""
        figures: dict[str, dict[str, float | int | None]] = {}
        for attack, tally in self._epoch_tallies.items():
            whole = self._pools[attack].end_epoch()
            pooled = (None, None) if whole is None else (whole.auc, whole.flipped)
            figures[attack] = tally.summary() | dict(zip(("pooled", "pooled_flipped"), pooled, strict=True))
        self._epoch_tallies = {}
        return figures

    def _tally(self, step: int, epoch: int, leaks: Leaks) -> dict[str, BatchLeak]:
        worst: dict[str, BatchLeak] = {}
        turned: dict[str, float] = {}
        for party, by_attack in leaks.items():
            for attack, leak in by_attack.items():
                self._rows.append((step, epoch, party, attack, leak.auc, *leak.sizes))
                worst[attack] = max(worst.get(attack, leak), leak, key=lambda one: -1 if one.auc is None else one.auc)
                if leak.auc is not None:
                    turned[attack] = max(turned.get(attack, 0.0), flipped(leak.auc))
        for attack, leak in worst.items():
            for tallies in (self.tallies, self._epoch_tallies):
                tally = tallies.setdefault(attack, LeakTally(best_of=self.parties))
                tally.add(leak.auc, *leak.sizes, turned.get(attack))
        return worst

    def tensors(self) -> Tensors:
        """What a checkpoint must hold: every figure; those that are undefined as NaN, which no figure is."""
        kinds = sorted({(party, attack) for _, _, party, attack, *_ in self._rows})
        number = {kind: place for place, kind in enumerate(kinds)}
        whole = [(step, epoch, number[party, attack]) for step, epoch, party, attack, *_ in self._rows]
        aucs = [math.nan if auc is None else auc for _, _, _, _, auc, *_ in self._rows]
        names = json.dumps(kinds).encode()
        found = {
            "rows": torch.tensor(whole, dtype=torch.int64).reshape(-1, 3),
            "sizes": torch.tensor([row[5:] for row in self._rows], dtype=torch.int64).reshape(-1, 2),
            "aucs": torch.tensor(aucs, dtype=torch.float64),
            "kinds": torch.tensor(list(names), dtype=torch.uint8),
        }
        for attack, pool in self._pools.items():
            found |= prefixed(f"pool/{attack}", pool.tensors())
        return found

    def restore(self, tensors: Mapping[str, Tensor], epoch: int) -> None:
        """Take back what `tensors` gave; `epoch` is that of the step that comes next.

        Older checkpoints have neither sizes nor pools: what follows from them then begins here.
        """
        kinds = json.loads(bytes(tensors["kinds"].tolist()))
        steps: dict[tuple[int, int], dict[str, dict[str, BatchLeak]]] = {}
        rows, aucs = tensors["rows"], tensors["aucs"]
        sizes = tensors.get("sizes", torch.zeros(len(rows), 2, dtype=torch.int64))
        for (step, of_epoch, kind), auc, (positives, negatives) in zip(
            *map(torch.Tensor.tolist, (rows, aucs, sizes)), strict=True
        ):
            party, attack = kinds[kind]
            leak = BatchLeak(None if math.isnan(auc) else auc, (positives, negatives))
            steps.setdefault((step, of_epoch), {}).setdefault(party, {})[attack] = leak
        for (step, of_epoch), by_party in steps.items():
            self._tally(step, of_epoch, by_party)
            if of_epoch != epoch:
                self._epoch_tallies = {}
        for attack in self.tallies:
            pool = self._pools.setdefault(attack, PooledLeak(self.parties))
            if saved := below(f"pool/{attack}", tensors):
                pool.restore(saved)

    def summary(self) -> dict[str, dict[str, dict[str, float | int | None]]]:
        """attack -> layer -> mean, p95, ... over the batches, pooled figures, and how many batches were skipped."""
        return {
            attack: {"cut": tally.summary() | self._pools[attack].summary()}
            for attack, tally in sorted(self.tallies.items())
        }

    def table(self) -> pa.Table:
        """Every figure: step, epoch, party, attack, leak_auc (null where undefined) and its null_floor."""
        names = ["step", "epoch", "party", "attack", "leak_auc", "null_floor"]
        rows = [(*row[:5], None if row[4] is None or 0 in row[5:] else null_floor(*row[5:])) for row in self._rows]
        columns: list[Any] = list(zip(*rows, strict=True)) or [[] for _ in names]
        types = [pa.int64(), pa.int64(), pa.string(), pa.string(), pa.float64(), pa.float64()]
        return pa.table([pa.array(c, type=t) for c, t in zip(columns, types, strict=True)], names=names)
