"""What the start of a command costs, and how long a run stands still when a party is killed and started again.

    python -m benchmarks.start [--rounds N] [FILE ...]

FILE is a run file; by default examples/quickstart.yaml and one whose parties read CSV files. See README.md in this
folder.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import Run
from cutlayer.common.id_secret import ID_SECRET_VARIABLE

_ROOT = Path(__file__).parents[1]
_TORCH = ("-c", "import torch")
_CLI = ("-m", "cutlayer.cli")
_ROWS, _COLUMNS = 2000, 20  # of the CSV files
_FIRST_S = 1.0  # of undisturbed training before a party is killed
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Resumed:
    """One party killed: seconds until it trained again, and how much of them its new process computed."""

    wall_s: float
    cpu_s: float


class Bench:
    """Makes measurements in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        secret = {ID_SECRET_VARIABLE: "only for this benchmark"}
        self._environment = os.environ | secret | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT)}

    def cpu_s(self, arguments: Sequence[str]) -> float:
        """Processor time of `python ARGUMENTS`, user and system."""
        before = _children_s()
        subprocess.run(
            [sys.executable, *arguments],
            env=self._environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return _children_s() - before

    def resume(self, file: Path, party: str) -> Resumed:
        """Run all parties of `file`, kill one, and wait until it trains again."""
        out = Path(tempfile.mkdtemp(dir=self._folder))
        run = subprocess.Popen(
            [sys.executable, *_CLI, "run", str(file), "--out", str(out), "--events"],
            env=self._environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            events = _events(run)
            _await(events, "progress", party)
            time.sleep(_FIRST_S)
            killed = _process_of(party, out)
            began = time.monotonic()
            os.kill(killed, signal.SIGKILL)
            while "starting it again" not in _await(events, "message", party)["text"]:
                pass
            _await(events, "progress", party)
            return Resumed(time.monotonic() - began, _process_s(_process_of(party, out)))
        finally:
            run.terminate()
            run.communicate()


def _events(run: subprocess.Popen[str]) -> Iterator[Run]:
    assert run.stdout is not None
    for line in run.stdout:
        yield json.loads(line)
    raise SystemExit(f"the run ended too early, with exit status {run.wait()}")


def _await(events: Iterator[Run], event: str, party: str) -> Run:
    return next(one for one in events if (one["event"], one["party"]) == (event, party))


def _process_of(party: str, out: Path) -> int:
    return int((out / party / "lock").read_text())


def _process_s(process: int) -> float:
    """Processor time of a process that runs."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS  # utime, stime: proc_pid_stat(5)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _long(file: Path, folder: Path) -> tuple[Path, list[str]]:
    """A copy of the run file that trains for long and goes on after a crash; and the parties in it."""
    run: Run = yaml.safe_load(file.read_text())
    run["job"]["epochs"] = 100_000
    run["job"]["checkpoint"] = {"every_steps": 100}
    run["restarts"] = 1
    copy = folder / f"long-{file.name}"
    copy.write_text(yaml.safe_dump(run))
    return copy, ["label_party", *run["job"]["parties"][:1]]


def _csv_run(folder: Path) -> Path:
    """A run file, and the CSV files of its two parties."""
    source = random.Random(1)
    features: list[list[Any]] = [["id", *(f"x{i}" for i in range(_COLUMNS))]]
    features += [[row, *(f"{source.gauss():.4f}" for _ in range(_COLUMNS))] for row in range(_ROWS)]
    labels: list[list[Any]] = [["id", "label"], *([row, source.randrange(2)] for row in range(_ROWS))]
    for name, rows in (("features", features), ("labels", labels)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    model, adam = {"name": "mlp", "hidden": [32]}, {"name": "adam", "lr": 0.003}
    run = {
        "job": {"name": "csv", "epochs": 10, "batch_size": 64, "cut_layer": {"width": 16}, "parties": ["partner"]},
        "label_party": {
            "listen": "127.0.0.1:0",
            "data": {"source": "csv", "path": "labels.csv", "label": "label", "positive": "1"},
            "top_model": model,
            "optimizer": adam,
        },
        "nonlabel_parties": {
            "partner": {"data": {"source": "csv", "path": "features.csv"}, "bottom_model": model, "optimizer": adam}
        },
    }
    path = folder / "csv.yaml"
    path.write_text(yaml.safe_dump(run))
    return path


def _starts(bench: Bench, files: Sequence[Path], rounds: int) -> Table:
    commands = {"import torch": _TORCH, "--help": (*_CLI, "--help"), "list": (*_CLI, "list")}
    commands |= {
        f"{module}, loaded": ("-m", f"cutlayer.{module}", "--help") for module in ("label_party", "nonlabel_party")
    }
    commands |= {f"check {file.name}": (*_CLI, "check", str(file)) for file in files}
    found: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, arguments in commands.items():
            found[name].append(bench.cpu_s(arguments))
    table = Table("command", "CPU s", "over import torch", title=f"best of {rounds}")
    for name, seconds in found.items():
        table.add_row(name, f"{min(seconds):.2f}", f"{min(seconds) / min(found['import torch']):.2f}")
    return table


def _resumes(bench: Bench, files: Sequence[Path], folder: Path, rounds: int) -> Table:
    table = Table("run file", "party killed", "s until it trains", "median", "CPU s of them", title=f"best of {rounds}")
    for file in files:
        copy, parties = _long(file, folder)
        for party in parties:
            found = [bench.resume(copy, party) for _ in range(rounds)]
            wall = [one.wall_s for one in found]
            cpu = min(one.cpu_s for one in found)
            table.add_row(file.name, party, f"{min(wall):.1f}", f"{median(wall):.1f}", f"{cpu:.2f}")
    return table


def main() -> None:
    """Measure, and print two tables and how busy the machine was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench = Bench(folder)
        files = [file.resolve() for file in options.files]
        files = files or [_ROOT / "examples" / "quickstart.yaml", _csv_run(folder)]
        console.print(_starts(bench, files, options.rounds))
        console.print(_resumes(bench, files, folder, options.rounds))
    console.print("load averages:", *(f"{load:.1f}" for load in os.getloadavg()))


if __name__ == "__main__":
    main()
