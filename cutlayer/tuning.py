"""`cutlayer run`, and before it the search for an option of the defense that the run file leaves open.

The search is a small sweep: one run for each value, on a share of the training rows, none of which the run itself tests
on. It has a folder of its own beside that of the run, goes on where it was stopped, and leaves there a run file with
the value that was found; from that the run begins.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from cutlayer import local, sweep
from cutlayer.common import run_files
from cutlayer.common.config import RunFile
from cutlayer.common.errors import CutlayerError, UserError
from cutlayer.common.files import write_atomically
from cutlayer.common.job import section_of
from cutlayer.common.process import print_error
from cutlayer.sweep.folder import SweepFolder
from cutlayer.sweep.keys import put
from cutlayer.sweep.plan import base_of, planned

_ATTACKS = ("norm", "mean", "median")
_IN_LARGE_BATCHES = "neighbours"
_PRIVATE = 0o600


@dataclass(frozen=True)
class Point:
    """What a run of the search has come to.

    Attributes:
        leak: the worst leak AUC of norm, mean, median and, where batches are large enough for it, neighbours: of the
            gradients of the last epoch together, flipped.
    """

    value: Any
    test_auc: float
    leak: float

    @classmethod
    def of(cls, value: Any, summary: Mapping[str, Any]) -> Point:
        """Of the summary of a run.

        Raises:
            UserError: an AUC is undefined.
        """
        audit = summary["leak"]["audit"]
        found = {attack: by_layer.get("cut", {}).get("pooled_last_flipped") for attack, by_layer in audit.items()}
        known = {attack: leak for attack, leak in found.items() if leak is not None}
        auc = summary["utility"]["test_auc"]
        if auc is None or not known.keys() >= set(_ATTACKS):
            raise UserError(
                "the runs of the search have too few test rows or too few rows of one class to measure with; write a "
                "value in the run file, or let the search have more rows"
            )
        return cls(value, auc, max(known[attack] for attack in (*_ATTACKS, _IN_LARGE_BATCHES) if attack in known))

    @property
    def score(self) -> float:
        """Utility less what leaks beyond chance."""
        return self.test_auc - (self.leak - 0.5)


def best(points: Sequence[Point]) -> Point:
    """The point with the highest test AUC less leak AUC; the first of equals."""
    return max(points, key=lambda point: point.score)


def run(file: Path, out: Path | None, *, verbose: bool = False, events: bool = False) -> int:
    """As `local.run`, after the search where there is something to find.

    Raises:
        UserError: as `local.run`; or nothing could be measured in the search.
    """
    run_file = run_files.load(file)
    search = _search_of(run_file)
    if search is None:
        return local.run(file, out, verbose=verbose, events=events)
    out = local.results_folder(run_file.job, out)
    folder = SweepFolder(out.with_name(f"{out.name}-search"))
    found = _search(file, run_file, search, folder, Console(quiet=events))
    return found if isinstance(found, int) else local.run(found, out, verbose=verbose, events=events)


def _search_of(run_file: RunFile) -> dict[str, Any] | None:
    """What the defense wants searched: option, values, row_fraction."""
    if run_file.label_party is None or "auto" not in run_file.label_party.defense.options.values():
        return None
    command = [sys.executable, "-m", "cutlayer.searched"]
    content = json.dumps(run_file.public_dump())
    done = subprocess.run(command, input=content, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise CutlayerError("the defense of the run file could not be looked at; the reason is above")
    found: dict[str, Any] | None = json.loads(done.stdout)
    return found


def _search(
    file: Path, run_file: RunFile, search: Mapping[str, Any], folder: SweepFolder, console: Console
) -> Path | int:
    """The run file with the value that was found; or the exit status where the search was stopped."""
    option, values = search["option"], search["values"]
    key = f"label_party.defense.{option}"
    console.print(f"{option}: auto: one run for each of {', '.join(map(str, values))} on few rows, in {folder.path}")
    common = _common(run_file, search["row_fraction"])
    runs = planned(file, file.name, {key: list(values)}, common)
    failures, stopped_by = sweep.complete(folder, runs, console=console)
    if stopped_by is not None:
        print_error(f"stopped by {signal.Signals(stopped_by).name}; the same command with --out goes on")
        return 128 + stopped_by
    if failures:
        raise CutlayerError("\n".join(f"search run {name} failed: {reason}" for name, reason in failures.items()))
    points = [Point.of(run.varied[key], folder.summary(run.name)) for run in runs]
    chosen = best(points)
    console.print(_table(option, points, chosen))
    base = base_of(file, file.name)
    put(base, key, chosen.value)
    target = folder.path / "run.yaml"
    write_atomically(target, yaml.safe_dump(base, sort_keys=False, allow_unicode=True), _PRIVATE)
    return target


def _common(run_file: RunFile, fraction: float) -> dict[str, Any]:
    """What the runs of a search have other than the run: few rows, and nothing that only a person would look at."""
    changes: dict[str, Any] = {"job.row_fraction": run_file.job.row_fraction * fraction, "label_party.samples": 0}
    changes["label_party.metrics"] = None
    for party in run_file.job.parties:
        section = section_of(party)
        changes |= {f"{section}.attacks": None, f"{section}.capture": None, f"{section}.metrics": None}
    return changes


def _table(option: str, points: Sequence[Point], chosen: Point) -> Table:
    table = Table(
        option, "test AUC", "leak AUC (flipped)", "AUC less leak above 0.5", "", box=None, header_style="bold"
    )
    for point in points:
        figures = (f"{figure:.4f}" for figure in (point.test_auc, point.leak, point.score))
        table.add_row(str(point.value), *figures, "taken" if point is chosen else "")
    return table
