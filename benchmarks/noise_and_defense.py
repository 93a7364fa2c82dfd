"""What noise, defenses, the leak audit and Marvell's solver cost, beside drawing as many normals with torch.

    python -m benchmarks.noise_and_defense [--rounds N] [--rows B] [--width d]

Processor time of one thread; all are timed in turn in every round, so that they see the same machine. Shape suffixes:
B rows of a batch, d cut-layer width.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from statistics import median, quantiles

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from cutlayer.common.randomness import Noise
from cutlayer.label_party.audit import batch_leaks, draw_reference
from cutlayer.label_party.defenses import Defense, defenses
from cutlayer.label_party.defenses.marvell_solver import solve, solve_for

_BASE = "torch.randn"
_PROBLEMS = 20_000


def _gradients(rows: int, width: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    y_B = (torch.rand(rows, generator=generator) < 0.25).long()
    return (torch.randn(rows, width, generator=generator) + y_B[:, None]) / rows, y_B


def _measured(rows: int, width: int) -> dict[str, Callable[[], object]]:
    g_Bd, y_B = _gradients(rows, width)
    z_Bd, noise = torch.randn(rows, width), Noise(bytes(32))

    def audit() -> None:
        reference = draw_reference(g_Bd, y_B, multiclass=False, noise=noise)
        batch_leaks(g_Bd, z_Bd, y_B, reference, multiclass=False)

    def defend(defense: Defense) -> Callable[[], object]:
        return lambda: defense.defend(g_Bd, y_B, noise=noise)

    made = {name: defenses.create(name, {}) for name in defenses.names()}
    made["marvell, max_leak_auc 0.6"] = defenses.create("marvell", {"max_leak_auc": 0.6})
    return {
        _BASE: lambda: torch.randn(rows, width),
        "Noise.normal": lambda: noise.normal((rows, width)),
        "leak audit": audit,
        **{f"defense {name}": defend(defense) for name, defense in made.items()},
    }


def _microseconds(action: Callable[[], object]) -> float:
    began = time.thread_time()  # of this thread alone: other work on the machine does not count
    action()
    return 1e6 * (time.thread_time() - began)


def _problems() -> Iterator[dict[str, float]]:
    """Random class statistics: variances from far below to above the squared distance of the means."""
    draw = random.Random(1)
    for _ in range(_PROBLEMS):
        gap = 10 ** draw.uniform(-12, 2)
        u, v = (gap * 10 ** draw.uniform(-4, 1) for _ in range(2))
        yield {"u": u, "v": v, "d": round(10 ** draw.uniform(0, 3.6)), "gap": gap, "p": draw.uniform(0.01, 0.6)}


def _solver_lines() -> Iterator[str]:
    exact, smallest = [], []
    for of in _problems():
        exact.append(_microseconds(lambda: solve(**of, power=of["gap"])))  # type: ignore[arg-type] # noqa: B023
        smallest.append(_microseconds(lambda: solve_for(**of, sum_kl=0.16)))  # type: ignore[arg-type] # noqa: B023
    for name, times in (("solve", exact), ("solve_for", smallest)):
        yield f"{name}: median {median(times):.1f}, p99 {quantiles(times, n=100)[-1]:.1f} microseconds"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--width", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    actions = _measured(arguments.rows, arguments.width)
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(arguments.rounds):
        for name, action in actions.items():
            times[name].append(_microseconds(action))
    table = Table(
        "", "median", "best", f"over {_BASE}", title=f"B = {arguments.rows}, d = {arguments.width}, microseconds"
    )
    for name, taken in times.items():
        ratio = median(taken) / median(times[_BASE])
        table.add_row(name, f"{median(taken):.0f}", f"{min(taken):.0f}", f"{ratio:.2f}")
    console = Console()
    console.print(table)
    for line in _solver_lines():
        console.print(line)


if __name__ == "__main__":
    main()
