"""How fast two parties train a model, beside one process that holds everything.

    python -m benchmarks.split_vs_one_process [--quick] [--rounds N] [WORKLOAD ...]

Both sides are processes of their own that train the same model on the same batches, with one thread each. Start-up,
loading and the first epoch are not counted. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from benchmarks.workloads import DEFENSES, WORKLOADS, Run, Workload
from cutlayer.common.id_secret import ID_SECRET_VARIABLE

_ROOT = Path(__file__).parents[1]
_LONGEST_S = 300  # of one measurement
_SAME_LOSS = 1e-3  # relative


@dataclass(frozen=True)
class Measured:
    """When each epoch ended, in seconds, and the mean training loss of the last one."""

    epoch_ends: Sequence[float]
    train_loss: float


@dataclass
class Side:
    """One way to train a workload; one measurement for each round."""

    measured: list[Measured] = field(default_factory=list)

    @property
    def epoch_seconds(self) -> list[float]:
        """Of every epoch but the first of each round."""
        return [end - begin for m in self.measured for begin, end in pairwise(m.epoch_ends)]


@dataclass
class Result:
    """The measurements of a workload."""

    workload: Workload
    one_process: Side = field(default_factory=Side)
    split: dict[str, Side] = field(default_factory=lambda: {defense: Side() for defense in DEFENSES})

    def ratios(self, defense: str) -> tuple[float, float]:
        """Speed of the parties over speed of one process: in the best epochs, and in the median ones."""
        one, split = self.one_process.epoch_seconds, self.split[defense].epoch_seconds
        return min(one) / min(split), median(one) / median(split)

    def over_none(self, defense: str) -> float:
        """Time of a step over that without a defense, in the median epochs."""
        return median(self.split[defense].epoch_seconds) / median(self.split["none"].epoch_seconds)

    def speed(self, side: Side) -> str:
        """Samples a second, and the time of a step, of the best epoch."""
        step_s = min(side.epoch_seconds) / self.workload.steps_per_epoch
        return f"{self.workload.batch_size / step_s:,.0f}/s ({1000 * step_s:.2f} ms)"


class Bench:
    """Makes measurements, each in new processes and a new folder inside `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = os.environ | {
            ID_SECRET_VARIABLE: "the row order follows from it",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(_ROOT),
        }

    def measure(self, workload: Workload, rounds: int) -> Result:
        """Every way to train a workload, in turn."""
        result = Result(workload)
        for _ in range(rounds):
            result.one_process.measured.append(self._one_process(workload.run_file("none")))
            for defense, side in result.split.items():
                side.measured.append(self._split(workload.run_file(defense)))
        _require_same_training(result)
        return result

    def _one_process(self, run: Run) -> Measured:
        return Measured(**json.loads(self._python("benchmarks.one_process", self._written(run))))

    def _split(self, run: Run) -> Measured:
        file = self._written(run)
        out = file.parent / "out"
        self._python("cutlayer.cli", "run", file, "--out", out)
        summary = json.loads((out / "summary.json").read_text())
        return Measured(_epoch_ends(out), summary["utility"]["train_loss"])

    def _written(self, run: Run) -> Path:
        file = Path(tempfile.mkdtemp(dir=self._folder)) / "run.yaml"
        file.write_text(yaml.safe_dump(run))
        return file

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


def _epoch_ends(out: Path) -> list[float]:
    """When the label party noted the figures of each epoch."""
    (file,) = (out / "label_party" / "tensorboard").iterdir()
    events: list[Any] = list(EventFileLoader(str(file)).Load())
    return [event.wall_time for event in events if event.HasField("summary")]


def _require_same_training(result: Result) -> None:
    """Without a defense the parties must have computed what the one process has, or their speeds compare nothing."""
    one, split = (side.measured[0].train_loss for side in (result.one_process, result.split["none"]))
    if not math.isclose(one, split, rel_tol=_SAME_LOSS):
        raise SystemExit(
            f"{result.workload.name}: training loss {one} in one process, {split} split: not the same work"
        )


def _table(results: Sequence[Result]) -> Table:
    headings = ("workload", "one process", "defense", "split", "best", "median", "aim", "step over none's")
    table = Table(*headings, title="training speed")
    for result in results:
        workload = [result.workload.title, result.speed(result.one_process)]
        for defense, side in result.split.items():
            ratios = [f"{ratio:.2f}" for ratio in (*result.ratios(defense), result.workload.aim)]
            table.add_row(*workload, defense, result.speed(side), *ratios, f"{result.over_none(defense):.2f}")
            workload = ["", ""]
    return table


def _chosen(parser: argparse.ArgumentParser, names: Sequence[str]) -> list[Workload]:
    known = {workload.name: workload for workload in WORKLOADS}
    if unknown := set(names) - set(known):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    return [workload for name, workload in known.items() if not names or name in names]


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(w.name for w in WORKLOADS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="a few steps of each, to see that everything runs")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        chosen = _chosen(parser, options.workloads)
        results = [bench.measure(workload.quick() if options.quick else workload, rounds) for workload in chosen]
    Console(width=110).print(_table(results))


if __name__ == "__main__":
    main()
