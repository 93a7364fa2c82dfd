"""Finds the runs that a report is about, and reads what they left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load_file

from cutlayer.common.errors import UserError
from cutlayer.common.job import LABEL_PARTY
from cutlayer.scoring import Labels, StepLeak, leaks_in

Summary = dict[str, Any]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Run:
    """One run that has finished.

    Attributes:
        varied: what a sweep varies in it, axis -> value; empty for a run of its own.
        config: the resolved run file, secrets masked.
        versions: package -> version.
        damaged: files of figures that could not be read; known once `Details` has looked at them.
    """

    name: str
    folder: Path
    summary: Summary
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    varied: Mapping[str, Any] = field(default_factory=dict)
    damaged: set[Path] = field(default_factory=set)

    @property
    def parties(self) -> list[str]:
        """The non-label parties."""
        return list(self.config["job"]["parties"])


class Runs:
    """The runs of one report.

    Args:
        folders: of a run, of a sweep, or any whose sub-folders are such.

    Attributes:
        runs: those that have finished, in the order of `folders`.
        unfinished: names of the others, and why they are not in the report.

    Raises:
        UserError: a folder does not exist, holds no run, or a file in it is missing or damaged.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.runs: list[Run] = []
        self.unfinished: dict[str, str] = {}
        for folder in folders:
            before = len(self.runs) + len(self.unfinished)
            self._add_folder(folder)
            if len(self.runs) + len(self.unfinished) == before:
                raise UserError(
                    f"{folder}: no run in it; give the folder of a run or of a sweep, as `--out` or the last line of "
                    "`cutlayer run` names it"
                )
        if not self.runs:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in self.unfinished.items())
            raise UserError(f"no run here has finished, so there is nothing to report ({reasons})")

    def _add_folder(self, folder: Path) -> None:
        if not folder.is_dir():
            raise UserError(f"{folder}: there is no such folder")
        if (folder / "sweep.json").exists():
            listed = _json(folder / "sweep.json").get("runs")
            if not isinstance(listed, dict):
                raise UserError(f"{folder / 'sweep.json'}: damaged; run the sweep again, finished runs are kept")
            for name, varied in listed.items():
                self._add(folder / "runs" / name, name, varied)
        elif (folder / "run.json").exists() or (folder / "summary.json").exists() or (folder / "state.json").exists():
            self._add(folder, folder.resolve().name, {})
        else:
            for inner in sorted(path for path in folder.iterdir() if _is_run_or_sweep(path)):
                self._add_folder(inner)

    def _add(self, folder: Path, name: str, varied: Mapping[str, Any]) -> None:
        name = next(free for free in _candidates(name) if free not in {run.name for run in self.runs})
        if not (folder / "summary.json").exists():
            self.unfinished[name] = "has not finished" if folder.exists() else "has not begun"
            return
        summary, record = _json(folder / "summary.json"), _json(folder / "run.json")
        _require(folder / "summary.json", summary, ("job", "task", "defense", "utility", "leak", "seconds", "steps"))
        _require(folder / "run.json", record, ("config", "versions"))
        self.runs.append(Run(name, folder, summary, record["config"], record["versions"], varied))


def _is_run_or_sweep(path: Path) -> bool:
    return any((path / name).exists() for name in ("run.json", "summary.json", "sweep.json"))


def _candidates(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name} ({number})" for number in range(2, 1_000_000))


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{file}: missing; this folder is not whole") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: damaged, it cannot be read as JSON") from error
    if not isinstance(found, dict):
        raise UserError(f"{file}: damaged, expected a JSON object")
    return found


def _require(file: Path, found: Mapping[str, Any], keys: Sequence[str]) -> None:
    if missing := [key for key in keys if key not in found]:
        raise UserError(f"{file}: damaged or of another version, it has no {', '.join(missing)}")


@dataclass(frozen=True)
class LeakSeries:
    """Leak AUC of one attack at one layer, by step, ascending; `by` is `audit` or a party."""

    by: str
    attack: str
    layer: str
    step_N: Array
    auc_N: Array


@dataclass(frozen=True)
class Samples:
    """Gradients of some rows for one party: step (n,), label (n,), exact and perturbed gradient (n, d).

    Attributes:
        parts: those that the exact gradient is the sum of, where there are several, (n, d) each.
    """

    step_n: Array
    label_n: Array
    exact_nd: Array
    perturbed_nd: Array
    parts: Mapping[str, Array] = field(default_factory=dict)


