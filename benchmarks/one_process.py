"""Trains what a run file describes in this one process, one autograd graph from features to loss, and tells how fast.

    python -m benchmarks.one_process RUN_FILE

The row order, the batches, the initial weights and so the losses are those of the parties.

Shape suffixes: B rows of the batch, N rows, F features, d cut-layer width.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from cutlayer.common import config, run_files
from cutlayer.common.alignment import OwnIds
from cutlayer.common.config import RunFile
from cutlayer.common.datasets import load_table
from cutlayer.common.labels import read_labels
from cutlayer.common.models import build_bottom, build_optimizer, build_top
from cutlayer.common.randomness import public_seed
from cutlayer.common.schedule import Schedule
from cutlayer.common.tables import prepare


class Joint:
    """Both models of a binary job with one non-label party, its rows and its optimizers."""

    def __init__(self, run_file: RunFile) -> None:
        job, label = run_file.job, run_file.label_section()
        (name,) = job.parties
        section = run_file.nonlabel_section(name)
        table, own = load_table(section.data), load_table(label.data)
        order = OwnIds(table.ids, section.shared_secret()).order
        self.schedule = Schedule(job.seed, len(order), job.test_fraction, job.batch_size, job.epochs)
        features = prepare(table, order, self.schedule.train_rows, standardise=True)
        labels = read_labels(own, task=job.task, classes=job.classes, positive=None, missing_label="error")
        self.x_NF, self.y_N = features.x_NF, torch.from_numpy(labels.y[order]).float()
        width = job.cut_layer.width
        self.bottom = build_bottom(section.bottom_model, features.spec, width, public_seed(name, job.seed))
        self.top = build_top(label.top_model, width, 1, public_seed("top", job.seed))
        models: list[tuple[config.Optimizer, nn.Module]] = [
            (label.optimizer, self.top),
            (section.optimizer, self.bottom),
        ]
        built = [build_optimizer(choice, model.parameters()) for choice, model in models]
        self.optimizers = [optimizer for optimizer in built if optimizer]

    def step(self, number: int) -> float:
        """Train on the batch of a step; returns its loss."""
        rows = self.schedule.rows_of(number)
        logits_B: Tensor = self.top(self.bottom(self.x_NF[rows])).squeeze(1)
        loss = binary_cross_entropy_with_logits(logits_B, self.y_N[rows])
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()
        return float(loss.detach())


def main(path: Path) -> None:
    """Train, and print when each epoch ended, in seconds, and the mean loss of the last one as JSON."""
    torch.set_num_threads(1)
    joint = Joint(run_files.load(path))
    per_epoch = joint.schedule.steps_per_epoch
    ends, losses = [], []
    for first in range(1, joint.schedule.steps + 1, per_epoch):
        losses = [joint.step(number) for number in range(first, first + per_epoch)]
        ends.append(time.monotonic())
    print(json.dumps({"epoch_ends": ends, "train_loss": sum(losses) / per_epoch}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
