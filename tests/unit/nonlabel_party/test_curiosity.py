"""The attacks beside training: what they wrote, and that none of them can end the run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from cutlayer.common.config import Choice
from cutlayer.common.errors import PluginError
from cutlayer.common.job import Job
from cutlayer.nonlabel_party.curiosity import FINAL, Curiosity, make_attack
from cutlayer.nonlabel_party.watchdog import Watchdog
from cutlayer.plugins import Attack, LabelGuess, StepView

JOB = Job.model_validate({"name": "j", "epochs": 1, "batch_size": 2, "cut_layer": {"width": 2}, "parties": ["lab"]})


@dataclass(kw_only=True)
class Fragile(Attack):
    """Guesses at step 1, fails at step 2."""

    paper: ClassVar[str] = "none"

    def observe(self, view: StepView) -> list[LabelGuess]:
        if view.step == 2:
            raise RuntimeError("nothing to see")
        return [LabelGuess(view.row_ids, torch.tensor([0.1, 0.2], dtype=torch.float64))]

    def infer(self) -> list[LabelGuess]:
        return [LabelGuess(("a",), torch.tensor([1.0]))]


@dataclass(kw_only=True)
class Demanding(Fragile):
    """Needs knowledge."""

    needs: ClassVar[frozenset[str]] = frozenset({"clean_positive_gradient"})


FRAGILE, DEMANDING = Choice(name=f"{__name__}:Fragile"), Choice(name=f"{__name__}:Demanding")


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


def view(step: int) -> StepView:
    g_Bd = torch.tensor([[1.0, 0.0], [3.0, 4.0]])
    return StepView(step=step, row_ids=("a", "b"), x_BF=g_Bd, z_Bd=g_Bd, g_Bd=g_Bd)


def test_guesses_go_to_one_file_an_attack_whole(tmp_path: Path) -> None:
    chosen = [Choice(name="norm", layers=["cut"]), Choice(name="norm", layers=["cut"])]  # type: ignore[call-arg]
    curiosity = Curiosity(JOB, "lab", chosen, tmp_path / "attacks", print)
    assert not curiosity.looks_at_first_layer
    curiosity.observe(view(1))
    assert not list(tmp_path.rglob("*.parquet"))
    curiosity.finish(2)
    curiosity.clean()
    assert sorted(path.name for path in (tmp_path / "attacks").iterdir()) == ["norm-2.parquet", "norm.parquet"]
    rows = pq.read_table(tmp_path / "attacks" / "norm.parquet").to_pylist()
    assert rows == [
        {"step": 1, "layer": "cut", "row_id": "a", "score": 1.0},
        {"step": 1, "layer": "cut", "row_id": "b", "score": 5.0},
    ]


def test_scores_are_kept_to_the_last_bit(tmp_path: Path) -> None:
    curiosity = Curiosity(JOB, "lab", [FRAGILE], tmp_path, print)
    curiosity.observe(view(1))
    curiosity.finish(2)
    rows = pq.read_table(next(tmp_path.glob("*.parquet"))).to_pylist()
    assert [(row["step"], row["score"]) for row in rows] == [(1, 0.1), (1, 0.2), (FINAL, 1.0)]


def test_an_attack_that_fails_is_off_and_said_so(tmp_path: Path) -> None:
    said: list[str] = []
    curiosity = Curiosity(JOB, "lab", [FRAGILE, Choice(name="norm")], tmp_path, said.append)
    assert curiosity.looks_at_first_layer
    curiosity.observe(view(2))
    assert [text for text in said if "Fragile' failed at step 2" in text]


@pytest.mark.parametrize(
    "guess",
    [
        (("a", "b"), torch.tensor([1.0])),
        (("a",), torch.tensor([[1.0], [2.0]])),
        (("a", 7), torch.tensor([1.0, 2.0])),
        (("a", "b"), [1.0, 2.0]),
        (("a", "b"), np.array([1.0, 2.0])),
        (("a", "b"), torch.tensor([1.0, 2.0]), 1),
    ],
    ids=["too few scores", "a matrix", "a number for an id", "a list", "numpy", "a number for the layer"],
)
def test_a_guess_that_is_none_puts_the_attack_off_and_spoils_nothing(
    guess: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    norm = Choice(name="norm", layers=["cut"])  # type: ignore[call-arg]
    curiosity = Curiosity(JOB, "lab", [FRAGILE, norm], tmp_path, said.append)
    curiosity.observe(view(1))
    monkeypatch.setattr(Fragile, "observe", lambda self, view: [LabelGuess(*guess)])
    curiosity.observe(view(3))
    curiosity.finish(3)
    assert [text for text in said if "Fragile' failed at step 3 and is off" in text]
    assert pq.read_table(tmp_path / "norm.parquet")["step"].to_pylist() == [1, 1, 3, 3]


def test_an_attack_without_its_knowledge_is_refused() -> None:
    with pytest.raises(PluginError, match=r"needs job\.knowledge\.lab: \{clean_positive_gradient: true\}"):
        make_attack(JOB, "lab", DEMANDING)


def test_a_binary_attack_is_refused_for_more_classes() -> None:
    job = Job.model_validate(JOB.model_dump() | {"task": "multiclass", "classes": 3})
    with pytest.raises(PluginError, match="'norm' is for task binary, not multiclass"):
        make_attack(job, "lab", Choice(name="norm"))


class Call:
    """Notes when it is cancelled."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def test_the_watchdog_cancels_what_takes_too_long_and_nothing_else() -> None:
    watchdog, quick, slow = Watchdog(), Call(), Call()
    with watchdog.over(quick, 60):
        pass
    assert not quick.cancelled
    deadline = time.monotonic() + 20
    with watchdog.over(slow, 0.1):
        while not slow.cancelled and time.monotonic() < deadline:
            time.sleep(0.05)
    assert slow.cancelled
    assert watchdog.expired
    assert not quick.cancelled
