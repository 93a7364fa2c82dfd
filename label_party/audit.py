"""The leak audit: what would the attacks make of the gradient that is about to leave?

The worst case of [M, section 3.3]: the direction attack knows the clean gradient of one positive row of
the batch, drawn anew each step. Shape suffixes: B rows of the batch, d cut-layer width.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from cutlayer.common.checkpoints import Tensors
from cutlayer.common.leakage import LeakTally, leak_auc
from cutlayer.common.randomness import Noise
from cutlayer.common.scores import cosines, norms


@dataclass(frozen=True)
class Reference:
    """The row whose clean gradient the direction attack knows; `row` is its index in the batch."""

    row: int
    g_d: Tensor


def draw_reference(g_Bd: Tensor, y_B: Tensor, *, multiclass: bool, noise: Noise) -> Reference | None:
    """A random positive row (any row for more classes) and its clean gradient; None where there is none."""
    candidates = range(len(y_B)) if multiclass else y_B.nonzero().squeeze(1).tolist()
    if not candidates:
        return None
    row = candidates[int(float(noise.uniform((1,))) * len(candidates))]
    return Reference(row, g_Bd[row].clone())


def batch_leaks(g_Bd: Tensor, y_B: Tensor, reference: Reference | None, *, multiclass: bool) -> dict[str, float | None]:
    """Leak AUC of each attack on one batch of perturbed gradients; None where it is undefined.

    For more than two classes the direction attack tells rows of the reference's class from the others,
    and the norm attack is not defined.
    """
    target_B = y_B if not multiclass or reference is None else (y_B == y_B[reference.row]).long()
    leaks: dict[str, float | None] = {"cosine": None}
    if reference is not None:
        leaks["cosine"] = leak_auc(cosines(g_Bd, reference.g_d), target_B)
    if not multiclass:
        leaks["norm"] = leak_auc(norms(g_Bd), y_B)
    return leaks


@dataclass
class Audit:
    """Leak figures over a run, at the cut layer. With several parties, those of the worst off at each step."""

    multiclass: bool
    tallies: dict[str, LeakTally] = field(default_factory=dict)
    _epoch_tallies: dict[str, LeakTally] = field(default_factory=dict)
    _rows: list[tuple[int, int, str, str, float | None]] = field(default_factory=list)

    def record(self, step: int, epoch: int, leaks: Mapping[str, Mapping[str, float | None]]) -> dict[str, float | None]:
        """Add one step's leak AUCs, party -> attack -> value; returns the largest of each attack."""
        worst: dict[str, float | None] = {}
        for party, by_attack in leaks.items():
            for attack, auc in by_attack.items():
                self._rows.append((step, epoch, party, attack, auc))
                known = [value for value in (worst.get(attack), auc) if value is not None]
                worst[attack] = max(known) if known else None
        for attack, auc in worst.items():
            self.tallies.setdefault(attack, LeakTally()).add(auc)
            self._epoch_tallies.setdefault(attack, LeakTally()).add(auc)
        return worst

    def end_epoch(self) -> dict[str, dict[str, float | int | None]]:
        """The figures of the epoch that ends, attack -> mean, p95, ..."""
        figures = {attack: tally.summary() for attack, tally in self._epoch_tallies.items()}
        self._epoch_tallies = {}
        return figures

    def tensors(self) -> Tensors:
        """What a checkpoint must hold: every figure; those that are undefined as NaN, which no figure is."""
        kinds = sorted({(party, attack) for _, _, party, attack, _ in self._rows})
        number = {kind: place for place, kind in enumerate(kinds)}
        whole = [(step, epoch, number[party, attack]) for step, epoch, party, attack, _ in self._rows]
        aucs = [math.nan if auc is None else auc for *_, auc in self._rows]
        names = json.dumps(kinds).encode()
        return {
            "rows": torch.tensor(whole, dtype=torch.int64).reshape(-1, 3),
            "aucs": torch.tensor(aucs, dtype=torch.float64),
            "kinds": torch.tensor(list(names), dtype=torch.uint8),
        }

    def restore(self, tensors: Mapping[str, Tensor], epoch: int) -> None:
        """Take back what `tensors` gave; `epoch` is that of the step that comes next."""
        kinds = json.loads(bytes(tensors["kinds"].tolist()))
        steps: dict[tuple[int, int], dict[str, dict[str, float | None]]] = {}
        for (step, of_epoch, kind), auc in zip(tensors["rows"].tolist(), tensors["aucs"].tolist(), strict=True):
            party, attack = kinds[kind]
            leaks = steps.setdefault((step, of_epoch), {}).setdefault(party, {})
            leaks[attack] = None if math.isnan(auc) else auc
        for (step, of_epoch), by_party in steps.items():
            self.record(step, of_epoch, by_party)
            if of_epoch != epoch:
                self._epoch_tallies = {}

    def summary(self) -> dict[str, dict[str, dict[str, float | int | None]]]:
        """attack -> layer -> mean, p95, max over the batches, and how many were skipped."""
        return {attack: {"cut": tally.summary()} for attack, tally in sorted(self.tallies.items())}

    def table(self) -> pa.Table:
        """Every figure: step, epoch, party, attack, leak_auc (null where undefined)."""
        names = ["step", "epoch", "party", "attack", "leak_auc"]
        columns: list[Any] = list(zip(*self._rows, strict=True)) or [[] for _ in names]
        types = [pa.int64(), pa.int64(), pa.string(), pa.string(), pa.float64()]
        return pa.table([pa.array(c, type=t) for c, t in zip(columns, types, strict=True)], names=names)