class Details:
    """What a run's folders hold beside the summary. What is not there, or damaged, is None or empty, with a reason."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._own = run.folder / LABEL_PARTY
        self.problems: dict[str, str] = {}

    def leaks(self) -> list[LeakSeries]:
        """By step: the audit, at the cut layer, then each party's attacks at each layer."""
        return [*self._audit(), *self._attacks()]

    def null_floors(self) -> tuple[Array, Array]:
        """Steps, and what a score that knows nothing reaches there; empty where no such figure was kept."""
        columns = self._audit_columns()
        if "null_floor" not in columns:
            return np.empty(0), np.empty(0)
        step_N, floor_N = columns["step"], columns["null_floor"].astype(np.float64)
        known = np.isfinite(floor_N)
        steps, first = np.unique(step_N[known], return_index=True)
        return steps, floor_N[known][first]

    def samples(self) -> dict[str, Samples]:
        """party -> kept gradients."""
        file = self._own / "samples.safetensors"
        if not file.exists():
            self.problems["samples"] = self._why_no_samples()
            return {}
        try:
            found = load_file(file)
            return {party: _samples(found, party) for party in self._run.parties if f"{party}/step" in found}
        except (OSError, SafetensorError, KeyError, ValueError):
            self._damaged("samples", file)
            return {}

    def defense_figures(self) -> dict[tuple[str, str], tuple[Array, Array]]:
        """(party, figure) -> steps and values."""
        columns = self._table(self._own / "defense.parquet", "defense", self._why_no_samples())
        if not columns:
            return {}
        found = {}
        for party, figure in sorted(set(zip(columns["party"].tolist(), columns["figure"].tolist(), strict=True))):
            here = (columns["party"] == party) & (columns["figure"] == figure)
            found[party, figure] = columns["step"][here], columns["value"][here].astype(np.float64)
        return found

    def evaluations(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        file = self._run.folder / "metrics.jsonl"
        if not file.exists():
            self.problems["metrics"] = "metrics.jsonl is not here"
            return []
        try:
            return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, ValueError):
            self._damaged("metrics", file)
            return []

    def _why_no_samples(self) -> str:
        if not self._own.is_dir():
            return "the label party's folder is not here"
        label = self._run.config.get("label_party") or {}
        if label.get("samples") == 0:
            return "the run file says label_party.samples: 0, so nothing was kept for it"
        return "the label party's file for it is not here"

    def _audit_columns(self) -> dict[str, Array]:
        return self._table(self._own / "audit.parquet", "audit", "the label party's audit.parquet is not here")

    def _audit(self) -> Iterator[LeakSeries]:
        columns = self._audit_columns()
        if not columns:
            return
        several = len(set(columns["party"].tolist())) > 1
        auc_N = columns["leak_auc"].astype(np.float64)
        for party, attack in sorted(set(zip(columns["party"].tolist(), columns["attack"].tolist(), strict=True))):
            here = (columns["party"] == party) & (columns["attack"] == attack) & np.isfinite(auc_N)
            by = f"audit, {party}" if several else "audit"
            yield LeakSeries(by, attack, "cut", columns["step"][here], auc_N[here])

    def _attacks(self) -> Iterator[LeakSeries]:
        files = sorted(self._run.folder.glob("*/attacks/*.parquet"))
        if self._run.summary["task"] != "binary" or not files:
            self.problems["attacks"] = "no party ran an attack on a binary task, or its folder is not here"
            return
        file = self._own / "labels.parquet"
        if not file.exists():
            self.problems["attacks"] = "the label party's labels.parquet is not here"
            return
        try:
            labels = Labels.read(file)
            for file in files:
                for layer, leaks in leaks_in(file, labels).items():
                    yield _series(file.parent.parent.name, file.stem, layer, leaks)
        except (OSError, ValueError, KeyError):
            self._damaged("attacks", file)

    def _table(self, file: Path, what: str, why_missing: str) -> dict[str, Array]:
        if not file.exists():
            self.problems[what] = why_missing
            return {}
        try:
            table = pq.read_table(file)
            return {name: table[name].to_numpy() for name in table.column_names}
        except (OSError, ValueError):
            self._damaged(what, file)
            return {}

    def _damaged(self, what: str, file: Path) -> None:
        self.problems[what] = f"{file.relative_to(self._run.folder)} is damaged"
        self._run.damaged.add(file)


def _samples(found: Mapping[str, Array], party: str) -> Samples:
    keys = ("step", "label", "exact", "perturbed")
    own = {key.removeprefix(f"{party}/"): value for key, value in found.items() if key.startswith(f"{party}/")}
    parts = {key: value for key, value in own.items() if key not in keys}
    step_n, label_n, exact_nd, perturbed_nd = (own[key] for key in keys)
    return Samples(step_n, label_n, exact_nd, perturbed_nd, parts)


def _series(party: str, attack: str, layer: str, leaks: Mapping[int, StepLeak]) -> LeakSeries:
    known = [(step, leak.auc) for step, leak in leaks.items() if leak.auc is not None]
    return LeakSeries(party, attack, layer, np.array([s for s, _ in known]), np.array([auc for _, auc in known]))
