"""The search for an option that the run file leaves open: which value is taken, on which rows, and who refuses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.runs import BREAST_CANCER, changed, with_parties, write

from cutlayer.check import check
from cutlayer.common import run_files
from cutlayer.common.errors import ConfigError, UserError
from cutlayer.common.job import Job
from cutlayer.common.schedule import Schedule
from cutlayer.label_party.process import LabelParty
from cutlayer.searched import search_of
from cutlayer.sweep.plan import planned
from cutlayer.sweep.plugin_check import problems
from cutlayer.tuning import Point, best

OPEN = changed(BREAST_CANCER, {"label_party.top_model": None, "label_party.defense": {"name": "gafm", "delta": "auto"}})
JOB: dict[str, Any] = {"name": "test", "epochs": 1, "batch_size": 7, "cut_layer": {"width": 2}, "parties": ["lab"]}


def summary(auc: float | None, **leaks: float | None) -> dict[str, Any]:
    audit = {attack: {"cut": {"pooled_last_flipped": leak}} for attack, leak in leaks.items()}
    return {"utility": {"test_auc": auc}, "leak": {"audit": audit}}


def test_the_point_with_the_highest_auc_less_leak_is_taken() -> None:
    found = [
        Point.of(0.1, summary(0.90, norm=0.55, mean=0.60, median=0.58, cosine=0.99)),
        Point.of(0.3, summary(0.96, norm=0.61, mean=0.60, median=0.64, neighbours=None)),
        Point.of(0.4, summary(0.98, norm=0.61, mean=0.60, median=0.64, neighbours=0.9)),
        Point.of(0.5, summary(0.97, norm=0.50, mean=0.70, median=0.60)),
    ]
    assert [point.leak for point in found] == [0.60, 0.64, 0.90, 0.70]
    assert best(found) is found[1]
    assert best([found[1], Point(0.6, 0.96, 0.64)]) is found[1]


@pytest.mark.parametrize(
    "unknown", [summary(None, norm=0.5, mean=0.5, median=0.5), summary(0.9, norm=0.5, mean=None, median=0.5)]
)
def test_what_cannot_be_measured_is_said(unknown: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="too few"):
        Point.of(0.1, unknown)


def test_a_part_of_the_rows_leaves_out_the_test_rows_of_the_whole() -> None:
    whole, part = (Schedule.of(Job.model_validate({**JOB, **more}), 1000) for more in ({}, {"row_fraction": 0.1}))
    assert (len(part.train_rows), len(part.test_rows)) == (80, 20)
    used = {*part.train_rows.tolist(), *part.test_rows.tolist()}
    assert len(used) == 100
    assert used <= set(whole.train_rows.tolist())
    assert sorted(row for step in range(1, part.steps + 1) for row in part.rows_of(step).tolist()) == sorted(used)


def test_P19_the_digest_of_a_job_with_all_rows_is_what_it_was() -> None:
    plain, whole, part = (
        Job.model_validate({**JOB, **more}) for more in ({}, {"row_fraction": 1}, {"row_fraction": 0.5})
    )
    assert "row_fraction" not in plain.model_dump()
    assert plain.digest() == whole.digest() != part.digest()


def test_what_a_defense_leaves_open(tmp_path: Path) -> None:
    search = search_of(run_files.load(write(tmp_path, OPEN)))
    assert search is not None
    assert (search.option, search.row_fraction) == ("delta", 0.1)
    for defense in ("none", {"name": "gafm", "gamma": "auto"}, {"name": "gafm", "delta": 7}):
        assert search_of(run_files.load(write(tmp_path, changed(OPEN, {"label_party.defense": defense})))) is None


def test_runs_of_a_search_share_what_is_common(tmp_path: Path) -> None:
    file = write(tmp_path, with_parties(OPEN, ["lab", "bank"]))
    key = "label_party.defense.delta"
    runs = planned(file, file.name, {key: [0.1, 0.2]}, {"job.row_fraction": 0.25, "label_party.samples": 0})
    assert [run.run_file.label_section().defense.options["delta"] for run in runs] == [0.1, 0.2]
    assert all(run.run_file.job.row_fraction == 0.25 for run in runs)
    assert all(run.run_file.label_section().samples == 0 for run in runs)


def test_a_sweep_wants_a_value(tmp_path: Path) -> None:
    file = write(tmp_path, OPEN)
    (run,) = planned(file, file.name, {"job.seed": [0]})
    ((_, problem),) = problems({run.name: run.content})
    assert "delta: auto" in problem
    (run,) = planned(file, file.name, {"label_party.defense.delta": [0.1]})
    assert problems({run.name: run.content}) == []


def test_a_label_party_on_its_own_host_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, OPEN)
    advice = r"`cutlayer run` finds .*job\.row_fraction: 0\.1 for each delta of 0\.05, .*write it here"
    with pytest.raises(ConfigError, match=advice):
        LabelParty(run_files.load(file), tmp_path / "out", None, events=False)
    assert not (tmp_path / "out").exists()
    assert check(file) == 0
    assert check(file, "label_party") == 2
    assert "job.row_fraction: 0.1 for each delta" in capsys.readouterr().err
