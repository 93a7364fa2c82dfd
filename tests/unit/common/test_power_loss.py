"""A loss of power at any moment leaves what was there before or what was to be, whole; and what was called safe is."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from support.power_loss import Recorder, State, materialise, record
from torch import Tensor

from cutlayer.common.checkpoints import CheckpointOwner, CheckpointStore
from cutlayer.common.config import Capture
from cutlayer.common.displays import PlainDisplay
from cutlayer.common.files import load_secret, write_atomically
from cutlayer.common.job import CutLayer, Job
from cutlayer.common.run_state import RunState
from cutlayer.common.telemetry import Telemetry
from cutlayer.label_party.answered import AnsweredActivations
from cutlayer.nonlabel_party.capture import Captured
from cutlayer.nonlabel_party.guesses import Guesses
from cutlayer.nonlabel_party.recorder import Recorder as CaptureRecorder
from cutlayer.nonlabel_party.view import LabelGuess, StepView

JOB = bytes(32)
CAPTURED_JOB = Job(name="test", epochs=1, batch_size=2, cut_layer=CutLayer(width=2), parties=("lab",))
Make = Callable[[State], Path]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the work under test writes."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes a folder as a loss of power has left it."""
    numbers: Iterator[int] = itertools.count()
    return lambda state: materialise(state, tmp_path / f"state-{next(numbers)}")


def store(folder: Path, said: list[str] | None = None, keep: int = 2) -> CheckpointStore:
    return CheckpointStore(folder, CheckpointOwner("lab", "job"), keep, [].append if said is None else said.append)


def tensors(step: int) -> dict[str, Tensor]:
    return {"weight": torch.full((40, 5), step / 7), "step": torch.tensor(step)}


def require_whole(folder: Path, step: int) -> None:
    loaded = store(folder).load(step)
    assert loaded.record == {"step": step}
    assert all(torch.equal(loaded.tensors[name], tensor) for name, tensor in tensors(step).items())


@pytest.mark.parametrize("before", [0, 1, 2], ids=["the first", "the second", "one goes"])
def test_P04_a_checkpoint_is_whole_or_absent(folder: Path, make: Make, before: int) -> None:
    for step in range(1, before + 1):
        store(folder).save(step, tensors(step), {"step": step})
    new = before + 1
    states, after = record(folder, lambda: store(folder).save(new, tensors(new), {"step": new}))
    newest = set()
    for state in states:
        left, said = make(state), list[str]()
        steps = store(left, said).steps()
        assert steps[:1] in {(new,), tuple(range(before, 0, -1))[:1]}
        assert not said or new > 2  # nothing damaged has a name, but for one that is being removed
        newest.update(steps[:1])
        for step in steps:
            require_whole(left, step)
        store(left).drop_after(before)
        store(left).save(new, tensors(new), {"step": new})
        assert store(left).steps()[0] == new
    assert newest == set(range(max(before, 1), new + 1))
    assert {store(make(state)).steps()[0] for state in after} == {new}


def test_P04_a_damaged_checkpoint_is_replaced(folder: Path, make: Make) -> None:
    for step in (1, 2):
        store(folder).save(step, tensors(step), {"step": step})
    (folder / "checkpoints" / "step-000000002" / "state.safetensors").write_bytes(b"damaged")
    states, after = record(folder, lambda: store(folder).save(2, tensors(2), {"step": 2}))
    assert {store(make(state)).steps() for state in states} == {(1,), (2, 1)}
    assert {store(make(state)).steps() for state in after} == {(2, 1)}


@pytest.mark.parametrize("old", [None, b"old" * 50])
def test_P04_a_file_is_the_old_or_the_new_one(folder: Path, make: Make, old: bytes | None) -> None:
    path, new = folder / "file", b"new" * 30
    if old is not None:
        path.write_bytes(old)

    def content(state: State) -> bytes | None:
        file = make(state) / "file"
        return file.read_bytes() if file.exists() else None

    states, after = record(folder, lambda: write_atomically(path, new))
    assert {content(state) for state in states} == {old, new}
    assert {content(state) for state in after} == {new}


def test_P04_a_secret_is_whole_or_absent(folder: Path, make: Make) -> None:
    states, after = record(folder, lambda: load_secret(folder / "secret"))
    secret = (folder / "secret").read_bytes()
    for state in states:
        file = make(state) / "secret"
        assert not file.exists() or file.read_bytes() == secret
    assert {(make(state) / "secret").read_bytes() for state in after} == {secret}


def test_P04_the_state_of_a_run_is_always_readable(folder: Path, make: Make) -> None:
    def work() -> None:
        state = RunState(folder, JOB)
        state.begin()
        state.of_rows(b"rows", b"run")
        state.finish()

    states, after = record(folder, work)
    found = {(RunState(make(state), JOB).begun, RunState(make(state), JOB).finished) for state in states}
    assert found == {(False, False), (True, False), (True, True)}
    assert all(RunState(make(state), JOB).finished for state in after)


