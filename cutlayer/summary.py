"""Puts the parties' results together when all have ended: what each attack found out, measured on the labels.

This is the only place where guesses and labels meet. It runs on the machine that holds both folders: in
research, or where the parties agreed to be audited.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cutlayer.common.config import LABEL_PARTY
from cutlayer.common.errors import CutlayerError
from cutlayer.common.files import write_json
from cutlayer.common.leakage import LeakTally

Figures = dict[str, float | int | None]
_FINAL = 0  # the step of what is guessed about all rows when training has ended
_ROWS_AT_A_TIME = 1 << 20


def merge(out: Path) -> dict[str, Any]:
    """Complete `out`/summary.json with the parties' figures and the leak of their attacks; returns the summary.

    Binary tasks get `leak.attacks[party][attack][layer]`: leak AUC by step (mean, p95, max, batches, skipped),
    and `final`, the leak AUC of what was guessed at the end, where the attack made such a guess.

    Raises:
        CutlayerError: a party's files are missing or not whole.
    """
    try:
        return _merge(out)
    except (OSError, ValueError, KeyError) as error:
        raise CutlayerError(f"{out}: the parties' results cannot be put together: {error}") from error


def _merge(out: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    summary["parties"] = {file.parent.name: _party_figures(file) for file in sorted(out.glob("*/party.json"))}
    if summary["task"] == "binary":
        summary["leak"]["attacks"] = _attack_figures(out)
    write_json(out / "summary.json", summary)
    return summary


def _party_figures(file: Path) -> Figures:
    """The figures of party.json, without what is not a figure."""
    return {key: value for key, value in json.loads(file.read_text()).items() if isinstance(value, int | float)}


def _attack_figures(out: Path) -> dict[str, dict[str, dict[str, Figures]]]:
    files = sorted(out.glob("*/attacks/*.parquet"))
    if not files:
        return {}
    labels = _Labels.read(out / LABEL_PARTY / "labels.parquet")
    found: dict[str, dict[str, dict[str, Figures]]] = {}
    for file in files:
        layers = {layer: guesses.figures() for layer, guesses in _read_guesses(file, labels).items()}
        found.setdefault(file.parent.parent.name, {})[file.stem] = layers
    return found


def step_aucs(
    step_N: npt.NDArray[np.int64], score_N: npt.NDArray[np.float32], y_N: npt.NDArray[np.int8]
) -> dict[int, float | None]:
    """The leak AUC of the scores of each step, in the order of the steps; None where its rows have one class.

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
    known = (ones > 0) & (zeros > 0)
    return {int(step_N[at]): float(auc) if ok else None for at, auc, ok in zip(starts, aucs, known, strict=True)}


def _starts(changes: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Where runs begin, given for each entry but the first whether it differs from the one before."""
    return np.flatnonzero(np.concatenate([[True], changes]))


@dataclass(frozen=True)
class _Labels:
    """Labels (N,), 0 or 1, and the ids of their rows."""

    row_ids: pa.Array
    y_N: npt.NDArray[np.int8]

    @classmethod
    def read(cls, file: Path) -> _Labels:
        table = pq.read_table(file, columns=["row_id", "label"])
        return cls(table["row_id"].combine_chunks(), table["label"].to_numpy().astype(np.int8))

    def of(self, row_ids: pa.Array) -> npt.NDArray[np.int8]:
        """The labels of `row_ids`; -1 for a row that has none."""
        places = pc.fill_null(pc.index_in(row_ids, value_set=self.row_ids), len(self.y_N))
        y_N: npt.NDArray[np.int8] = np.append(self.y_N, np.int8(-1))[places.to_numpy()]
        return y_N


class _Guesses:
    """An attack's guesses at one layer beside the truth: steps, scores, labels, each (N,) in parts."""

    def __init__(self) -> None:
        self._parts: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.int8]]] = []

    def add(self, step_N: npt.NDArray[np.int64], score_N: npt.NDArray[np.float32], y_N: npt.NDArray[np.int8]) -> None:
        self._parts.append((step_N, score_N, y_N))

    def figures(self) -> Figures:
        """Leak figures over the steps; `final` if there are guesses about the whole; `not_a_number` if any is none."""
        step_N, score_N, y_N = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        usable_N = ~np.isnan(score_N)
        aucs = step_aucs(step_N[usable_N], score_N[usable_N], y_N[usable_N])
        final = {"final": aucs.pop(_FINAL)} if _FINAL in aucs else {}
        tally = LeakTally()
        for auc in aucs.values():
            tally.add(auc)
        wrong = {} if usable_N.all() else {"not_a_number": int((~usable_N).sum())}
        return {**tally.summary(), **final, **wrong}


def _read_guesses(file: Path, labels: _Labels) -> dict[str, _Guesses]:
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
