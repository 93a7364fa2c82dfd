"""What guesses are worth: the scores of an attack against the true labels, as leak figures.

The only place where guesses and labels meet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cutlayer.common.leakage import EpochLeak, LeakTally, flipped, null_floor, pooled_figures

Figures = dict[str, float | int | None]
_FINAL = 0  # the step of what is guessed about all rows when training has ended
_ROWS_AT_A_TIME = 1 << 20

Steps = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Bits = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Labels:
    """Labels (N,), 0 or 1, and the ids of their rows."""

    row_ids: pa.Array
    y_N: Bits

    @classmethod
    def read(cls, file: Path) -> Labels:
        """Those of a label party's `labels.parquet`: columns row_id, label."""
        table = pq.read_table(file, columns=["row_id", "label"])
        return cls(table["row_id"].combine_chunks(), table["label"].to_numpy().astype(np.int8))

    def of(self, row_ids: pa.Array) -> Bits:
        """The labels of `row_ids`; -1 for a row that has none."""
        places = pc.fill_null(pc.index_in(row_ids, value_set=self.row_ids), len(self.y_N))
        y_N: Bits = np.append(self.y_N, np.int8(-1))[places.to_numpy()]
        return y_N


def attack_figures(
    files: Iterable[Path], labels: Labels, steps_per_epoch: int | None
) -> dict[str, dict[str, dict[str, Figures]]]:
    """party -> attack -> layer -> figures, of files `<party>/attacks/<attack>.parquet`.

    Args:
        steps_per_epoch: training and evaluation steps; without it there are no pooled figures.
    """
    found: dict[str, dict[str, dict[str, Figures]]] = {}
    for file in files:
        layers = {layer: guesses.figures(steps_per_epoch) for layer, guesses in _read_guesses(file, labels).items()}
        found.setdefault(file.parent.parent.name, {})[file.stem] = layers
    return found


class StepLeak(NamedTuple):
    """The leak AUC of one step, None where its rows have one class, and how many rows each class has."""

    auc: float | None
    positives: int
    negatives: int


def step_leaks(step_N: Steps, score_N: Scores, y_N: Bits) -> dict[int, StepLeak]:
    """The leak of the scores of each step, in the order of the steps.

    The rank sum of Mann and Whitney for all steps at once; equal scores of a step share their mean rank.
    """
    if len(step_N) == 0:
        return {}
    order = np.lexsort((score_N, step_N))
    step_N, score_N, y_N = step_N[order], score_N[order], y_N[order]
    starts = _starts(step_N[1:] != step_N[:-1])
    ties = _starts((step_N[1:] != step_N[:-1]) | (score_N[1:] != score_N[:-1]))
    ends = np.append(ties[1:], len(step_N))
    rank_N = np.repeat((ties + 1 + ends) / 2, ends - ties)  # over all steps; those of earlier steps come off below
    sizes = np.diff(np.append(starts, len(step_N)))
    ones = np.add.reduceat(y_N, starts, dtype=np.int64)
    rank_sums = np.add.reduceat(rank_N * y_N, starts) - ones * starts.astype(np.float64)
    zeros = sizes - ones
    with np.errstate(invalid="ignore", divide="ignore"):
        aucs = (rank_sums - ones * (ones + 1) / 2) / (ones * zeros)
    return {
        int(step): StepLeak(float(auc) if one and zero else None, int(one), int(zero))
        for step, auc, one, zero in zip(step_N[starts], aucs, ones, zeros, strict=True)
    }


def _starts(changes: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Where runs begin, given for each entry but the first whether it differs from the one before."""
    return np.flatnonzero(np.concatenate([[True], changes]))


def leaks_in(file: Path, labels: Labels) -> dict[str, dict[int, StepLeak]]:
    """layer -> step -> leak of the guesses in a file `<party>/attacks/<attack>.parquet`."""
    return {layer: guesses.by_step() for layer, guesses in _read_guesses(file, labels).items()}


class _Guesses:
    """An attack's guesses at one layer beside the truth: steps, scores, labels, each (N,) in parts."""

    def __init__(self) -> None:
        self._parts: list[tuple[Steps, Scores, Bits]] = []

    def add(self, step_N: Steps, score_N: Scores, y_N: Bits) -> None:
        self._parts.append((step_N, score_N, y_N))

    def by_step(self) -> dict[int, StepLeak]:
        """The leak of each step."""
        step_N, score_N, y_N = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        usable_N = ~np.isnan(score_N) & (step_N != _FINAL)
        return step_leaks(step_N[usable_N], score_N[usable_N], y_N[usable_N])

    def figures(self, steps_per_epoch: int | None) -> Figures:
        """Leak figures over the steps; `final` if there are guesses about the whole; `not_a_number` if any is none."""
        step_N, score_N, y_N = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        usable_N = ~np.isnan(score_N)
        leaks = step_leaks(step_N[usable_N], score_N[usable_N], y_N[usable_N])
        final = _final(leaks.pop(_FINAL, None))
        tally = LeakTally()
        for leak in leaks.values():
            tally.add(*leak)
        usable_N &= step_N != _FINAL
        pooled = _pooled(step_N[usable_N], score_N[usable_N], y_N[usable_N], steps_per_epoch)
        not_a_number = int(np.count_nonzero(np.isnan(score_N)))
        return {**tally.summary(), **pooled, **final, **({"not_a_number": not_a_number} if not_a_number else {})}


def _final(leak: StepLeak | None) -> Figures:
    if leak is None:
        return {}
    if leak.auc is None:
        return {"final": None, "final_flipped": None, "final_null_floor": None}
    floor = null_floor(leak.positives, leak.negatives)
    return {"final": leak.auc, "final_flipped": flipped(leak.auc), "final_null_floor": floor}


def _pooled(step_N: Steps, score_N: Scores, y_N: Bits, steps_per_epoch: int | None) -> dict[str, float | None]:
    """Figures of the scores of each epoch together."""
    if steps_per_epoch is None:
        return {}
    leaks = step_leaks((step_N - 1) // steps_per_epoch, score_N, y_N)  # of each epoch as if it were a step
    return pooled_figures(
        [
            EpochLeak(leak.auc, flipped(leak.auc), null_floor(leak.positives, leak.negatives))
            for leak in leaks.values()
            if leak.auc is not None
        ]
    )


def _read_guesses(file: Path, labels: Labels) -> dict[str, _Guesses]:
    """The guesses in `file` about labelled rows, by layer.

    Read a part at a time: the row ids of a long run take much more memory than all the rest.
    """
    found: dict[str, _Guesses] = {}
    with pq.ParquetFile(file) as guesses:
        for batch in guesses.iter_batches(_ROWS_AT_A_TIME):
            y_N = labels.of(batch["row_id"])
            columns = batch["step"].to_numpy(), batch["score"].to_numpy(), y_N
            for layer in pc.unique(batch["layer"]).to_pylist():
                here_N = (y_N >= 0) & pc.equal(batch["layer"], layer).to_numpy(zero_copy_only=False)
                if here_N.any():
                    found.setdefault(layer, _Guesses()).add(*(column[here_N] for column in columns))
    return found