def test_P04_answered_activations_are_known_after_a_sync(folder: Path, make: Make) -> None:
    digests = {step: bytes([step]) * 32 for step in range(1, 6)}
    answered = AnsweredActivations(folder / "answered")

    recorder = Recorder(folder)
    with pytest.MonkeyPatch.context() as patch:
        recorder.hook(patch)
        for step in (1, 2, 3):
            answered.note(step, {"lab": digests[step]})
        answered.sync()
        synced = recorder.settled()
        for step in (4, 5):
            answered.note(step, {"lab": digests[step]})
    synced |= recorder.settled()
    answered.close()
    for state in {*recorder.states, *synced}:
        left = AnsweredActivations(make(state) / "answered")
        assert all(left.at("lab", step) in (None, digest) for step, digest in digests.items())
    for state in synced:
        left = AnsweredActivations(make(state) / "answered")
        assert [left.at("lab", step) for step in (1, 2, 3)] == [digests[step] for step in (1, 2, 3)]


def guess(step: int) -> list[LabelGuess]:
    return [LabelGuess(row_ids=(f"r{step}", "r0"), score_B=torch.tensor([step / 10, 0.0]), layer="cut")]


def steps_in(path: Path) -> list[int]:
    steps: list[int] = pq.read_table(path)["step"].to_pylist()
    return steps


def test_P04_guesses_up_to_a_checkpoint_are_kept(folder: Path, make: Make) -> None:
    """After each moment there is a checkpoint that a party can go back to, and then it ends with the same guesses."""
    path = folder / "norm.parquet"
    guesses = Guesses(path)
    safe = 0
    moments: list[tuple[int, State]] = []

    def until(step: int, work: Callable[[], object]) -> None:
        nonlocal safe
        states, after = record(folder, work)
        moments.extend((safe, state) for state in states)
        safe = step
        moments.extend((safe, state) for state in after)

    for end in (2, 4):
        for step in (end - 1, end):
            guesses.add(step, guess(step))
        until(end, lambda end=end: guesses.end_part(end))  # type: ignore[misc]
    until(4, lambda: guesses.merge(5))
    for went_back_to, state in moments:
        left = make(state)
        again = Guesses(left / "norm.parquet")
        again.go_back(went_back_to)
        for step in range(went_back_to + 1, 5):
            again.add(step, guess(step))
        again.merge(5)
        again.drop_parts()
        assert steps_in(left / "norm.parquet") == [1, 1, 2, 2, 3, 3, 4, 4]
        assert [file.name for file in left.iterdir()] == ["norm.parquet"]
    _, after = record(folder, guesses.drop_parts)
    assert all(steps_in(make(state) / "norm.parquet") == [1, 1, 2, 2, 3, 3, 4, 4] for state in after)


def recorder(folder: Path, after: int = 0) -> CaptureRecorder:
    made = CaptureRecorder(CAPTURED_JOB, "lab", Capture(first_layer=False), 1, folder, [].append)
    made.go_back(after)
    made.begin(np.array(["r0", "r1"], dtype=object), torch.eye(2), {})
    return made


def view(step: int) -> StepView:
    return StepView(step=step, row_ids=("r1", "r0"), x_BF=torch.eye(2), z_Bd=torch.eye(2), g_Bd=torch.eye(2) * step)


def test_P04_what_is_captured_up_to_a_checkpoint_is_kept(folder: Path, make: Make) -> None:
    """After each moment there is a checkpoint that a party can go back to, and then it ends with the same capture."""
    begun: list[CaptureRecorder] = []
    states, after = record(folder, lambda: begun.append(recorder(folder / "capture")))
    moments = [(0, state) for state in (*states, *after)]
    (captured,) = begun
    for first, last in ((1, 2), (3, 4)):
        for step in (first, last):
            captured.add(view(step))
        work = captured.end_part if last < 4 else captured.finish
        states, after = record(folder, partial(work, last))
        moments += [(first - 1, state) for state in states] + [(last, state) for state in after]
    assert len(moments) > 20
    for went_back_to, state in moments:
        left = make(state) / "capture"
        again = recorder(left, went_back_to)
        for step in range(went_back_to + 1, 5):
            again.add(view(step))
        again.finish(4)
        found = Captured.open(left)
        assert [one.step for one in found.views()] == [1, 2, 3, 4]
        assert found.last_step == 4
        assert [file.name for file in left.iterdir() if file.suffix in (".part", ".whole")] == []


def test_P04_metrics_are_old_or_new_lines_and_safe_at_the_end(folder: Path, make: Make) -> None:
    (folder / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    telemetry = Telemetry("label_party", folder, PlainDisplay(), metrics_file=folder / "metrics.jsonl")

    def lines(state: State) -> list[int]:
        text = (make(state) / "metrics.jsonl").read_text()
        return [json.loads(line)["step"] for line in text.splitlines() if line.endswith("}")]

    def work() -> None:
        telemetry.restart([{"step": 1}, {"step": 2}])
        telemetry.evaluation({"step": 4})
        telemetry.sync()

    with telemetry:
        states, after = record(folder, work)
    assert {tuple(lines(state)) for state in states} == {(1, 2, 3), (1, 2), (1, 2, 4)}
    assert {tuple(lines(state)) for state in after} == {(1, 2, 4)}
