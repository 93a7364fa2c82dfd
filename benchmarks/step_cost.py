"""What a defense adds to the computing of a training step, in both parties together.

    python -m benchmarks.step_cost [--rounds N] [WORKLOAD ...]

Processor time of one thread, without wire, and all defenses in turn: what else the machine does hardly counts. Shape
suffixes: B rows of a batch, F features, d cut-layer width.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import DEFENSES, WORKLOADS, Workload
from cutlayer.common.config import RunFile
from cutlayer.common.datasets import load_table
from cutlayer.common.models import build_bottom, build_optimizer
from cutlayer.common.schedule import Schedule
from cutlayer.common.tables import prepare
from cutlayer.label_party.training import LabelTraining, Received

_PARTY = "features"
_WARM_UP = 5  # steps


def stepper(workload: Workload, defense: str, steps: int) -> Callable[[int], float]:
    """Makes both parties; the result takes the step of a number from 1 to `steps`, and says how many ms it took."""
    run_file = RunFile.model_validate(workload.run_file(defense))
    job, section = run_file.job, run_file.nonlabel_section(_PARTY)
    rows = workload.batch_size * workload.steps_per_epoch
    schedule = Schedule(job.seed, rows, 0.0, job.batch_size, -(-steps // workload.steps_per_epoch))
    features = prepare(load_table(section.data), torch.arange(rows).numpy(), schedule.train_rows, standardise=True)
    bottom = build_bottom(section.bottom_model, features.spec, workload.cut_width, seed=1)
    optimizer = build_optimizer(section.optimizer, bottom.parameters())
    assert optimizer is not None
    y_N = (torch.rand(rows, generator=torch.Generator().manual_seed(1)) < 0.25).long()
    label = run_file.label_section().model_copy(update={"samples": 0})
    training = LabelTraining(job, label, schedule, None, y_N, bytes(32))

    def take(number: int) -> float:
        step = schedule.at(number)
        began = time.thread_time()
        z_Bd = bottom(features.x_NF[step.rows])
        received = {_PARTY: Received(z_Bd.detach().clone(), bytes(32))}
        result = training.step(step, received)
        training.conclude(step, received, result)
        gradient = result.releases[_PARTY].gradient
        assert gradient is not None
        optimizer.zero_grad()
        z_Bd.backward(gradient.g_Bd)
        optimizer.step()
        return 1000 * (time.thread_time() - began)

    return take


def _milliseconds(workload: Workload, rounds: int) -> dict[str, float]:
    takes = {defense: stepper(workload, defense, _WARM_UP + rounds) for defense in DEFENSES}
    times: dict[str, list[float]] = {defense: [] for defense in takes}
    for number in range(1, _WARM_UP + rounds + 1):
        for defense, take in takes.items():
            times[defense].append(take(number))
    return {defense: median(taken[_WARM_UP:]) for defense, taken in times.items()}


def main() -> None:
    """Measure, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = {workload.name: workload for workload in WORKLOADS if not workload.features.get("categorical")}
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(known), default=[*known])
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table("workload", *(f"{defense}, ms" for defense in DEFENSES), *(f"{name} / none" for name in DEFENSES))
    for name in options.workloads:
        found = _milliseconds(known[name], options.rounds)
        ratios = [taken / found["none"] for taken in found.values()]
        table.add_row(name, *(f"{taken:.2f}" for taken in found.values()), *(f"{ratio:.2f}" for ratio in ratios))
    Console().print(table)


if __name__ == "__main__":
    main()
