"""GAFM trained in one process without sockets, written from the paper and the job's description alone.

It shares schedule, data preparation and model builders with the parties, but none of their training code. There is no
noise in it: it stands for `sigma: 0` and no randomised response.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from cutlayer.common import run_files
from cutlayer.common.alignment import OwnIds
from cutlayer.common.config import Choice
from cutlayer.common.datasets import load_table
from cutlayer.common.labels import read_labels
from cutlayer.common.models import build_bottom, build_top
from cutlayer.common.randomness import public_seed
from cutlayer.common.schedule import Schedule
from cutlayer.common.tables import prepare

CLIP = 0.1


def train(path: Path, secret: str) -> dict[str, dict[str, Tensor]]:
    """Train what `path` describes; the weights by party, the generator's as those of `label_party`."""
    run_file = run_files.load(path)
    job, label = run_file.job, run_file.label_section()
    own = load_table(label.data)
    order = OwnIds(own.ids, secret.encode()).order
    schedule = Schedule(job.seed, len(order), job.test_fraction, job.batch_size, job.epochs)
    labels = read_labels(own, task="binary", classes=2, positive=None, missing_label="error")
    y_N = torch.from_numpy(np.asarray(labels.y)[order]).float()
    x, bottoms, adams = {}, {}, {}
    for name in job.parties:
        section = run_file.nonlabel_section(name)
        features = prepare(load_table(section.data), order, schedule.train_rows, standardise=True)
        x[name] = features.x_NF
        width = job.cut_layer.width_of(name)
        bottoms[name] = build_bottom(section.bottom_model, features.spec, width, public_seed(name, job.seed))
        adams[name] = torch.optim.Adam(bottoms[name].parameters(), lr=section.optimizer.lr)
    mlp = {"name": "mlp", "activation": "leaky_relu"}
    generator = build_top(Choice(**mlp, hidden=[16]), 1, 1, public_seed("top", job.seed))
    for weight in generator.parameters():
        weight.data = weight.data.abs() if weight.dim() > 1 else weight.data
    critic = build_top(Choice(**mlp, hidden=[10, 10]), 1, 1, public_seed("discriminator", job.seed))
    discriminator = nn.Sequential(critic, nn.LeakyReLU())
    adam_g = torch.optim.Adam(generator.parameters(), lr=label.optimizer.lr)
    adam_d = torch.optim.Adam(discriminator.parameters(), lr=label.optimizer.lr)
    for step in map(schedule.at, range(1, schedule.steps + 1)):
        if step.kind != "train":
            continue
        f = torch.cat([bottoms[name](x[name][step.rows]) for name in job.parties], dim=1)
        y = y_N[step.rows]

        adam_d.zero_grad()
        fake = generator(f.detach().sum(dim=1, keepdim=True)).sigmoid()
        (discriminator(fake.detach()).mean() - discriminator(y[:, None]).mean()).backward()
        adam_d.step()
        for weight in discriminator.parameters():
            weight.data.clamp_(-CLIP, CLIP)

        adam_g.zero_grad()
        (-discriminator(fake).mean()).backward()
        adam_g.step()
        for weight in generator.parameters():
            weight.data = weight.data.clamp(min=1e-3) if weight.dim() > 1 else weight.data

        fake = generator(f.sum(dim=1, keepdim=True)).sigmoid()
        gan = torch.autograd.grad(-discriminator(fake).mean(), f, retain_graph=True)[0]
        cross_entropy = functional.binary_cross_entropy_with_logits(f.sum(dim=1), y)
        ce = torch.autograd.grad(cross_entropy, f, retain_graph=True)[0]
        for adam in adams.values():
            adam.zero_grad()
        f.backward(gan / gan.norm() + ce / ce.norm())
        for adam in adams.values():
            adam.step()
    top = {f"top.net.{name}": weight for name, weight in generator.state_dict().items()}
    trained = {name: bottom.state_dict() for name, bottom in bottoms.items()}
    return {"label_party": top | {"top.orientation": torch.ones(())}, **trained}
