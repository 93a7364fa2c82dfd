"""A wrong run file ends a party with exit status 2, and a message that names the file, the key and the remedy."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
from support.runs import BREAST_CANCER, Run, changed, cutlayer, with_parties, write
from support.threads import Parties, train
from torch import nn
from typer.testing import CliRunner

from cutlayer.check import check
from cutlayer.cli import app
from cutlayer.common.errors import ConfigError, RefusedError


class Normalised(nn.Module):
    """A model of a user's with batch normalisation."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs))


def refused(*args: str | Path) -> str:
    """The output of a command that ends with status 2."""
    result = CliRunner().invoke(app, list(map(str, args)))
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return re.sub(r"\s+", " ", result.output)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown_key": ({"job.epoch": 3}, "job.epoch: unknown key"),
    "unknown_section": ({"labelparty": {}}, "labelparty: unknown key"),
    "wrong_type": ({"job.epochs": "many"}, "job.epochs: .*got 'many'"),
    "negative": ({"job.batch_size": -1}, "job.batch_size: .*got -1"),
    "missing_key": ({"job.epochs": None}, "job.epochs: is missing"),
    "address": ({"label_party.listen": "here"}, "label_party.listen: .*got 'here'"),
    "party_not_in_job": ({"job.parties": ["clinic"]}, "nonlabel_parties.lab is not in job.parties: clinic"),
    "widths_of_a_sum": ({"job.cut_layer.widths": {"lab": 4}}, "widths: a sum needs one width for all; .*concat"),
    "optimizer": ({"label_party.optimizer": {"name": "lion"}}, "label_party.optimizer.name: .*'sgd'"),
    "classes": ({"job.task": "multiclass"}, "task multiclass needs `classes: k`"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("command", ["run", "check"])
def test_message_names_file_and_key(tmp_path: Path, command: str, case: str) -> None:
    changes, expected = WRONG[case]
    path = write(tmp_path, changed(BREAST_CANCER, changes), "wrong.yaml")
    output = refused(command, path)
    assert re.search(rf"wrong\.yaml: .*{expected}", output)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "wrong.yaml: cannot be read"),
        ("job: [1, 2", "wrong.yaml: not valid YAML"),
        ("- a\n- b\n", "wrong.yaml: expected sections such as `job:`, got list"),
        ("", "wrong.yaml: expected sections such as `job:`, got NoneType"),
    ],
    ids=["missing", "bad_yaml", "list", "empty"],
)
def test_file_that_is_no_run_file(tmp_path: Path, text: str | None, expected: str) -> None:
    path = tmp_path / "wrong.yaml"
    if text is not None:
        path.write_text(text)
    assert expected in refused("run", path)


