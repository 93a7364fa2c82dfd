"""cutlayer/check.py: what it says of a good file, and that every problem of a bad one is reported at once."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cutlayer.check import check
from cutlayer.common.errors import DataError

RUN_FILE = """
job: {name: trial, epochs: 1, batch_size: 4, cut_layer: {width: 3}, parties: [lab]}
label_party:
  data: {source: csv, path: labels.csv, id: id, label: sick}
nonlabel_parties:
  lab:
    data: {source: csv, path: features.csv, id: id}
    attacks: [norm]
"""


@pytest.fixture(autouse=True)
def _no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUTLAYER_ID_SECRET", raising=False)


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    rows = range(20)
    (tmp_path / "labels.csv").write_text("id,sick\n" + "".join(f"p{row},{row % 2}\n" for row in rows))
    (tmp_path / "features.csv").write_text("id,age,dose\n" + "".join(f"p{row},{row},{row / 7}\n" for row in rows[5:]))
    path = tmp_path / "run.yaml"
    path.write_text(RUN_FILE)
    return path


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_good_file_is_described_and_nothing_is_written(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(run_file.parent.rglob("*"))
    assert check(run_file) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == f"{run_file}: job trial, task binary, parties label_party, lab"
    assert lines[-1] == "no problem found"
    for text in (
        "label_party: labels.csv: 20 rows, 0 feature columns",
        "lab: features.csv: 15 rows, 2 feature columns",
        "lab: sends 4 x 3 numbers a step",
        "lab: bottom model mlp: 2 columns to 3",
        "row ids: 15 rows matched",
    ):
        assert [line for line in lines if line.startswith(text)], text
    assert sorted(run_file.parent.rglob("*")) == before


def test_every_problem_is_reported_not_just_the_first(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run_file, "label: sick}", "label: well}\n  defense: marvel\n  top_model: {name: mlp, depth: 3}")
    edit(run_file, "path: features.csv", "path: missing.csv")
    edit(run_file, "[norm]", "[norm, {name: cosine, angle: 3}, nonsense]")
    assert check(run_file) == 2
    out, err = capsys.readouterr()
    problems = [line for line in err.splitlines() if line.startswith("cutlayer: ")]
    for text in ("well", "'marvel'", "'depth'", "missing.csv", "'angle'", "'nonsense'"):
        assert len([line for line in problems if text in line]) == 1, text
    assert out.splitlines()[-1] == "problems found: 6"


def test_a_file_that_cannot_be_read_is_the_only_problem(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run_file, "epochs: 1", "epochs: none, typo: 1")
    assert check(run_file) == 2
    out, err = capsys.readouterr()
    assert "job.epochs" in err
    assert "job.typo" in err
    assert out == "problems found: 2\n"


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("epochs: 1", "epochs: 1, task: multiclass, classes: 2", "attack 'norm' is for task binary, not multiclass"),
        ("batch_size: 4", "batch_size: 4, test_fraction: 0.95", "leave 1 to train on"),
        ("attacks: [norm]", "bottom_model: cnn", "lab: bottom_model cnn needs"),
        ("id: id, label: sick}", "id: id, label: sick}\n  noise_secret: short", "short: a secret file has 32"),
    ],
)
def test_single_problems(run_file: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, text: str) -> None:
    (run_file.parent / "short").write_bytes(b"short")
    edit(run_file, old, new)
    assert check(run_file) == 2
    assert text in capsys.readouterr().err


PROBABILITIES = "label: sick}\n  defense: {name: gafm, activations: probabilities}"


@pytest.mark.parametrize(
    ("defense", "model", "fits"),
    [
        (PROBABILITIES, "mlp", False),
        (PROBABILITIES, "linear", False),
        (PROBABILITIES, "{name: mlp, output: sigmoid}", True),
        (PROBABILITIES, "torch.nn:Linear", True),  # whether one of the user's own fits is not known
        (PROBABILITIES.replace("probabilities}", "logits}"), "mlp", True),
        (PROBABILITIES.replace("probabilities}", "probabilities, transformation: 'torch:sigmoid'}"), "mlp", True),
    ],
)
def test_activations_that_are_no_probabilities_are_a_problem_where_the_defense_takes_them_for_such(
    run_file: Path, capsys: pytest.CaptureFixture[str], defense: str, model: str, fits: bool
) -> None:
    edit(run_file, "label: sick}", defense)
    edit(run_file, "attacks: [norm]", f"bottom_model: {model}")
    assert check(run_file) == (0 if fits else 2)
    err = capsys.readouterr().err
    assert fits or err.startswith(f"cutlayer: lab: bottom_model {model}: its activations may be below 0 or above 1")
    assert not fits or err == ""


def test_the_label_partys_own_activations_are_probabilities_too(
    run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file of a host of its own: what the other parties have is not known there."""
    rows = "".join(f"p{row},{row % 2},{row}\n" for row in range(20))
    (run_file.parent / "labels.csv").write_text("id,sick,age\n" + rows)
    edit(run_file, "label: sick}", PROBABILITIES + "\n  id_secret: ours\n  bottom_model: linear")
    assert check(run_file, "label_party") == 2
    assert "label_party: bottom_model linear: its activations may be" in capsys.readouterr().err


