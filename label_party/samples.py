"""What a report draws of a run: gradients of a few batches, and the defense's figures at a bounded number of steps.

Exact gradients tell the labels: all of it stays in the label party's private folder. Shape suffixes: B rows of the
batch, R rows of it that are kept, d cut-layer width.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from cutlayer.common.checkpoints import Tensors
from cutlayer.common.files import write_atomically
from cutlayer.common.packing import pack
from cutlayer.common.parquet import write_table
from cutlayer.common.schedule import Schedule, Step

GRADIENTS_FILE = "samples.safetensors"
FIGURES_FILE = "defense.parquet"
_MOST_ROWS = 128  # of a batch
_MOST_NUMBERS = 1 << 20  # in all exact and perturbed gradients together
_MOST_STEPS = 1000  # of which the figures are kept
_PRIVATE = 0o600


class Samples:
    """Keeps what it is shown at steps that follow from the schedule alone, so that a run that goes back chooses alike.

    Args:
        batches: of how many batches the gradients are kept; 0: nothing at all.
        parties: how many share the room.
    """

    def __init__(self, schedule: Schedule, batches: int, parties: int) -> None:
        self._room = _MOST_NUMBERS // max(2 * batches * parties, 1)
        self._gradient_steps = frozenset(_spread(schedule, batches))
        self._figure_steps = frozenset(_spread(schedule, _MOST_STEPS if batches else 0))
        self._gradients: defaultdict[str, list[Tensor]] = defaultdict(list)
        self._figures: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)

    def keeps(self, step: Step) -> bool:
        """Whether gradients of this step are kept."""
        return step.number in self._gradient_steps

    def add(
        self,
        step: Step,
        party: str,
        y_B: Tensor,
        gradients: Mapping[str, Tensor],
        telemetry: Mapping[str, float],
    ) -> None:
        """One release to `party`.

        Args:
            gradients: `exact` and `perturbed`, (B, d), and those of which `exact` is made, where there are several.
            telemetry: what the defense and the objective state.
        """
        exact_Bd, perturbed_Bd = gradients["exact"], gradients["perturbed"]
        if step.number in self._figure_steps:
            exact, noise = _power(exact_Bd), _power(perturbed_Bd - exact_Bd)
            for name, value in {**telemetry, "gradient_power": exact, "noise_power": noise}.items():
                self._figures[f"{party}/{name}"].append((step.number, value))
        if self.keeps(step):
            rows = slice(max(2, min(_MOST_ROWS, self._room // exact_Bd.shape[1])))
            kept = {"step": torch.full_like(y_B, step.number), "label": y_B, **gradients}
            for name, tensor in kept.items():
                self._gradients[f"{party}/{name}"].append(tensor[rows].detach().clone())

    def tensors(self) -> Tensors:
        """What a checkpoint must hold."""
        figures = {f"figures/{name}": torch.tensor(pairs, dtype=torch.float64) for name, pairs in self._figures.items()}
        return figures | {f"gradients/{name}": torch.cat(parts) for name, parts in self._gradients.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self._figures.clear()
        self._gradients.clear()
        for key, tensor in tensors.items():
            kind, _, name = key.partition("/")
            if kind == "figures":
                self._figures[name] = [(step, value) for step, value in tensor.tolist()]
            else:
                self._gradients[name] = [tensor]

    def write(self, folder: Path) -> None:
        """Write the files, unless nothing was kept: `<party>/step`, `label` (n,), `exact`, `perturbed` and its parts
        (n, d), and a table of step, party, figure, value."""
        if self._gradients:
            gradients = {name: torch.cat(parts) for name, parts in self._gradients.items()}
            write_atomically(folder / GRADIENTS_FILE, pack(gradients), _PRIVATE)
        if self._figures:
            write_table(folder / FIGURES_FILE, _figure_table(self._figures))


def _spread(schedule: Schedule, most: int) -> Iterable[int]:
    """The numbers of at most `most` training steps, evenly over the run."""
    train = schedule.train_steps
    train_an_epoch = train * schedule.steps_per_epoch // schedule.steps
    for ordinal in np.unique(np.linspace(0, train - 1, min(train, most)).round().astype(int)).tolist():
        epoch, batch = divmod(ordinal, train_an_epoch)
        yield epoch * schedule.steps_per_epoch + batch + 1


def _power(g_Bd: Tensor) -> float:
    """Mean squared length of the rows."""
    return float(g_Bd.detach().double().square().sum(dim=1).mean())


def _figure_table(figures: Mapping[str, Iterable[tuple[float, float]]]) -> pa.Table:
    rows = [(int(step), *name.split("/", 1), value) for name, pairs in figures.items() for step, value in pairs]
    step, party, figure, value = zip(*sorted(rows), strict=True)
    return pa.table({"step": pa.array(step, pa.int64()), "party": party, "figure": figure, "value": value})