def test_a_real_process_ends_with_status_2(tmp_path: Path) -> None:
    done = cutlayer("run", tmp_path / "nowhere.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith(f"cutlayer: {tmp_path}/nowhere.yaml: cannot be read")
    assert done.stdout == ""


PLUGINS: dict[str, tuple[dict[str, Any], str]] = {
    "defense": ({"label_party.defense": "marvel"}, "unknown defense 'marvel'; there are: .*marvell"),
    "defense_option": ({"label_party.defense": {"name": "iso", "sigma": 1}}, "'iso' has no option 'sigma'; it has:"),
    "option_type": ({"label_party.defense": {"name": "iso", "ratio": "x"}}, "'iso', option ratio"),
    "attack": ({"nonlabel_parties.lab.attacks": ["spy"]}, "unknown attack 'spy'; there are: clusters, cosine, "),
    "model": ({"nonlabel_parties.lab.bottom_model": "resnet"}, "unknown bottom model 'resnet'; there are: .*mlp"),
    "top_model": ({"label_party.top_model": "resnet"}, "unknown top model 'resnet'"),
    "own_model": ({"nonlabel_parties.lab.bottom_model": "no.such:Model"}, "cannot load 'no.such:Model'"),
    "dataset": ({"nonlabel_parties.lab.data.source": "iris"}, "unknown data source 'iris'; there are: .*csv"),
    "dataset_option": ({"nonlabel_parties.lab.data.colums": "x"}, "'breast_cancer' has no option 'colums'"),
    "batch_norm": (
        {"nonlabel_parties.lab.bottom_model": f"{__name__}:Normalised"},
        "BatchNorm1d .*normalises each row by the rows of its batch.*Use GroupNorm or LayerNorm",
    ),
}


@pytest.mark.parametrize("case", PLUGINS)
def test_wrong_plugin_or_option(tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    changes, expected = PLUGINS[case]
    assert check(write(tmp_path, changed(BREAST_CANCER, changes))) == 2
    assert re.search(expected, capsys.readouterr().err)


def test_all_problems_are_reported_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes = PLUGINS["defense"][0] | PLUGINS["model"][0] | PLUGINS["attack"][0]
    assert check(write(tmp_path, changed(BREAST_CANCER, changes))) == 2
    captured = capsys.readouterr()
    for word in ("marvel'", "resnet", "spy"):
        assert word in captured.err
    assert "problems found: 3" in captured.out


@pytest.mark.parametrize("case", ["defense", "attack", "batch_norm"])
def test_training_refuses_the_same(tmp_path: Path, case: str) -> None:
    changes, expected = PLUGINS[case]
    timeouts = {"nonlabel_parties.lab.timeouts": {"connect_s": 3}, "label_party.timeouts": {"reconnect_s": 3}}
    outcome = train(tmp_path, changed(BREAST_CANCER, changes | timeouts))
    wrong = outcome.errors["label_party" if case == "defense" else "lab"]
    assert getattr(wrong, "exit_code", None) == 2
    assert re.search(expected, str(wrong))


def test_marvell_with_more_than_two_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digits = {
        "job.task": "multiclass",
        "job.classes": 10,
        "label_party.data.source": "digits",
        "nonlabel_parties.lab.data.source": "digits",
        "nonlabel_parties.lab.timeouts": {"connect_s": 3},
        "label_party.defense": "marvell",
    }
    run = changed(BREAST_CANCER, digits)
    expected = "defense 'marvell' is for task binary, not multiclass"
    assert check(write(tmp_path, run)) == 2
    assert expected in capsys.readouterr().err
    outcome = train(tmp_path, run)
    assert getattr(outcome.errors["label_party"], "exit_code", None) == 2
    assert expected in outcome.error("label_party")


def test_section_of_a_party_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path, changed(BREAST_CANCER, {"nonlabel_parties": None}))
    assert "the file has no `nonlabel_parties.lab` section" in refused("run", path)
    assert "the file has no `nonlabel_parties.lab` section" in refused("nonlabel-party", path, "--name", "lab")
    assert "'clinic' is not in job.parties; there are: lab" in refused("nonlabel-party", path, "--name", "clinic")


def test_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        run = changed(BREAST_CANCER, {"label_party.listen": address, "label_party.id_secret": "x"})
        output = refused("label-party", write(tmp_path, run), "--out", tmp_path / "out")
    assert f"label_party.listen: cannot listen on {address}: the port is taken" in output


def test_explicit_out_that_is_not_empty(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious").write_text("kept")
    output = refused("run", write(tmp_path, BREAST_CANCER), "--out", out)
    assert "not empty, and results are not overwritten; give a new folder or remove it" in output
    assert [path.name for path in out.iterdir()] == ["precious"]


def test_missing_id_secret_on_separate_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUTLAYER_ID_SECRET", raising=False)
    path = write(tmp_path, BREAST_CANCER)
    commands: tuple[tuple[str | Path, ...], ...] = (("label-party", path), ("nonlabel-party", path, "--name", "lab"))
    for args in commands:
        output = refused(*args, "--out", tmp_path / "out")
        assert "no shared secret for the row ids" in output
        assert "CUTLAYER_ID_SECRET" in output


def differing(folder: Path, run: Run, changes_at_lab: dict[str, Any]) -> tuple[str, str]:
    """What label party and lab say when lab's own file is another one."""
    patience = {"connect_s": 4, "reconnect_s": 1, "goodbye_s": 1}
    run = changed(run, {"label_party.timeouts": patience, "nonlabel_parties.lab.timeouts": patience})
    outcome = Parties(folder, run, at={"lab": changes_at_lab}).wait()
    assert isinstance(outcome.errors["lab"], RefusedError)
    assert outcome.errors["lab"].exit_code == 2
    assert "refused a call from 127.0.0.1: " in outcome.log("label_party")
    assert outcome.error("label_party") == "party 'lab' did not connect within 4 s"  # it has waited for the right one
    return outcome.log("label_party"), outcome.error("lab")


def test_P11_different_id_secrets_are_refused(tmp_path: Path) -> None:
    label_party, lab = differing(tmp_path, BREAST_CANCER, {"nonlabel_parties.lab.id_secret": "another"})
    for text in (label_party, lab):
        assert "shared secrets for row ids differ: set the same `id_secret` on both sides" in text
        assert "another" not in text


@pytest.mark.parametrize(
    "changes",
    [{"job.privacy": {"share_metrics": True}}, {"job.cut_layer.width": 9}],
    ids=lambda changes: next(iter(changes)),
)
def test_P11_different_job_sections_are_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    label_party, lab = differing(tmp_path, BREAST_CANCER, changes)
    for text in (label_party, lab):
        assert "the `job` sections differ" in text


def test_party_without_a_section_in_the_label_partys_file_is_served(tmp_path: Path) -> None:
    run = changed(with_parties(BREAST_CANCER, ["lab", "clinic"]), {"job.epochs": 1})
    outcome = Parties(tmp_path, run, at={"label_party": {"nonlabel_parties": None}}).wait()
    outcome.require_success()


def test_unknown_party_is_refused(tmp_path: Path) -> None:
    run = changed(with_parties(BREAST_CANCER, ["lab", "clinic"]), {"label_party.timeouts": {"connect_s": 2}})
    ours = {"job.parties": ["lab"], "nonlabel_parties": None}
    outcome = Parties(tmp_path, run, at={"label_party": ours}).wait()
    assert "the label party refused" in outcome.error("clinic")
    assert "no party of this job" in outcome.error("clinic")
    assert not isinstance(outcome.errors["label_party"], ConfigError)
