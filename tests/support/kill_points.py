"""Where a party may die: the functions of a step, of a checkpoint, of the beginning and of the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutlayer.common.job import LABEL_PARTY
from support.forked import Fault
from support.kills import run_to_kill

EVERY = 20
RUN = run_to_kill(epochs=2, checkpoint={"every_steps": EVERY}) | {"restarts": 0}
TRAIN_STEPS, EPOCH_STEPS, STEPS = 29, 37, 74
_AT = (1, EVERY - 1, EVERY, EVERY + 1, STEPS)
_CHECKPOINTS = (1, 2, 3, 5)  # of steps 0, 20, 40, 60, 74
_LABEL, _LAB, _COMMON = "cutlayer.label_party", "cutlayer.nonlabel_party", "cutlayer.common"


@dataclass(frozen=True)
class Cell:
    """One party and what happens to it."""

    party: str
    fault: Fault

    def __str__(self) -> str:
        return f"{self.party} {self.fault}"


# Function -> calls for each step, after so many before the first.
_LABEL_STEP = {
    f"{_LABEL}.exchange:Exchange.submit": (2, 2),
    f"{_LABEL}.exchange:Exchange.collect": (1, 1),
    f"{_LABEL}.session:LabelPartyLink.on_activation": (2, 0),
    f"{_LABEL}.walk:Walk._train_or_evaluate": (1, 0),
    f"{_LABEL}.server:LabelPartyServicer.seal": (1, 0),
    f"{_LABEL}.walk:Walk._conclude": (1, 0),
    f"{_LABEL}.walk:Walk._report": (1, 0),
    f"{_LABEL}.answered:AnsweredActivations.note": (1, 0),
    f"{_LABEL}.session:LabelPartyLink.answered": (2, 0),
    f"{_LABEL}.exchange:Exchange.publish": (1, 1),
}
_LAB_STEP = {
    f"{_LAB}.training:BottomTraining.forward": (1, 0),
    f"{_LAB}.walk:to_matrices": (1, 0),
    f"{_LAB}.session:NonlabelPartyLink.activation": (1, 0),
    f"{_LAB}.client:LabelPartyClient.exchange": (1, 0),
    f"{_LAB}.client:LabelPartyClient._read_answer": (1, 0),
    f"{_LAB}.session:NonlabelPartyLink.on_answer": (1, 0),
    f"{_LAB}.client:LabelPartyClient.applied": (1, 0),
}
_LAB_TRAIN = [f"{_LAB}.curiosity:Curiosity.observe", f"{_LAB}.training:BottomTraining.backward"]

# Function -> calls for each checkpoint.
_SAVING = {
    f"{_COMMON}.checkpoints:CheckpointStore.save": 1,
    f"{_COMMON}.checkpoints:pack": 1,
    f"{_COMMON}.checkpoints:write_synced": 2,
    f"{_COMMON}.checkpoints:sync_folder": 2,
    f"{_COMMON}.checkpoints:CheckpointStore._prune": 1,
}
_LABEL_SAVING = _SAVING | {f"{_LABEL}.answered:AnsweredActivations.sync": 1, f"{_LABEL}.walk:content": 1}
_LAB_SAVING = _SAVING | {
    f"{_LAB}.recorder:Recorder.end_part": 1,
    f"{_LAB}.guesses:Guesses.end_part": 5,
    f"{_LAB}.steps:content": 1,
}

# Functions that are called once, and of those called more often the first call.
_LABEL_ONCE = [
    f"{_COMMON}.run_state:RunState.begin",
    f"{_COMMON}.run_state:RunState.of_rows",
    f"{_COMMON}.checkpoints:CheckpointStore.drop_after",
    f"{_LABEL}.server:LabelPartyServicer.open_training",
    f"{_LABEL}.exchange:Exchange.await_finish",
    f"{_LABEL}.process:save_model",
    f"{_LABEL}.process:write_table",
    f"{_LABEL}.samples:Samples.write",
    f"{_COMMON}.run_state:RunState.finish",
    f"{_LABEL}.exchange:Exchange.confirm",
    f"{_LABEL}.exchange:Exchange.close",
]
_LAB_ONCE = [
    f"{_COMMON}.run_state:RunState.begin",
    f"{_COMMON}.run_state:RunState.of_rows",
    f"{_COMMON}.checkpoints:CheckpointStore.drop_after",
    f"{_LAB}.client:LabelPartyClient.align",
    f"{_LAB}.client:LabelPartyClient.begin_training",
    f"{_LAB}.client:LabelPartyClient._open",
    f"{_LAB}.recorder:Recorder.begin",
    f"{_LAB}.curiosity:Curiosity.finish",
    f"{_LAB}.recorder:Recorder.finish",
    f"{_LAB}.guesses:Guesses.merge",
    f"{_LAB}.process:save_model",
    f"{_LAB}.process:write_json",
    f"{_LAB}.client:LabelPartyClient.finish",
    f"{_COMMON}.run_state:RunState.finish",
    f"{_LAB}.curiosity:Curiosity.clean",
]


def cells() -> list[Cell]:
    """All of them."""
    found = []
    for party, function, nth in (*_label_calls(), *_lab_calls()):
        found += [Cell(party, Fault("before", function, nth)), Cell(party, Fault("after", function, nth))]
    return found


def _label_calls() -> Iterator[tuple[str, str, int]]:
    for function, (per_step, earlier) in _LABEL_STEP.items():
        yield from ((LABEL_PARTY, function, per_step * (step - 1) + 1 + earlier) for step in _AT)
    for function, per_checkpoint in _LABEL_SAVING.items():
        yield from ((LABEL_PARTY, function, per_checkpoint * number) for number in _CHECKPOINTS)
    yield from ((LABEL_PARTY, function, 1) for function in _LABEL_ONCE)


def _lab_calls() -> Iterator[tuple[str, str, int]]:
    for function, (per_step, earlier) in _LAB_STEP.items():
        yield from (("lab", function, per_step * (step - 1) + 1 + earlier) for step in _AT)
    for function in _LAB_TRAIN:
        yield from (("lab", function, nth) for nth in (*_AT[:-1], 2 * TRAIN_STEPS))
    for function, per_checkpoint in _LAB_SAVING.items():
        yield from (("lab", function, per_checkpoint * number) for number in _CHECKPOINTS)
    yield from (("lab", function, 1) for function in _LAB_ONCE)
