"""The same model trained in one process without sockets, one autograd graph from features to loss.

Written from the job's description alone: it shares schedule and model builders with the parties, but none of
their training code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cutlayer.common import config, run_files
from cutlayer.common.alignment import OwnIds
from cutlayer.common.datasets import load_table
from cutlayer.common.labels import read_labels
from cutlayer.common.models import build_bottom, build_top
from cutlayer.common.randomness import public_seed
from cutlayer.common.schedule import Schedule
from cutlayer.common.tables import prepare


@dataclass
class Joint:
    """The trained models by party, and the loss of each training step."""

    bottoms: dict[str, nn.Module]
    top: nn.Module
    losses: list[float]


def _optimizer(choice: config.Optimizer, module: nn.Module) -> torch.optim.Optimizer:
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adagrad": torch.optim.Adagrad}
    return kinds[choice.name](module.parameters(), lr=choice.lr)


def train(path: Path, secret: str) -> Joint:
    """Train what `path` describes; `secret` orders the rows as the parties would."""
    torch.set_num_threads(1)
    run_file = run_files.load(path)
    job, label = run_file.job, run_file.label_section()
    tables = {name: load_table(run_file.nonlabel_section(name).data) for name in job.parties}
    own = load_table(label.data)
    labels = read_labels(own, task=job.task, classes=job.classes, positive=None, missing_label="error")
    order = OwnIds(own.ids, secret.encode()).order
    schedule = Schedule(job.seed, len(order), job.test_fraction, job.batch_size, job.epochs)
    bottoms, features = {}, {}
    for name, table in tables.items():
        section = run_file.nonlabel_section(name)
        features[name] = prepare(table, order, schedule.train_rows, standardise=True)
        seed = public_seed(name, job.seed if section.seed is None else section.seed)
        width = job.cut_layer.width_of(name)
        bottoms[name] = build_bottom(section.bottom_model, features[name].spec, width, seed)
    if label.bottom_model is not None:
        features["label_party"] = prepare(own, order, schedule.train_rows, standardise=True)
        width = job.cut_layer.width_of("label_party")
        seed = public_seed("label_party", job.seed)
        bottoms["label_party"] = build_bottom(label.bottom_model, features["label_party"].spec, width, seed)
    concat = job.cut_layer.aggregation == "concat"
    width = sum(job.cut_layer.width_of(name) for name in bottoms) if concat else job.cut_layer.width
    outputs = job.classes if job.task == "multiclass" else 1
    top = build_top(label.top_model, width, outputs, public_seed("top", job.seed))
    optimizers = [_optimizer(label.optimizer, top)]
    for name, bottom in bottoms.items():
        section = label if name == "label_party" else run_file.nonlabel_section(name)
        optimizers.append(_optimizer(section.optimizer, bottom))
    y = torch.from_numpy(np.asarray(labels.y)[order])
    losses = []
    for number in range(1, schedule.steps + 1):
        step = schedule.at(number)
        if step.kind != "train":
            continue
        z = [bottoms[name](features[name].x_NF[step.rows]) for name in bottoms]
        logits = top(torch.cat(z, dim=1) if concat else torch.stack(z).sum(dim=0))
        if outputs == 1:
            loss = nn.functional.binary_cross_entropy_with_logits(logits[:, 0], y[step.rows].float())
        else:
            loss = nn.functional.cross_entropy(logits, y[step.rows])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(float(loss.detach()))
    return Joint(bottoms, top, losses)
