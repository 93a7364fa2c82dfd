"""The label party goes on from the checkpoint of any step of an epoch as if there had been none, whatever it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from cutlayer.common.checkpoints import Checkpoint, CheckpointOwner, CheckpointStore
from cutlayer.common.config import LabelPartySection
from cutlayer.common.job import Job
from cutlayer.common.schedule import Schedule
from cutlayer.label_party.defenses import defenses
from cutlayer.label_party.results import RunFigures
from cutlayer.label_party.saving import content, restore
from cutlayer.label_party.training import LabelTraining, Received

ROWS, WIDTH, EPOCHS = 60, 3, 2
PARTIES = ("lab", "bank")
JOB = Job.model_validate(
    {"name": "test", "epochs": EPOCHS, "batch_size": 12, "test_fraction": 0.4, "parties": PARTIES}
    | {"cut_layer": {"width": WIDTH}}
)
Y_N = torch.tensor([int(row % 3 == 0) for row in range(ROWS)])
RUNS: dict[str, dict[str, Any]] = {
    **{name: {"defense": name} for name in defenses.names()},
    "marvell with a target": {"defense": {"name": "marvell", "max_leak_auc": 0.6}},
    "gafm that searches gamma": {"defense": {"name": "gafm", "gamma": "auto", "gamma_batches": 4, "generator": "free"}},
    "momentum": {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}},
}


def begun(run: dict[str, Any]) -> LabelTraining:
    section = LabelPartySection.model_validate({"data": {"source": "wine"}, **run})
    schedule = Schedule(JOB.seed, ROWS, JOB.test_fraction, JOB.batch_size, JOB.epochs)
    return LabelTraining(JOB, section, schedule, None, Y_N, bytes(32))


def take(number: int, training: LabelTraining, figures: RunFigures) -> None:
    """A step with made-up activations."""
    step = training.schedule.at(number)
    generator, test = torch.Generator().manual_seed(number), {}
    received = {
        party: Received(torch.randn(len(step.rows), WIDTH, generator=generator), number.to_bytes(32, "little"))
        for party in PARTIES
    }
    if step.kind == "train":
        result = training.step(step, received)
        figures.trained(len(step.rows), result.loss, training.conclude(step, received, result), training)
    else:
        test = training.evaluate(step, received)
    if number % training.schedule.steps_per_epoch == 0:
        figures.end_epoch(step, test, training)


def left(training: LabelTraining, figures: RunFigures) -> dict[str, Any]:
    """Everything that a run shows of its training; bytes of tensors, as NaN is like no other."""
    tensors, record = content(training, figures, {})
    del record["figures"]["_seconds_before"]
    files = {name: save({"": tensor.detach().contiguous().clone()}) for name, tensor in tensors.items()}
    return {"record": record, "releases": training.releases(), "objective": training.objective.summary(), **files}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_P01_a_process_that_was_started_again_tells_of_the_epoch_what_the_first_would_have(
    run: dict[str, Any], tmp_path: Path
) -> None:
    whole, figures = begun(run), RunFigures()
    steps = whole.schedule.steps
    store = CheckpointStore(tmp_path, CheckpointOwner("label_party", "digest"), steps + 1, pytest.fail)
    store.save(0, *content(whole, figures, {}))
    for number in range(1, steps + 1):
        take(number, whole, figures)
        store.save(number, *content(whole, figures, {}))
    assert [record["epoch"] for record in figures.evaluations] == [1, 2]
    for saved in range(steps):
        checkpoint = store.load(saved)
        assert isinstance(checkpoint, Checkpoint)
        again = begun(run)
        figures_again, _ = restore(checkpoint, again)
        for number in range(saved + 1, steps + 1):
            take(number, again, figures_again)
        assert left(again, figures_again) == left(whole, figures), f"from the checkpoint of step {saved}"
