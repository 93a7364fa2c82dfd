"""Nothing goes out unprotected, and no bound grows, without being counted and said; what the job grants of labels.

Shape suffixes: N rows, B rows of the batch, d cut-layer width.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from cutlayer.common.config import LabelPartySection
from cutlayer.common.job import Job
from cutlayer.common.leakage import auc_bound
from cutlayer.common.randomness import Noise
from cutlayer.common.schedule import Schedule
from cutlayer.label_party.defenses import defenses
from cutlayer.label_party.knowledge import draw_labelled
from cutlayer.label_party.notices import Notices, worse_than_chance
from cutlayer.label_party.training import LabelTraining, Received

ROWS, WIDTH = 120, 3
Y_N = torch.tensor([int(row % 3 == 0) for row in range(ROWS)])


def training(defense: Any, **job: Any) -> LabelTraining:
    agreed = Job.model_validate(
        {"name": "test", "epochs": 9, "batch_size": 30, "test_fraction": 0, "cut_layer": {"width": WIDTH}}
        | {"parties": ["lab"]}
        | job
    )
    section = LabelPartySection.model_validate({"data": {"source": "wine"}, "defense": defense})
    schedule = Schedule(agreed.seed, ROWS, agreed.test_fraction, agreed.batch_size, agreed.epochs)
    return LabelTraining(agreed, section, schedule, None, Y_N, bytes(32))


def take(made: LabelTraining, step: int, notices: Notices) -> list[str]:
    """One step with made-up activations; what is new after it."""
    at = made.schedule.at(step)
    z_Bd = torch.randn(len(at.rows), WIDTH, generator=torch.Generator().manual_seed(step))
    received = {"lab": Received(z_Bd, step.to_bytes(32, "little"))}
    made.conclude(at, received, made.step(at, received))
    return notices.new(step)


def said(made: LabelTraining, steps: int) -> list[str]:
    notices = Notices(made)
    return [text for step in range(1, steps + 1) for text in take(made, step, notices)]


def test_exact_gradients_of_a_defense_are_said_once_and_counted() -> None:
    made = training("support.plugins:Forgetful")
    assert said(made, 4) == [
        "step 1: the defense left the whole gradient for lab as it is; such steps are counted in `releases` of "
        "summary.json"
    ]
    assert made.releases() == {"lab": {"rows": 120, "exact_rows": 120, "steps": 4, "exact_steps": 4}}
    assert made.unprotected.exact_steps == 4


def test_a_batch_that_meets_the_target_without_noise_is_counted() -> None:
    """Gradients that do not tell the classes: Marvell sends what it was given."""
    g_Bd = torch.randn(4000, 2, generator=torch.Generator().manual_seed(1))
    defense = defenses.create("marvell", {"max_leak_auc": 0.6})
    sent = defense.defend(g_Bd, (torch.arange(4000) % 2).long(), noise=Noise(bytes(32)))
    assert torch.equal(sent.g_Bd, g_Bd)
    assert defense.counts() == {"fallback_running": 0, "fallback_max_norm": 0, "batch_without_noise": 1}


def test_without_a_defense_all_rows_are_counted_and_nothing_is_said() -> None:
    made = training("none")
    assert said(made, 4) == []
    assert made.releases() == {"lab": {"rows": 120, "exact_rows": 120, "steps": 4, "exact_steps": 4}}


def test_max_norm_sends_its_longest_row_as_it_is() -> None:
    made = training("max_norm")
    assert said(made, 4) == []
    assert made.releases() == {"lab": {"rows": 120, "exact_rows": 4, "steps": 4, "exact_steps": 0}}


def test_fallbacks_are_said_once_and_counted() -> None:
    """Batches of two rows have no statistics of their own."""
    made = training({"name": "marvell", "scale": 1.0}, batch_size=2)
    texts = said(made, 10)
    assert made.releases()["lab"]["fallback_max_norm"] == 10
    assert texts == ["step 1: the defense for lab: fallback max norm; counted in summary.json"]
    assert made.bound.summary() is None


def test_a_bound_that_grows_far_above_that_of_a_step_is_said_once() -> None:
    made = training({"name": "marvell", "max_leak_auc": 0.6})
    texts = said(made, 36)
    assert [text for text in texts if "the bound for the whole run is" in text] == texts
    assert len(texts) == 1
    assert texts[0].startswith("step 17: the bound for the whole run is 0.71 by now, that for a step 0.60")
    assert made.bound.per_step == pytest.approx(0.6)
    summary = made.bound.summary()
    assert summary is not None
    assert summary["whole_run_leak_auc"] == pytest.approx(auc_bound(9 * float(summary["sum_kl"])))
    assert str(summary["assumes"]).startswith("the exact gradients of each class in a batch are independent draws")


def test_counts_go_on_from_a_checkpoint() -> None:
    made = training("marvell", batch_size=2)
    said(made, 4)
    again = training("marvell", batch_size=2)
    again.restore(load(save(made.tensors())))
    again.unprotected.restore(load(save(made.unprotected.tensors())))
    assert again.releases() == made.releases()


# The variances that Marvell takes.


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    y_B = (torch.arange(400) % 4 == 0).long()
    spread_B1 = torch.where(y_B == 1, 2.0, 1.0)[:, None]
    return torch.randn(400, 8, generator=generator) * spread_B1 + y_B[:, None], y_B


def stated(**options: Any) -> dict[str, float]:
    g_Bd, y_B = batch()
    defense = defenses.create("marvell", options)
    defense.defend(g_Bd, y_B, noise=Noise(bytes(32)))
    return dict(defense.telemetry())


def test_other_variances_do_no_better_than_the_right_ones() -> None:
    """For the same power; what is stated is for the variances as they are."""
    figures = {model: stated(scale=2.0, model=model) for model in ("uv", "same", "zero")}
    assert figures["uv"]["power"] == figures["same"]["power"] == figures["zero"]["power"]
    assert figures["uv"]["sum_kl"] < min(figures["same"]["sum_kl"], figures["zero"]["sum_kl"])


def test_the_bound_is_that_of_the_variances_as_they_are() -> None:
    assert stated(max_leak_auc=0.7)["bound"] == pytest.approx(0.7, abs=1e-6)
    for model in ("same", "zero"):
        figures = stated(scale=2.0, model=model)
        assert figures["bound"] == auc_bound(figures["sum_kl"]) > stated(scale=2.0)["bound"]


# Labels that the job grants.


def test_labels_are_drawn_from_the_training_rows_of_each_class() -> None:
    schedule = Schedule(0, ROWS, 0.2, 10, 1)
    drawn = draw_labelled(Y_N, schedule, 5, 7, "lab")
    assert set(drawn) <= set(schedule.train_rows.tolist())
    assert sorted(drawn.values()) == [0] * 5 + [1] * 5
    assert all(int(Y_N[row]) == label for row, label in drawn.items())
    assert draw_labelled(Y_N, schedule, 5, 7, "lab") == drawn
    assert draw_labelled(Y_N, schedule, 5, 7, "bank") != drawn
    assert list(draw_labelled(Y_N, schedule, 2, 7, "lab").items()) == [
        *[(row, y) for row, y in drawn.items() if y == 0][:2],
        *[(row, y) for row, y in drawn.items() if y == 1][:2],
    ]


def test_a_class_with_fewer_rows_gives_all_it_has() -> None:
    rare = torch.zeros(ROWS, dtype=torch.int64)
    schedule = Schedule(0, ROWS, 0.2, 10, 1)
    rare[schedule.train_rows[:2]] = 1
    drawn = draw_labelled(rare, schedule, 5, "lab")
    assert sorted(drawn.values()) == [0] * 5 + [1] * 2
    assert draw_labelled(rare, schedule, 0, "lab") == {}


@pytest.mark.parametrize(("auc", "warned"), [(0.38, True), (0.5, False), (0.9, False), (None, False)])
def test_a_model_that_ranks_worse_than_chance_is_said(auc: float | None, warned: bool) -> None:
    said_of_it = worse_than_chance({"test_auc": auc, "test_loss": 0.7})
    assert (said_of_it is not None) == warned
    assert not warned or "test AUC 0.380: the model ranks the test rows worse than chance" in str(said_of_it)
