"""GAFM in whole runs: the same as in one process, one to ten parties, killed on the way, and what a person is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file
from support import one_process_gafm
from support.kills import begin, kill, require_same, run_to_kill, wait_for_step, write_run
from support.runs import BREAST_CANCER, ROOT, Run, changed, cutlayer, finish, summary, with_parties, write
from support.threads import SECRET, train

from cutlayer.check import check
from cutlayer.summary import merge

GAFM: Run = {"name": "gafm", "gamma": "auto"}
ONE = changed(BREAST_CANCER, {"label_party.top_model": None, "label_party.defense": GAFM})


def parties(count: int, **changes: Any) -> Run:
    return changed(with_parties(ONE, [f"lab{number}" for number in range(count)]), changes)


def test_same_weights_as_one_process(tmp_path: Path) -> None:
    """Two parties of other widths under concat; without noise, which one process would have to draw alike."""
    cut = {"width": 3, "aggregation": "concat", "widths": {"lab1": 5}}
    defense = {"name": "gafm", "sigma": 0, "randomised_response": False}
    run = parties(2, **{"job.cut_layer": cut, "label_party.defense": defense})
    expected = one_process_gafm.train(write(tmp_path, run), SECRET)
    outcome = train(tmp_path, run).require_success()
    for party, weights in expected.items():
        torch.testing.assert_close(load(outcome.weights(party)), weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("aggregation", ["sum", "concat"])
def test_ten_parties(aggregation: str, tmp_path: Path) -> None:
    """The audit, the report's samples and the summary have all of them."""
    cut: Run = {"width": 2, "aggregation": aggregation}
    if aggregation == "concat":
        cut["widths"] = {"lab3": 5, "lab7": 1}
    outcome = train(tmp_path, parties(10, **{"job.cut_layer": cut})).require_success()
    released = summary(outcome.out)["releases"]
    assert len(released) == 10
    assert all((counts["rows"], counts["exact_rows"]) == (910, 0) for counts in released.values())
    samples = load_file(outcome.out / "label_party" / "samples.safetensors")
    for number in range(10):
        of = {kind: samples[f"lab{number}/{kind}"] for kind in ("exact", "perturbed", "gan", "ce")}
        assert of["exact"].shape[1] == cut.get("widths", {}).get(f"lab{number}", 2)
        torch.testing.assert_close(of["gan"] + of["ce"], of["exact"])
        assert torch.equal(of["exact"], of["perturbed"])
        if aggregation == "sum":
            assert torch.equal(of["exact"], samples["lab0/exact"])


def figures(out: Path) -> Mapping[str, float]:
    found: dict[str, float] = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    return found


def test_what_a_run_leaves_of_it(tmp_path: Path) -> None:
    outcome = train(tmp_path, ONE).require_success()
    objective = summary(outcome.out)["objective"]
    known = figures(outcome.out)
    assert objective == {
        "name": "gafm",
        "gamma": known["objective_gamma"],
        "train_auc": known["objective_train_auc"],
        "turned": bool(known["objective_turned"]),
        "flat_steps": 0,
    }
    assert {f"objective_loss_{name}" for name in ("d", "gan", "ce")} < known.keys()
    assert load(outcome.weights("label_party")).keys() > {"top.orientation", "top.net.0.weight"}
    assert "sent to" not in outcome.log("label_party")


def test_the_audit_finds_of_a_party_what_the_party_finds_itself(tmp_path: Path) -> None:
    changes = {
        "job.knowledge": {"lab": {"clean_positive_gradient": True}},
        "nonlabel_parties.lab.attacks": [
            {"name": name, "layers": ["cut"]} for name in ("norm", "cosine", "neighbours")
        ],
    }
    leak = merge(train(tmp_path, changed(ONE, changes)).require_success().out)["leak"]
    for attack, found in leak["attacks"]["lab"].items():
        assert found["cut"]["batches"] > 0
        audit = leak["audit"][attack]["cut"]
        figures = found["cut"].keys() - {"skipped"}  # of a batch that is too small for it a party has no guess
        assert {name: found["cut"][name] for name in figures} == pytest.approx({name: audit[name] for name in figures})


def test_without_randomised_response_all_rows_count_as_exact(tmp_path: Path) -> None:
    run = changed(ONE, {"label_party.defense": {"name": "gafm", "randomised_response": False}})
    outcome = train(tmp_path, run).require_success()
    assert summary(outcome.out)["releases"]["lab"]["exact_rows"] == 910
    assert "gafm without randomised response" in outcome.log("label_party")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"job.task": "multiclass", "job.classes": 3}, "defense 'gafm' is for task binary, not multiclass"),
        ({"label_party.top_model": "nothing"}, "unknown top model 'nothing'"),
        ({"label_party.defense.delta": 0.7}, "defense 'gafm', option delta"),
    ],
    ids=["multiclass", "top_model", "delta"],
)
def test_a_run_file_that_cannot_be(changes: Run, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = changed(ONE, changes)
    if "job.task" in changes:
        run = changed(run, {"label_party.data.source": "wine", "nonlabel_parties.lab.data.source": "wine"})
    assert check(write(tmp_path, run)) == 2
    assert why in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_P01_parties_that_are_killed_go_on_with_the_same_bits(tmp_path: Path) -> None:
    run = changed(run_to_kill(epochs=2), {"label_party.defense": {**GAFM, "generator": "free"}})
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = cutlayer("run", write_run(whole, run), "--out", whole / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    process = begin(write_run(killed, run), killed / "out")
    assert wait_for_step(process, killed / "out", 53)  # past the first epoch and the batches that gamma follows from
    kill(killed / "out", ["lab", "label_party"])
    status, output = finish(process)
    assert status == 0, output
    assert "going on from the checkpoint of step" in output
    require_same(killed / "out", whole / "out")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_with_three_parties(tmp_path: Path) -> None:
    done = cutlayer("run", ROOT / "examples" / "gafm_three_parties.yaml", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    found = summary(tmp_path / "out")
    assert found["utility"]["test_auc"] > 0.9
    assert not found["objective"]["turned"]
