"""How much slower two parties train a model than one process that holds everything.

    python -m benchmarks.split_vs_one_process [--quick] [--rounds N] [WORKLOAD ...]

Both sides are processes of their own that train the same model on the same batches with one thread each; start-up and
loading are not counted. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import DEFENSES, WORKLOADS, Run, Workload

_ROOT = Path(__file__).parents[1]
_LONGEST_S = 300  # of one measurement
_SAME_LOSS = 1e-3  # relative


@dataclass(frozen=True)
class Measured:
    """Time from before the first step until after the last, and the mean training loss of the last epoch."""

    seconds: float
    train_loss: float


@dataclass
class Result:
    """The measurements of a workload, one of each kind a round."""

    workload: Workload
    steps: int
    one_process: list[Measured] = field(default_factory=list)
    split: dict[str, list[Measured]] = field(default_factory=dict)

    def ratios(self, defense: str) -> tuple[float, float]:
        """Speed of the parties over speed of one process: that of the best rounds, and of the medians."""
        one, split = ([m.seconds for m in side] for side in (self.one_process, self.split[defense]))
        return min(one) / min(split), median(one) / median(split)


class Bench:
    """Runs measurements, each in new processes and a folder of its own."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self._folder = folder
        self._quick = quick
        self._count = 0
        self._environment = os.environ | {
            "CUTLAYER_ID_SECRET": secrets.token_hex(32),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(_ROOT),
        }

    def measure(self, workload: Workload, rounds: int) -> Result:
        """All kinds of measurements of a workload, in turn."""
        run = workload.run_file("none", quick=self._quick)
        result = Result(workload, run["job"]["epochs"] * run["label_party"]["data"]["rows"] // workload.batch_size)
        for _ in range(rounds):
            result.one_process.append(self._one_process(run))
            for defense in DEFENSES:
                split = self._split(workload.run_file(defense, quick=self._quick))
                result.split.setdefault(defense, []).append(split)
        _require_same_training(result)
        return result

    def _one_process(self, run: Run) -> Measured:
        folder = self._new_folder(run)
        return Measured(**json.loads(self._python("benchmarks.one_process", folder / "run.yaml")))

    def _split(self, run: Run) -> Measured:
        """`cutlayer run`; timed by the party that takes the first and the last part of each step."""
        folder = self._new_folder(run)
        self._python("cutlayer.cli", "run", folder / "run.yaml", "--out", folder / "out")
        party = _read(folder / "out" / "features" / "party.json")
        return Measured(party["seconds"], _read(folder / "out" / "summary.json")["utility"]["train_loss"])

    def _new_folder(self, run: Run) -> Path:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        (folder / "run.yaml").write_text(yaml.safe_dump(run))
        return folder

    def _python(self, module: str, *arguments: str | Path) -> str:
        """What `python -m module arguments` prints."""
        done = subprocess.run(
            [sys.executable, "-m", module, *map(str, arguments)],
            env=self._environment,
            cwd=self._folder,
            timeout=_LONGEST_S,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{module} failed with exit status {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def _require_same_training(result: Result) -> None:
    """Without a defense the parties must have computed what the one process has, or the speeds say nothing."""
    one, split = result.one_process[0].train_loss, result.split["none"][0].train_loss
    if not math.isclose(one, split, rel_tol=_SAME_LOSS):
        raise SystemExit(
            f"{result.workload.name}: training loss {one} in one process, {split} split: not the same work"
        )


def _table(results: list[Result]) -> Table:
    table = Table("workload", "steps", "one process", "defense", "split", "ratio (best)", "(median)", "aim")
    for result in results:
        for row, (defense, split) in enumerate(result.split.items()):
            best, middle = result.ratios(defense)
            shared = (
                [result.workload.title, f"{result.steps}", _speed(result, result.one_process)] if row == 0 else [""] * 3
            )
            table.add_row(
                *shared, defense, _speed(result, split), f"{best:.2f}", f"{middle:.2f}", f"{result.workload.aim:.2f}"
            )
    return table


def _speed(result: Result, side: list[Measured]) -> str:
    seconds = min(m.seconds for m in side)
    samples = result.steps * result.workload.batch_size
    return f"{samples / seconds:,.0f}/s ({1000 * seconds / result.steps:.2f} ms)"


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(w.name for w in WORKLOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that everything runs")
    options = parser.parse_args()
    chosen = [w for w in WORKLOADS if not options.workloads or w.name in options.workloads]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), quick=options.quick)
        results = [bench.measure(workload, 1 if options.quick else options.rounds) for workload in chosen]
    Console(width=120).print(_table(results))


if __name__ == "__main__":
    main()
