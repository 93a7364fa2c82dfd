"""The run file: what it accepts, how it complains, and the digest that both sides compare."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from support.runs import BREAST_CANCER, Run, changed, write

from cutlayer.common.config import RunFile
from cutlayer.common.errors import ConfigError
from cutlayer.common.fields import Section
from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.limits import Timeouts
from cutlayer.common.run_files import load


def test_a_short_file_gets_defaults(tmp_path: Path) -> None:
    run_file = load(write(tmp_path, BREAST_CANCER))
    assert run_file.job.test_fraction == 0.2
    assert run_file.label_section().defense.name == "none"
    assert run_file.nonlabel_section("lab").bottom_model.options == {"hidden": [16]}
    assert not run_file.job.granted("lab").kinds()


def test_a_plugin_may_be_named_alone(tmp_path: Path) -> None:
    run_file = load(
        write(tmp_path, changed(BREAST_CANCER, {"nonlabel_parties.lab.attacks": ["norm", {"name": "cosine"}]}))
    )
    assert [choice.name for choice in run_file.nonlabel_section("lab").attacks] == ["norm", "cosine"]


def sections(kind: type[BaseModel]) -> list[type[BaseModel]]:
    return [kind, *(section for heir in kind.__subclasses__() for section in sections(heir))]


@pytest.mark.parametrize("section", [Timeouts, *sections(Section)], ids=lambda section: section.__name__)
def test_true_is_no_number_anywhere(section: type[BaseModel]) -> None:
    for name, hint in get_type_hints(section, include_extras=True).items():
        for switch in (True, False):
            with suppress(ValidationError):
                value = TypeAdapter(hint).validate_python(switch)
                assert value is switch or not isinstance(value, int | float), f"{name}: took {switch} for {value}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"job.epoch": 3}, "job.epoch: unknown key"),
        ({"job.epochs": 0}, "job.epochs: expected at least 1, got 0"),
        ({"job.epochs": "many"}, "job.epochs: .*'many'"),
        ({"job.cut_layer.width": 10**9}, "job.cut_layer.width: expected at most 1,000,000"),
        ({"job.batch_size": None}, "job.batch_size: is missing"),
        ({"job.test_fraction": 1.0}, "job.test_fraction: expected less than 1, got 1.0"),
        ({"job.parties": []}, "job.parties: expected a list of at least 1"),
        ({"job.parties": ["lab", "lab"]}, "a name occurs twice"),
        ({"job.parties": [LABEL_PARTY]}, "is the label party"),
        ({"job.parties": ["../up"]}, r"job.parties.0: expected a name of up to 64 letters, digits"),
        ({"job.task": "multiclass"}, "needs `classes: k`"),
        ({"job.classes": 3}, "write task: multiclass"),
        ({"job.cut_layer.widths": {"lab": 3}}, "write aggregation: concat"),
        ({"job.cut_layer.aggregation": "concat", "job.cut_layer.widths": {"bank": 3}}, "'bank' is no party"),
        ({"job.knowledge": {"bank": {}}}, "knowledge: 'bank' is no party"),
        ({"job.knowledge": {"lab": {"labels": True}}}, "job.knowledge.lab.labels: unknown key"),
        ({"label_party.listen": "localhost"}, "label_party.listen: expected host:port, as 127.0.0.1:50051"),
        ({"label_party.listen": "localhost:99999"}, "label_party.listen: expected a port from 0 to 65535, got 99999"),
        ({"label_party.metrics": {"listen": "9100"}}, "label_party.metrics.listen: expected host:port"),
        ({"job.epochs": 10**30}, "job.epochs: expected at most 1,000,000"),
        ({"job.epochs": 1.5}, "job.epochs: expected a whole number, got 1.5"),
        ({"job.epochs": True}, "job.epochs: expected a number, got true"),
        ({"label_party.optimizer": {"lr": False}}, "label_party.optimizer.lr: expected a number, got false"),
        ({"job.parties": "lab"}, "job.parties: expected a list, got 'lab'"),
        ({"job.privacy": {"share_metrics": "perhaps"}}, "share_metrics: expected true or false, got 'perhaps'"),
        ({"job.checkpoint": {"keep": 1001}}, "job.checkpoint.keep: expected at most 1,000"),
        ({"job.seed": 1 << 63}, "job.seed: expected less than"),
        ({"label_party.data": "csv"}, "label_party.data: expected keys with values, got 'csv'"),
        ({"label_party.data.positive": [1]}, "data.positive: expected a text, a number, true or false"),
        ({"label_party.tls": {"ca": 3, "cert": "c", "key": "k"}}, "label_party.tls.ca: expected a path, got 3"),
        ({"label_party.timeouts": {"stall_s": float("inf")}}, "stall_s: expected at most 1,000,000, got inf"),
        ({"label_party.timeouts": {"keepalive_s": 0.1}}, "keepalive_s: expected at least 1, got 0.1"),
        ({"label_party.optimizer": {"lr": 1e30}}, r"label_party.optimizer.lr: expected at most 1,000, got 1e\+30"),
        ({"label_party.optimizer": {"lr": float("nan")}}, "label_party.optimizer.lr: expected at most 1,000, got nan"),
        ({"nonlabel_parties": {3: {"data": {"source": "wine"}}}}, "nonlabel_parties.3: a name must be a text"),
        ({"label_party.optimizer": {"name": "rmsprop"}}, "label_party.optimizer.name: .*'rmsprop'"),
        ({"label_party.optimizer": {"name": "adam", "momentum": 0.9}}, "momentum is an option of sgd"),
        ({"label_party.timeouts": {"stall": 3}}, "label_party.timeouts.stall: unknown key"),
        ({"nonlabel_parties.bank": {"data": {"source": "wine"}}}, "nonlabel_parties.bank is not in job.parties"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_mistake_names_the_file_and_the_key(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write(tmp_path, changed(BREAST_CANCER, changes))
    with pytest.raises(ConfigError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert len(caught.value.problems) == 1
    for jargon in ("Input should", "pattern", "Value error", "Tuple", "dictionary"):
        assert jargon not in str(caught.value)


def test_a_wrong_secret_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="label_party.id_secret: expected a text$"):
        load(write(tmp_path, changed(BREAST_CANCER, {"label_party.id_secret": 12345})))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"job: [", "not valid YAML"),
        (b"- 1\n", "expected sections"),
        (b"", "expected sections"),
        (b"job: {epochs: 1, epochs: 2}", "the key 'epochs' occurs twice"),
        (b"[" * 5000, "not valid YAML"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_a_file_that_is_no_run_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load(path)


def test_a_missing_file_and_a_missing_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.yaml")
    run_file = load(write(tmp_path, {"job": BREAST_CANCER["job"]}))
    with pytest.raises(ConfigError, match="no `label_party` section"):
        run_file.label_section()
    with pytest.raises(ConfigError, match=r"no `nonlabel_parties\.lab` section"):
        run_file.nonlabel_section("lab")
    with pytest.raises(ConfigError, match=r"'bank' is not in job\.parties"):
        run_file.nonlabel_section("bank")


def test_what_results_follow_from() -> None:
    changes = {"label_party.seed": 3, "label_party.data.positive": "ill", "nonlabel_parties.lab.bottom_model": "linear"}
    run_file = RunFile.model_validate(changed(BREAST_CANCER, changes))
    lab, everybody = run_file.setting("lab"), run_file.setting()
    assert lab["nonlabel_parties.lab.bottom_model"] == {"name": "linear"}
    assert lab.items() < everybody.items()
    assert everybody["label_party.seed"] == 3
    assert everybody["label_party.data.positive"] == "ill"
    assert json.loads(json.dumps(everybody)) == everybody
    moved = changed(BREAST_CANCER, {**changes, "label_party.listen": "127.0.0.1:9", "label_party.threads": 2})
    assert RunFile.model_validate(moved).setting() == everybody


def test_the_resolved_file_says_the_same_again() -> None:
    """Also of what has no default until the defense is known."""
    run_file = RunFile.model_validate(changed(BREAST_CANCER, {"label_party.top_model": None}))
    again = RunFile.model_validate(json.loads(json.dumps(run_file.public_dump())))
    assert again == run_file
    assert again.label_section().top_model is None


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    changes = {"label_party.data": {"source": "csv", "path": "x.csv"}, "label_party.noise_secret": "secret"}
    section = load(write(tmp_path / "deep", changed(BREAST_CANCER, changes))).label_section()
    assert section.data.options["path"] == str(tmp_path / "deep" / "x.csv")
    assert section.noise_secret == tmp_path / "deep" / "secret"


def test_the_digest_is_that_of_the_agreement_alone() -> None:
    def digest(changes: Run) -> bytes:
        return RunFile.model_validate(changed(BREAST_CANCER, changes)).job.digest()

    same = digest({})
    assert digest({"label_party": None, "nonlabel_parties": None}) == same
    assert digest({"job.test_fraction": 0.2}) == same  # the default, written out
    for key, value in [("seed", 8), ("epochs", 3), ("cut_layer.width", 9), ("parties", ["bank", "lab"])]:
        assert digest({f"job.{key}": value, **({"nonlabel_parties": None} if key == "parties" else {})}) != same


def test_secrets_are_masked_and_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run_file = RunFile.model_validate(changed(BREAST_CANCER, {"label_party.id_secret": "tell no one"}))
    assert "tell no one" not in repr(run_file) + repr(run_file.public_dump())
    assert run_file.label_section().shared_secret() == b"tell no one"
    monkeypatch.delenv("CUTLAYER_ID_SECRET", raising=False)
    with pytest.raises(ConfigError, match="CUTLAYER_ID_SECRET"):
        run_file.nonlabel_section("lab").shared_secret()
    monkeypatch.setenv("CUTLAYER_ID_SECRET", "from outside")
    assert run_file.nonlabel_section("lab").shared_secret() == b"from outside"
