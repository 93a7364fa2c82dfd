"""What a sweep file asks for, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.runs import BREAST_CANCER, changed, write

from cutlayer.common.errors import ConfigError
from cutlayer.sweep.names import name_runs
from cutlayer.sweep.plan import PlannedRun, load


def planned(folder: Path, grid: Any, run: Any = None, **more: Any) -> list[PlannedRun]:
    file = folder / "sweep.yaml"
    content = {"run": run or write(folder, BREAST_CANCER).name, "grid": grid, **more}
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return load(file).runs


def test_grid_is_a_product_in_the_order_of_the_file(tmp_path: Path) -> None:
    runs = planned(tmp_path, {"label_party.defense": ["none", "iso"], "job.seed": [5, 6]})
    assert [run.name for run in runs] == [
        *("defense=none,seed=5", "defense=none,seed=6", "defense=iso,seed=5", "defense=iso,seed=6"),
    ]
    assert [(run.run_file.label_section().defense.name, run.run_file.job.seed) for run in runs] == [
        *(("none", 5), ("none", 6), ("iso", 5), ("iso", 6)),
    ]


def test_variant_sets_several_keys_together(tmp_path: Path) -> None:
    grid = {"size": {"small": {"job.epochs": 1, "job.batch_size": 16}, "large": {"job.epochs": 9}}}
    small, large = planned(tmp_path, grid)
    assert (small.name, small.run_file.job.epochs, small.run_file.job.batch_size) == ("size=small", 1, 16)
    assert (large.name, large.run_file.job.epochs, large.run_file.job.batch_size) == ("size=large", 9, 64)


def test_option_of_a_plugin_that_the_run_file_gives_by_name_alone(tmp_path: Path) -> None:
    run = changed(BREAST_CANCER, {"label_party.defense": "iso"})
    (one,) = planned(tmp_path, {"label_party.defense.t": [4]}, run)
    assert one.content["label_party"]["defense"] == {"name": "iso", "t": 4}


def test_null_takes_a_key_out(tmp_path: Path) -> None:
    run = changed(BREAST_CANCER, {"job.seed": 7})
    (one,) = planned(tmp_path, {"job.seed": [None]}, run)
    assert one.run_file.job.seed == 0
    assert one.name == "seed=default"


def test_party_with_dots_in_its_name(tmp_path: Path) -> None:
    run = changed(BREAST_CANCER, {"job.parties": ["lab.eu"]})
    run["nonlabel_parties"] = {"lab.eu": run["nonlabel_parties"]["lab"]}
    (one,) = planned(tmp_path, {"nonlabel_parties.lab.eu.threads": [3]}, run)
    assert one.run_file.nonlabel_section("lab.eu").threads == 3


def test_paths_are_of_the_file_that_has_them(tmp_path: Path) -> None:
    base = changed(BREAST_CANCER, {"label_party.noise_secret": "noise"})
    write(tmp_path / "runs", base)
    data = {"source": "csv", "path": "mine.csv"}
    (one,) = planned(tmp_path, {"nonlabel_parties.lab.data": [data]}, "runs/run.yaml")
    assert one.content["label_party"]["noise_secret"] == str(tmp_path / "runs" / "noise")
    assert one.content["nonlabel_parties"]["lab"]["data"]["path"] == str(tmp_path / "mine.csv")


def test_every_run_listens_on_a_free_port(tmp_path: Path) -> None:
    run = changed(BREAST_CANCER, {"label_party.listen": "127.0.0.1:50051"})
    assert {one.run_file.label_section().listen for one in planned(tmp_path, {"job.seed": [1, 2]}, run)} == {
        "127.0.0.1:0"
    }


def test_secrets_reach_the_runs(tmp_path: Path) -> None:
    run = changed(BREAST_CANCER, {"label_party.id_secret": "by phone", "nonlabel_parties.lab.id_secret": "by phone"})
    (one,) = planned(tmp_path, {"job.seed": [1]}, run)
    assert one.content["label_party"]["id_secret"] == "by phone"


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (
            {"label_party.defence": ["none"]},
            "label_party.defence: no key of a run file; did you mean label_party.defense",
        ),
        ({"defense": ["none"]}, "defense: no key of a run file; did you mean label_party.defense"),
        ({"nonlabel_parties.lob.threads": [1]}, "did you mean nonlabel_parties.lab.threads"),
        ({"job.seed.x": [1]}, "job.seed.x: no key of a run file; did you mean job.seed?"),
        ({"qwertz": [1]}, "qwertz: no key of a run file; docs/run-file.md has all keys"),
        ({"size": {"a": {"job.epoch": 1}}}, "size: job.epoch: no key of a run file; did you mean job.epochs"),
        ({"job.seed": 3}, "job.seed: expected a list of values"),
        ({"job.seed": []}, "job.seed: expected a list of values"),
        ({"job.seed": [1, 1]}, "job.seed: a value occurs twice"),
        ({"job.seed": {"a": 1}}, "job.seed: a: expected what this variant sets"),
        ({"job.seed": [1], "x": {"a": {"job.seed": 2}}}, "job.seed and x both set job.seed"),
        ({"label_party.defense": ["iso"], "label_party.defense.t": [1]}, "both set label_party.defense.t"),
        ({"job.seed": [1, "x"]}, "run seed=x: the run file it makes: job.seed: expected a whole number, got 'x'"),
        ({"label_party": [None]}, "has no `label_party` section"),
        ({"job.seed": list(range(101)), "job.epochs": list(range(1, 101))}, "10,100 runs; a sweep has at most 10,000"),
        ({}, "grid: expected keys of the run file"),
        ([1], "grid: expected keys of the run file"),
    ],
)
def test_what_is_wrong_is_said_with_the_key(tmp_path: Path, grid: Any, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, grid)
    assert words in str(caught.value)
    assert str(tmp_path / "sweep.yaml") in str(caught.value)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"grids": {}}, "grids: unknown key; a sweep file has: run, grid, engine"),
        ({"engine": "spark"}, "engine: expected local or ray, got 'spark'"),
        ({"run": 3}, "run: expected the path of a run file"),
        ({"run": "missing.yaml"}, "missing.yaml: cannot be read"),
    ],
)
def test_wrong_keys_of_the_sweep_file(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump({"run": write(tmp_path, BREAST_CANCER).name, "grid": {"job.seed": [1]}} | more))
    with pytest.raises(ConfigError, match=words):
        load(file)


def test_the_same_problem_of_many_runs_is_said_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, {"job.seed": list(range(20)), "job.epochs": [0]})
    assert str(caught.value).count("\n") == 0


def test_names_are_fit_for_folders_and_apart() -> None:
    odd = {"a.b": "x/../y z", "c": [1, 2.5], "d": {"name": "mlp", "hidden": [3, 4]}, "e": {}, "f": [], "g": True}
    (name,) = name_runs([odd])
    assert name == "b=x-..-y-z,c=1+2.5,d=mlp-hidden-3+4,e=empty,f=none,g=true"
    same = name_runs([{"a": "x y"}, {"a": "x-y"}, {"a": "z"}])
    assert len(set(same)) == 3
    assert same[2] == "a=z"
    (long,) = name_runs([{"a": "x" * 500}])
    assert len(long) < 140


def test_axes_with_the_same_last_name_are_told_apart() -> None:
    (name,) = name_runs([{"label_party.optimizer.lr": 1, "nonlabel_parties.lab.optimizer.lr": 2, "job.seed": 3}])
    assert name == "label_party.optimizer.lr=1,lab.optimizer.lr=2,seed=3"
