"""A party dies before or after a call of any function of its walk: in the end the same bits as without.

    CUTLAYER_KILL_POINTS=all scripts/test tests/faults/test_kill_points.py

takes every place, otherwise some are drawn; CUTLAYER_KILL_POINTS_SEED repeats a draw.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from support.forked import Fault
from support.hosts import KILLED, Hosts
from support.kill_points import EPOCH_STEPS, RUN, TRAIN_STEPS, Cell, cells
from support.kills import PARTIES, require_same, run_to_kill, write_run

DRAWN = 12
OF_ALL_WORKERS = os.environ.get("PYTEST_XDIST_TESTRUNUID")  # they must draw the same
SEED = os.environ.get("CUTLAYER_KILL_POINTS_SEED") or OF_ALL_WORKERS or str(random.SystemRandom().randrange(10**6))
RESUMING = [
    ("label_party", "before", "cutlayer.common.checkpoints:CheckpointStore.load"),
    ("label_party", "after", "cutlayer.label_party.exchange:Exchange.publish"),
    ("lab", "after", "cutlayer.common.checkpoints:CheckpointStore.load"),
    ("lab", "before", "cutlayer.nonlabel_party.training:BottomTraining.forward"),
]


def drawn() -> list[Cell]:
    """The places of this session."""
    if os.environ.get("CUTLAYER_KILL_POINTS") == "all":
        return cells()
    return random.Random(SEED).sample(cells(), DRAWN)


def see_it_through(path: Path, out: Path, faults: dict[str, list[Fault]]) -> dict[str, list[int]]:
    """Run with these faults, everyone who dies is started again; how each party ended each time."""
    with Hosts(path, RUN, out, faults=faults) as hosts:
        hosts.start()
        hosts.finish_whatever_happens()
    require_same(out, path.parent / "undisturbed")
    return hosts.statuses


def test_the_places_are_many_and_each_is_another_one() -> None:
    assert len(cells()) == len({str(cell) for cell in cells()}) > 250


@pytest.mark.slow
@pytest.mark.parametrize("cell", drawn(), ids=str)
def test_P01_killed_at_a_place(cell: Cell, killed_run: Path, tmp_path: Path) -> None:
    print(f"CUTLAYER_KILL_POINTS_SEED={SEED}")
    statuses = see_it_through(killed_run, tmp_path / "out", {cell.party: [cell.fault]})
    assert statuses[cell.party][0] == KILLED, f"{cell} was never reached"


@pytest.mark.slow
@pytest.mark.parametrize(("party", "when", "where"), RESUMING, ids=lambda value: value.rpartition(".")[2])
def test_P01_killed_again_while_it_resumes(party: str, when: str, where: str, killed_run: Path, tmp_path: Path) -> None:
    step = (
        "cutlayer.label_party.walk:Walk._step" if party == "label_party" else "cutlayer.nonlabel_party.walk:Walk.step"
    )
    again = Fault(when, where)  # type: ignore[arg-type]
    statuses = see_it_through(killed_run, tmp_path / "out", {party: [Fault("after", step, 31), again, again]})
    assert statuses[party][:3] == [KILLED, KILLED, KILLED]


@pytest.mark.slow
def test_P01_both_die_at_the_same_step_at_different_places(killed_run: Path, tmp_path: Path) -> None:
    faults = {
        "label_party": [Fault("after", "cutlayer.common.checkpoints:CheckpointStore.save", 3)],
        "lab": [Fault("before", "cutlayer.common.checkpoints:CheckpointStore.save", 3)],
        "bank": [Fault("after", "cutlayer.nonlabel_party.client:LabelPartyClient._read_answer", 39)],
    }
    see_it_through(killed_run, tmp_path / "out", faults)


@pytest.mark.slow
@pytest.mark.parametrize("place", [TRAIN_STEPS, TRAIN_STEPS + 3, EPOCH_STEPS], ids=["last batch", "evaluation", "end"])
def test_P01_a_checkpoint_at_any_place_of_an_epoch(place: int, tmp_path: Path) -> None:
    run = run_to_kill(epochs=1 + (place == EPOCH_STEPS), checkpoint={"every_steps": place}) | {"restarts": 0}
    path = write_run(tmp_path, run)
    whole, killed = tmp_path / "undisturbed", tmp_path / "out"
    saved = Fault("after", "cutlayer.common.checkpoints:CheckpointStore.save", 2)  # the first is that of step 0
    for out, faults in ((whole, {}), (killed, {party: [saved] for party in PARTIES})):
        with Hosts(path, run, out, faults=faults) as hosts:
            hosts.start()
            hosts.finish_whatever_happens()
    assert [hosts.statuses[party][0] for party in PARTIES] == [KILLED] * 3
    require_same(killed, whole)
