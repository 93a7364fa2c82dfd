"""Nothing that leaves the label party depends on the labels, except through the defense (P15).

Two conversations that differ in the labels alone, with a defense that sends constant numbers, must be the same
byte for byte: messages, their order, status, details and metadata. Six planted leaks show that the test can fail.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from support.runs import Run
from support.scripted import ScriptedClient, label_party

from cutlayer.common import errors
from cutlayer.common.job import GrantedKnowledge, Job
from cutlayer.label_party import process
from cutlayer.label_party.server import LabelPartyServicer
from cutlayer.label_party.training import LabelTraining, StepResult
from cutlayer.label_party.walk import Walk
from cutlayer.v1 import session_pb2, training_pb2

ROWS = 44
HALF = [row % 2 for row in range(ROWS)]
RARE = [int(row % 11 == 0) for row in range(ROWS)]  # most batches have one class
Wire = list[tuple[str, Any]]


def make_run(folder: Path, labels: list[int], batch_size: int, defense: Run) -> Run:
    folder.mkdir()
    with open(folder / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows([("id", "y"), *((f"r{i}", y) for i, y in enumerate(labels))])
    return {
        "job": {
            "name": "noninterference",
            "epochs": 1,
            "batch_size": batch_size,
            "cut_layer": {"width": 4},
            "parties": ["lab"],
        },
        "label_party": {
            "listen": "127.0.0.1:0",
            "data": {"source": "csv", "path": str(folder / "labels.csv"), "label": "y"},
            "defense": defense,
            "noise_secret": "secret",
            "timeouts": {"stall_s": 10, "reconnect_s": 10, "goodbye_s": 1},
        },
    }


def converse(folder: Path, labels: list[int], *, batch_size: int = 8, defense: Run | None = None) -> Wire:
    """A whole session with some bad manners in it; everything that came back."""
    run = make_run(folder, labels, batch_size, defense or {"name": "support.plugins:Constant"})
    (folder / "secret").write_bytes(bytes(32))
    with pytest.MonkeyPatch.context() as patch, label_party(folder, run) as address:
        patch.setattr(process, "new_run", lambda: bytes(16))  # it is random, and tells of nothing
        client = ScriptedClient(address, run)
        client.align()
        frame = client.activation(1)
        frame.activation.matrix.data = b"\xff" * len(frame.activation.matrix.data)
        client.call("Train", client.hello(), frame)  # not a number
        client.call("Train", client.hello(), client.activation(client.schedule.steps))  # from the future
        client.call("Train", frame)  # no Hello
        for step in range(1, client.schedule.steps + 1):
            client.take_step(step)
            if step == 2:
                client.call("Train", client.hello(), client.activation(2, torch.ones(batch_size, 4)))
        client.leave()
    return client.received


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in itertools.count())


@pytest.mark.parametrize("batch_size", [8, 1], ids=["batches of 8", "batches of 1"])
def test_P15_the_wire_is_the_same_whatever_the_labels(folders: Iterator[Path], batch_size: int) -> None:
    wire = converse(next(folders), HALF, batch_size=batch_size)
    assert converse(next(folders), RARE, batch_size=batch_size) == wire
    assert sum(kind == "Train" for kind, _ in wire) > ROWS / batch_size  # it did talk


def masked(wire: Wire) -> Wire:
    """The wire without the numbers of gradients, and without the history, which digests them."""
    result: Wire = []
    for kind, item in wire:
        if kind == "Train":
            response = training_pb2.TrainResponse.FromString(item)
            if response.HasField("answer"):
                response.answer.history = bytes(len(response.answer.history))
                response.answer.gradient.data = bytes(len(response.answer.gradient.data))
            item = (len(item), response.SerializeToString())
        result.append((kind, item))
    return result


@pytest.mark.parametrize(
    "defense", [{"name": name} for name in ("none", "iso", "max_norm", "marvell", "gafm")], ids=lambda d: d["name"]
)
def test_P15_a_real_defense_shows_in_the_gradients_alone(folders: Iterator[Path], defense: Run) -> None:
    wires = [converse(next(folders), labels, defense=defense) for labels in (HALF, RARE)]
    assert wires[0] != wires[1]
    assert masked(wires[0]) == masked(wires[1])


# What the test above must notice.


def leak_in_a_trailer(patch: pytest.MonkeyPatch) -> None:
    train, step = LabelPartyServicer.Train, LabelTraining.step
    losses: list[float] = []

    def stepping(self: LabelTraining, *args: Any) -> StepResult:
        result = step(self, *args)
        losses.append(result.loss)
        return result

    def training(self: LabelPartyServicer, requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        yield from train(self, requests, context)
        context.set_trailing_metadata((("load", f"{losses[-1:]}"),))

    patch.setattr(LabelTraining, "step", stepping)
    patch.setattr(LabelPartyServicer, "Train", training)


def leak_in_an_error(patch: pytest.MonkeyPatch) -> None:
    on_activation = LabelPartyServicer._on_activation

    def answering(self: LabelPartyServicer, *args: Any) -> Iterator[Any]:
        for frame in on_activation(self, *args):
            if any(metric.name == "one_class" for metric in frame.answer.metrics):
                raise errors.FrameError("the batch has one class")
            yield frame

    patch.setattr(LabelPartyServicer, "_on_activation", answering)
    _mark_one_class(patch)


def leak_by_length(patch: pytest.MonkeyPatch) -> None:
    _mark_one_class(patch)


def leak_by_a_skipped_step(patch: pytest.MonkeyPatch) -> None:
    step = LabelTraining.step

    def stepping(self: LabelTraining, at: Any, received: Any) -> StepResult:
        result = step(self, at, received)
        if len(self.labels[at.rows].unique()) == 1:
            releases = {party: replace(release, gradient=None) for party, release in result.releases.items()}
            return result._replace(releases=releases)
        return result

    patch.setattr(LabelTraining, "step", stepping)
    patch.setattr(LabelTraining, "conclude", lambda *_: {})  # which looks at the gradients


def leak_of_metrics_that_are_not_shared(patch: pytest.MonkeyPatch) -> None:
    one_step = Walk._train_or_evaluate

    def stepping(self: Walk, *args: Any) -> Any:
        taken = one_step(self, *args)
        telling = {party: replace(release, metrics=taken.test) for party, release in taken.releases.items()}
        return replace(taken, releases=telling)

    patch.setattr(Walk, "_train_or_evaluate", stepping)


def leak_of_knowledge_that_is_not_granted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Job, "granted", lambda self, party: GrantedKnowledge(clean_positive_gradient=True))


def leak_of_labels_that_are_not_granted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Job, "granted", lambda self, party: GrantedKnowledge(labelled_rows=1))


def _mark_one_class(patch: pytest.MonkeyPatch) -> None:
    step = LabelTraining.step

    def stepping(self: LabelTraining, at: Any, received: Any) -> StepResult:
        result = step(self, at, received)
        if len(self.labels[at.rows].unique()) == 1:
            marked = {party: replace(release, metrics={"one_class": 1.0}) for party, release in result.releases.items()}
            return result._replace(releases=marked)
        return result

    patch.setattr(LabelTraining, "step", stepping)


@pytest.mark.parametrize(
    "plant",
    [
        leak_in_a_trailer,
        leak_in_an_error,
        leak_by_length,
        leak_by_a_skipped_step,
        leak_of_metrics_that_are_not_shared,
        leak_of_knowledge_that_is_not_granted,
        leak_of_labels_that_are_not_granted,
    ],
)
def test_P15_a_planted_leak_is_noticed(
    folders: Iterator[Path], plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    wires = []
    for labels in (HALF, RARE):
        try:
            wires.append(converse(next(folders), labels))
        except Exception as error:  # a conversation that breaks off tells something too
            wires.append([("broke off", type(error).__name__)])
    assert wires[0] != wires[1]


def _all_errors(root: type[Exception]) -> list[type[Exception]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in _all_errors(child))]


@pytest.mark.parametrize(
    "kind",
    [
        e
        for e in _all_errors(errors.CutlayerError)
        if getattr(e, "wire_status", None) is None and e is not errors.Interrupted
    ]
    + [ValueError, KeyError, RuntimeError, AssertionError, OSError],
    ids=lambda e: e.__name__,
)
def test_P15_the_text_of_an_error_stays_inside(
    folders: Iterator[Path], kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> Any:
        raise kind("LABEL=1")

    monkeypatch.setattr(LabelPartyServicer, "_on_activation", fail)
    folder = next(folders)
    run = make_run(folder, HALF, 8, {"name": "iso"})
    run["label_party"]["timeouts"] = {"stall_s": 0.5, "reconnect_s": 0.5, "goodbye_s": 0.5}
    run["label_party"].pop("noise_secret")
    with label_party(folder, run) as address:
        client = ScriptedClient(address, run)
        client.align()
        client.call("Train", client.hello(), client.activation(1))
        client.channel.close()
    (_, (code, details, _)) = client.received[-1]
    assert (code, details) == (grpc.StatusCode.INTERNAL, "see the label party's log")
    assert "LABEL" not in repr(client.received)
    assert "LABEL=1" in (folder / "out" / "label_party" / "log").read_text()


def test_P15_goodbyes_say_nothing_but_a_closed_reason() -> None:
    fields = {field.name: field.type for field in session_pb2.Goodbye.DESCRIPTOR.fields}
    assert fields == {"reason": 14, "party": 9}  # an enum, and the name of a party