def test_rows_that_do_not_match_are_a_problem(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run_file.parent / "features.csv", "p", "q")
    assert check(run_file) == 2
    err = capsys.readouterr().err
    assert "cutlayer: row ids: label_party: 0 of 20 rows match" in err
    assert "q7" not in err


def test_rows_without_a_label_that_are_dropped_do_not_match(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run_file, "label: sick}", "label: sick, missing_label: drop}")
    edit(run_file.parent / "labels.csv", "p7,1", "p7,")
    assert check(run_file) == 0
    assert "row ids: 14 rows matched" in capsys.readouterr().out


def test_a_party_without_a_section_is_a_problem(
    run_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_file.write_text(run_file.read_text().partition("nonlabel_parties")[0])
    assert check(run_file) == 2
    out, err = capsys.readouterr()
    assert "the file has no `nonlabel_parties.lab` section; `cutlayer run` needs all. For a party on its own" in err
    assert out.endswith("problems found: 1\n")
    monkeypatch.setenv("CUTLAYER_ID_SECRET", "ours")
    assert check(run_file, "label_party") == 0


@pytest.mark.parametrize(
    ("label_party", "lab", "text"),
    [
        ("ours", None, "row ids: lab: no `id_secret`, which another party of this file has"),
        (None, "ours", "row ids: label_party: no `id_secret`, which another party of this file has"),
        ("ours", "theirs", "row ids: the parties' `id_secret` differ"),
        ("ours", "ours", None),
        (None, None, None),
    ],
)
def test_id_secrets_of_one_file_fit_together(
    run_file: Path, capsys: pytest.CaptureFixture[str], label_party: str | None, lab: str | None, text: str | None
) -> None:
    if label_party:
        edit(run_file, "label: sick}", f"label: sick}}\n  id_secret: {label_party}")
    if lab:
        edit(run_file, "attacks: [norm]", f"attacks: [norm]\n    id_secret: {lab}")
    assert check(run_file) == (2 if text else 0)
    out, err = capsys.readouterr()
    assert (text or "no problem found") in out + err
    assert "ours" not in out + err


def test_the_variable_stands_in_for_an_id_secret(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(run_file, "attacks: [norm]", "attacks: [norm]\n    id_secret: ours")
    monkeypatch.setenv("CUTLAYER_ID_SECRET", "ours")
    assert check(run_file) == 0
    monkeypatch.setenv("CUTLAYER_ID_SECRET", "theirs")
    assert check(run_file) == 2


def test_two_listeners_at_one_address_are_a_problem(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run_file, "label: sick}", "label: sick}\n  metrics: {listen: 127.0.0.1:9100}")
    edit(run_file, "attacks: [norm]", "metrics: {listen: 127.0.0.1:9100}")
    assert check(run_file) == 2
    expected = "nonlabel_parties.lab.metrics.listen: 127.0.0.1:9100 is taken by label_party.metrics.listen"
    assert expected in capsys.readouterr().err


def test_a_file_that_is_not_yaml_is_one_problem_in_one_line(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_file.write_text("job: {name: trial\nlabel_party: [")
    assert check(run_file) == 2
    out, err = capsys.readouterr()
    assert out == "problems found: 1\n"
    assert len(err.splitlines()) == 1


def test_a_problem_that_takes_several_lines_is_one(
    run_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise DataError("labels.csv: cannot be parsed\nnear the end")

    monkeypatch.setattr("cutlayer.check.load_table", fail)
    edit(run_file, "attacks: [norm]", "attacks: []")
    assert check(run_file) == 2
    assert capsys.readouterr().out.endswith("problems found: 2\n")  # one of each party


def test_one_party_on_its_own_host_needs_the_secret_and_its_section(
    run_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check(run_file, "label_party") == 2
    assert "no shared secret for the row ids" in capsys.readouterr().err
    monkeypatch.setenv("CUTLAYER_ID_SECRET", "ours")
    assert check(run_file, "label_party") == 0
    assert "lab" not in capsys.readouterr().out.partition("\n")[2].replace("label", "")
    assert check(run_file, "bank") == 2
    assert "'bank' is not in job.parties; there are: lab" in capsys.readouterr().err


def test_a_label_party_that_cannot_be_reached_is_a_warning(
    run_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUTLAYER_ID_SECRET", "ours")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        edit(run_file, "attacks: [norm]", f"connect: 127.0.0.1:{port}")
        assert check(run_file, "lab") == 0
        assert f"lab: the label party at 127.0.0.1:{port} can be reached" in capsys.readouterr().out
    assert check(run_file, "lab") == 0
    assert f"lab: warning: the label party at 127.0.0.1:{port} cannot be reached now" in capsys.readouterr().out


def test_a_label_partys_own_features_are_checked(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run_file, "label: sick}", "label: sick}\n  bottom_model: mlp")
    assert check(run_file) == 2
    assert "label_party: labels.csv: there are no feature columns" in capsys.readouterr().err
