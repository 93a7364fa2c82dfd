"""Small awkward inputs: what `check` and training make of them, and that no message shows an id or a traceback."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.csv_files import numbers, pair
from support.runs import Run, changed, cutlayer, summary, write
from support.threads import Outcome, train

from cutlayer.check import check
from cutlayer.common.errors import AlignmentError, DataError, PeerError

LABEL_IDS = numbers(0, 60)
DEFENSES = [{"name": "none"}, {"name": "iso"}, {"name": "max_norm"}, {"name": "marvell"}]


def require_discreet(text: str, ids: Sequence[object] = LABEL_IDS) -> None:
    """Fail if `text` shows an id or a traceback."""
    assert "Traceback" not in text
    shown = set(re.findall(r"[\w.-]+", text))
    assert shown.isdisjoint(map(str, ids))


def checked(folder: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit status and output of `cutlayer check`."""
    status = check(write(folder, run))
    captured = capsys.readouterr()
    text = captured.out + captured.err
    require_discreet(text)
    return status, text


def texts(outcome: Outcome, parties: Sequence[str] = ("label_party", "lab")) -> str:
    """All that the parties have said."""
    return "\n".join(text for party in parties for text in (outcome.log(party), outcome.error(party)))


def test_run_without_common_rows_ends_with_status_2_and_counts(tmp_path: Path) -> None:
    run = pair(tmp_path, LABEL_IDS, numbers(100, 50))
    done = cutlayer("run", write(tmp_path, run), "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "label.csv: 0 of 60 rows match (the other side has 50)" in done.stderr
    assert "partner.csv: 0 of 50 rows match" in done.stderr
    assert "Likely causes" in done.stderr
    require_discreet(done.stdout + done.stderr, [*LABEL_IDS, *numbers(100, 50)])


def test_check_finds_that_no_rows_are_common(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = checked(tmp_path, pair(tmp_path, LABEL_IDS, numbers(100, 50)), capsys)
    assert status == 2
    assert "0 of 60 rows match" in text
    assert "50" in text


def test_whole_numbers_against_decimals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = pair(tmp_path, LABEL_IDS, [f"{i}.0" for i in LABEL_IDS])
    status, text = checked(tmp_path, run, capsys)
    assert status == 2
    assert "write their ids differently" in text
    outcome = train(tmp_path, run)
    for party, file in (("label_party", "label.csv"), ("lab", "partner.csv")):
        assert isinstance(outcome.errors[party], AlignmentError)
        assert f"{file}: 0 of 60 rows match" in outcome.error(party)
        assert "17" in outcome.error(party)
        assert "17.0" in outcome.error(party)
    require_discreet(texts(outcome))


def test_duplicate_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = pair(tmp_path, LABEL_IDS, [*LABEL_IDS, *LABEL_IDS[:10]])
    status, text = checked(tmp_path, run, capsys)
    assert status == 2
    assert "10 ids occur more than once in partner.csv, column 'id'; keep one row for each id" in text
    outcome = train(tmp_path, run)
    assert isinstance(outcome.errors["lab"], DataError)
    assert "partner.csv" in outcome.error("lab")
    assert isinstance(outcome.errors["label_party"], PeerError)
    assert "'lab' has failed" in outcome.error("label_party")


def test_one_class_is_the_label_partys_secret(tmp_path: Path) -> None:
    outcome = train(tmp_path, pair(tmp_path, LABEL_IDS, LABEL_IDS, [1] * 60))
    assert isinstance(outcome.errors["label_party"], DataError)
    assert "1 class" in outcome.error("label_party")
    assert outcome.error("lab") == "the label party ended the session; its own log says why"
    assert "class" not in texts(outcome, ["lab"])


def test_labels_of_words_need_positive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is said shows no label, not even to the label party: its log goes to others."""
    words = ["malignant" if i % 3 == 0 else "benign" for i in range(60)]
    run = pair(tmp_path, LABEL_IDS, LABEL_IDS, words)
    status, text = checked(tmp_path, run, capsys)
    assert status == 2
    assert "`positive: ...`" in text
    outcome = train(tmp_path, changed(run, {"nonlabel_parties.lab.timeouts": {"connect_s": 5, "reconnect_s": 5}}))
    assert "`positive: ...`" in outcome.error("label_party")
    for said in (text, texts(outcome, ["lab", "label_party"])):
        assert [word for word in ("malignant", "benign") if word in said] == []


@pytest.mark.parametrize("positive", ["Yes", True])
def test_labels_of_words_with_positive(tmp_path: Path, positive: str | bool) -> None:
    words = ["Yes" if i % 3 == 0 else "No" for i in range(60)]
    run = changed(pair(tmp_path, LABEL_IDS, LABEL_IDS, words), {"label_party.data.positive": positive})
    outcome = train(tmp_path, run).require_success()
    labels = pq.read_table(outcome.out / "label_party" / "labels.parquet").to_pydict()
    expected = {str(i): int(word == "Yes") for i, word in zip(LABEL_IDS, words, strict=True)}
    assert dict(zip(labels["row_id"], labels["label"], strict=True)) == expected


def test_minus_one_and_one_are_negative_and_positive(tmp_path: Path) -> None:
    signs = [1 if i % 3 == 0 else -1 for i in range(60)]
    outcome = train(tmp_path, pair(tmp_path, LABEL_IDS, LABEL_IDS, signs)).require_success()
    labels = pq.read_table(outcome.out / "label_party" / "labels.parquet")["label"].to_pylist()
    assert sorted(labels) == [0] * 40 + [1] * 20


def test_partial_overlap_trains_and_reports_counts(tmp_path: Path) -> None:
    outcome = train(tmp_path, pair(tmp_path, numbers(0, 150), numbers(50, 150))).require_success()
    matched = "100 rows matched; dropped because not all hold them: 50 of label.csv, 50 of lab"
    assert matched in outcome.log("label_party")
    assert "100 rows matched; 50 of partner.csv dropped" in outcome.log("lab")
    found = summary(outcome.out)
    assert found["rows"] + found["test_rows"] == 100
    require_discreet(texts(outcome), numbers(0, 200))


def test_rows_without_a_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels: list[object] = [int(i % 3 == 0) for i in range(60)]
    labels[5:14] = [""] * 9
    run = pair(tmp_path, LABEL_IDS, LABEL_IDS, labels)
    status, text = checked(tmp_path, run, capsys)
    assert status == 2
    assert "label.csv: 9 rows have no label; `missing_label: drop` drops them" in text


def test_rows_without_a_label_can_be_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels: list[object] = [int(i % 3 == 0) for i in range(60)]
    labels[5:14] = [""] * 9
    run = changed(pair(tmp_path, LABEL_IDS, LABEL_IDS, labels), {"label_party.data.missing_label": "drop"})
    status, text = checked(tmp_path, run, capsys)
    assert status == 0
    assert "51 rows matched" in text
    outcome = train(tmp_path, run).require_success()
    assert "51 rows matched" in outcome.log("label_party")
    assert "9 rows have no label and are dropped" in outcome.log("label_party")
    trained = pq.read_table(outcome.out / "label_party" / "labels.parquet")
    assert set(trained["label"].to_pylist()) == {0, 1}
    assert trained.num_rows == 51


@pytest.mark.parametrize("defense", DEFENSES, ids=lambda d: str(d["name"]))
def test_last_batch_of_one_row(tmp_path: Path, defense: Run) -> None:
    run = changed(
        pair(tmp_path, numbers(0, 129), numbers(0, 129)),
        {"job.test_fraction": 0.0, "job.batch_size": 64, "job.epochs": 2, "label_party.defense": defense},
    )
    run = changed(run, {"nonlabel_parties.lab.attacks": ["norm"]})
    outcome = train(tmp_path, run).require_success()
    found = summary(outcome.out)
    assert found["steps"] == 6
    assert found["leak"]["audit"]["norm"]["cut"]["skipped"] == 2
    assert found["utility"]["train_loss"] < 2


def test_rare_positives_with_marvell(tmp_path: Path) -> None:
    labels = [int(i in (7, 150, 301)) for i in range(400)]
    run = changed(
        pair(tmp_path, numbers(0, 400), numbers(0, 400), labels),
        {"job.batch_size": 32, "job.epochs": 2, "job.seed": 11, "label_party.defense": "marvell"},
    )
    outcome = train(tmp_path, run).require_success()
    audit = summary(outcome.out)["leak"]["audit"]["norm"]["cut"]
    assert audit["batches"] + audit["skipped"] == 20
    assert audit["skipped"] > audit["batches"] > 0
    require_discreet(texts(outcome), numbers(0, 400))


def test_leading_zeros_are_kept(tmp_path: Path) -> None:
    ids = [f"{i:08d}" for i in range(40, 160)]
    run = changed(pair(tmp_path, ids, ids), {"nonlabel_parties.lab.attacks": ["norm"]})
    outcome = train(tmp_path, run).require_success()
    assert set(pq.read_table(outcome.out / "label_party" / "labels.parquet")["row_id"].to_pylist()) == set(ids)
    guessed = pq.read_table(outcome.out / "lab" / "attacks" / "norm.parquet")["row_id"].to_pylist()
    assert set(guessed) < set(ids)


def test_ids_that_lost_their_zeros_do_not_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zeros = [f"{i:08d}" for i in range(40, 100)]
    status, text = checked(tmp_path, pair(tmp_path, zeros, [int(i) for i in zeros]), capsys)
    assert status == 2
    assert "leading zeros" in text


def test_padded_ids_are_trimmed_and_counted(tmp_path: Path) -> None:
    padded = [f" {i}" if n < 7 else i for n, i in enumerate(LABEL_IDS)]
    outcome = train(tmp_path, pair(tmp_path, LABEL_IDS, padded)).require_success()
    assert "60 rows matched" in outcome.log("lab")
    assert re.search(r"\b7 ids\b", outcome.log("lab"))


def test_a_file_without_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = pair(tmp_path, LABEL_IDS, LABEL_IDS)
    (tmp_path / "label.csv").write_text("id,outcome\n")
    status, text = checked(tmp_path, run, capsys)
    assert status == 2
    assert "label.csv has no rows" in text
