"""Folders as runs leave them, made by the code that writes them, without any training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from cutlayer.common.config import RunFile
from cutlayer.common.files import write_json
from cutlayer.common.parquet import write_table
from cutlayer.common.schedule import Schedule
from cutlayer.label_party.results import run_record
from cutlayer.label_party.samples import Samples
from support.runs import BREAST_CANCER, Run, changed

ROWS, BATCH, EPOCHS, WIDTH = 200, 20, 3, 4


def write_results(
    folder: Path,
    *,
    defense: Any = "none",
    utility: float | None = 0.9,
    leak: float | None = 0.7,
    bound: float | None = None,
    attack: str = "norm",
    changes: dict[str, Any] | None = None,
    parts: bool = False,
) -> Path:
    """A finished run in `folder`, with made-up gradients and guesses of one party, `lab`."""
    own = {"job.epochs": EPOCHS, "job.batch_size": BATCH, "label_party.defense": defense}
    run_file = RunFile.model_validate(changed(BREAST_CANCER, own | (changes or {})))
    (folder / "label_party").mkdir(parents=True)
    (folder / "lab" / "attacks").mkdir(parents=True)
    schedule = Schedule(run_file.job.seed, ROWS, 0.2, BATCH, EPOCHS)
    write_json(folder / "run.json", run_record(run_file))
    write_json(folder / "summary.json", summary(run_file, utility, leak, bound, attack))
    write_json(folder / "state.json", {"job": run_file.job.digest().hex(), "finished": True})
    records = [
        {"step": 10 * epoch, "epoch": epoch, "test_auc": utility, f"leak_{attack}_pooled_flipped": leak}
        for epoch in range(1, EPOCHS + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    _write_private(folder, schedule, attack, parts=parts)
    return folder


def summary(run_file: RunFile, utility: float | None, leak: float | None, bound: float | None, attack: str) -> Run:
    """What `summary.json` has, with these figures."""
    figures = {"mean": leak, "p95": leak, "max": leak, "null_floor": 0.62, "batches": 24, "skipped": 0}
    choice = run_file.label_section().defense
    return {
        "schema": 1,
        "job": run_file.job.name,
        "task": run_file.job.task,
        "defense": {"name": choice.name, **choice.options},
        "utility": {"test_auc": utility, "test_accuracy": utility, "test_loss": 0.2, "train_loss": 0.1},
        "leak": {"audit": {attack: {"cut": figures}}, "attacks": {"lab": {attack: {"cut": figures, "first": figures}}}},
        "bound": None if bound is None else {"per_step_leak_auc": 0.6, "whole_run_leak_auc": bound},
        "steps": 24,
        "seconds": 75.0,
    }


def _write_private(folder: Path, schedule: Schedule, attack: str, *, parts: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    y_N = (torch.arange(ROWS) % 3 == 0).long()
    samples, audit, guesses = Samples(schedule, 8, 1), [], []
    for number in range(1, schedule.steps + 1):
        step = schedule.at(number)
        if step.kind != "train":
            continue
        y_B = y_N[step.rows]
        g_Bd = torch.randn(len(step.rows), WIDTH, generator=generator) + y_B[:, None]
        made_of = {"gan": g_Bd - 2 * y_B[:, None], "ce": 2.0 * y_B[:, None].expand_as(g_Bd)} if parts else {}
        samples.add(step, "lab", y_B, {"exact": g_Bd, "perturbed": g_Bd + 1, **made_of}, {"sum_kl": 0.04})
        audit.append((number, step.epoch, "lab", attack, 0.7, 0.66))
        for layer in ("cut", "first"):
            guesses += [(number, layer, str(row), float(g_Bd[place].norm())) for place, row in enumerate(step.rows)]
    private = folder / "label_party"
    samples.write(private)
    ids = [str(row) for row in range(ROWS)]
    write_table(private / "labels.parquet", pa.table({"row_id": ids, "label": y_N.numpy()}))
    names = ("step", "epoch", "party", "attack", "leak_auc", "null_floor")
    write_table(private / "audit.parquet", pa.table(dict(zip(names, zip(*audit, strict=True), strict=True))))
    columns = dict(zip(("step", "layer", "row_id", "score"), map(np.array, zip(*guesses, strict=True)), strict=True))
    write_table(folder / "lab" / "attacks" / f"{attack}.parquet", pa.table(columns))
