"""Attacks on what a curious party recorded have the figures of the same attacks beside training, to the last digit."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.runs import BREAST_CANCER, changed, cutlayer, summary, write

from cutlayer.attack import run_attacks
from cutlayer.common.errors import UserError
from cutlayer.common.leakage import flipped

ATTACKS = [
    "clusters",
    "cosine",
    "hint_cosine",
    "hint_distance",
    "hint_inner",
    "hint_norm",
    "history",
    "mean",
    "median",
    "neighbours",
    "norm",
    "spectral",
]
RUN = changed(
    BREAST_CANCER,
    {
        "job.epochs": 4,
        "job.knowledge": {"lab": {"clean_positive_gradient": True, "labelled_rows": 5}},
        "label_party.defense": {"name": "marvell", "max_leak_auc": 0.6},
        "nonlabel_parties.lab.attacks": ATTACKS,
        "nonlabel_parties.lab.capture": True,
    },
)


@dataclass(frozen=True)
class Done:
    out: Path
    capture: Path
    leak: dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("captured")
    done = cutlayer("run", write(folder, RUN), "--out", folder / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    return Done(folder / "out", folder / "out" / "lab" / "capture", summary(folder / "out")["leak"]["attacks"]["lab"])


def test_all_attacks_give_the_same_figures_and_guesses(run: Done, tmp_path: Path) -> None:
    """Without names: all that fit."""
    done = cutlayer("attack", run.capture, "--out", tmp_path / "again")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "again" / "attacks.json").read_text()) == {"lab": run.leak}
    assert sorted(run.leak) == ATTACKS
    for attack in ATTACKS:
        beside, later = (
            pq.read_table(folder / "attacks" / f"{attack}.parquet")
            for folder in (run.out / "lab", tmp_path / "again" / "lab")
        )
        assert later.combine_chunks().equals(beside.combine_chunks()), attack
    assert f"{run.leak['norm']['first']['mean']:.3f} ({run.leak['norm']['first']['mean_flipped']:.2f})" in done.stdout


def test_chosen_attacks_with_options_of_two_captures(run: Done, tmp_path: Path) -> None:
    """With labels of one's own; nothing is written."""
    labels = tmp_path / "labels.parquet"
    labels.write_bytes((run.out / "label_party" / "labels.parquet").read_bytes())
    chosen = ["--attack", "norm:layers=[cut]", "--attack", "hint_cosine:hints=1"]
    done = cutlayer("attack", run.capture, run.capture / ".." / "capture", *chosen, "--labels", labels, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split()[:3] for line in done.stdout.splitlines() if line.startswith("lab")]
    one = [["hint_cosine", "cut"], ["hint_cosine", "first"], ["norm", "cut"]]
    assert rows == [[party, *row] for party in ("lab", "lab-2") for row in one]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.parquet"]


def test_known_rows_are_training_rows_with_their_labels_and_are_not_guessed(run: Done) -> None:
    known = json.loads((run.capture / "capture.json").read_text())["known_labels"]
    table = pq.read_table(run.out / "label_party" / "labels.parquet").to_pydict()
    truth = dict(zip(table["row_id"], table["label"], strict=True))
    assert sorted(known.values()) == [0] * 5 + [1] * 5
    assert {row_id: truth[row_id] for row_id in known} == known
    for attack in ("hint_norm", "mean", "history"):
        guessed = pq.read_table(run.out / "lab" / "attacks" / f"{attack}.parquet")["row_id"].to_pylist()
        assert not known.keys() & set(guessed)
        assert len(set(guessed)) == 455 - len(known)


def test_what_adds_up_over_the_epochs_stays_below_the_bound_of_the_run(run: Done) -> None:
    bound = summary(run.out)["bound"]
    assert bound["per_step_leak_auc"] < bound["whole_run_leak_auc"] < 0.7
    for layer, figures in run.leak["history"].items():
        assert flipped(figures["final"]) <= bound["whole_run_leak_auc"], layer


@pytest.mark.parametrize(
    ("wanted", "labels", "out", "message"),
    [
        (None, None, None, "no labels to measure with, and no folder for the guesses"),
        (None, None, "taken", "taken: not empty"),
        (["nrm"], None, "new", "unknown attack 'nrm'"),
        (["norm:layers=[last]"], None, "new", "option layers.0: expected 'cut' or 'first'"),
        (["norm:layers=[cut"], None, "new", "expected NAME or NAME:option=value"),
        (["norm:"], None, "new", "expected NAME or NAME:option=value"),
        (None, "no.parquet", None, "no.parquet: expected a label party's labels.parquet"),
    ],
)
def test_what_cannot_be_done_is_said(
    run: Done, tmp_path: Path, wanted: list[str] | None, labels: str | None, out: str | None, message: str
) -> None:
    """Of a capture that has been taken out of its results."""
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    moved = tmp_path / "elsewhere" / "capture"
    shutil.copytree(run.capture, moved)
    with pytest.raises(UserError, match=re.escape(message)):
        run_attacks([moved], wanted, tmp_path / labels if labels else None, tmp_path / out if out else None)


def test_labels_of_other_rows_are_refused_and_missing_ones_are_told_of(
    run: Done, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = pq.read_table(run.out / "label_party" / "labels.parquet")
    pq.write_table(labels.slice(0, 300), tmp_path / "some.parquet")
    run_attacks([run.capture], ["norm"], tmp_path / "some.parquet", None)
    assert "has the labels of 300 of 569 rows; the others are not measured" in " ".join(capsys.readouterr().out.split())
    others = pa.table({"row_id": [f"other-{row}" for row in range(300)], "label": labels["label"].slice(0, 300)})
    pq.write_table(others, tmp_path / "others.parquet")
    with pytest.raises(UserError, match=r"others.parquet: has the label of no row of this capture"):
        run_attacks([run.capture], ["norm"], tmp_path / "others.parquet", None)


def test_what_is_no_capture_is_said(tmp_path: Path) -> None:
    done = cutlayer("attack", tmp_path)
    assert done.returncode == 2
    assert "no capture; one is the folder <results>/<party>/capture" in done.stderr
