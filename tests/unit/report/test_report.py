"""The page of a report: what is on it, what it says is missing, and that nothing on it comes alive."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import yaml
from safetensors.numpy import load_file, save_file
from support.results import write_results

from cutlayer.common.config import RunFile
from cutlayer.common.errors import UserError
from cutlayer.common.files import write_json
from cutlayer.report import report
from cutlayer.report.page import render
from cutlayer.report.part_figures import part_figures
from cutlayer.report.runs import Runs, Samples


def page(*folders: Path) -> str:
    return render(Runs(folders), "cutlayer report")


def words(html: str) -> str:
    """The page without styles, scripts and data."""
    return re.sub(r"<(script|style).*?</\1>", "", html, flags=re.DOTALL)


def figures(html: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', html)
    assert not set("<>&") & set(text)  # nothing in it can end the element
    found: dict[str, Any] = json.loads(text)
    return found


def test_figures_are_what_plotly_knows(tmp_path: Path) -> None:
    found = figures(page(write_results(tmp_path / "run", bound=0.8)))
    assert sorted(found) == [
        "plane",
        *("run0-0-norms-exact", "run0-0-norms-perturbed", "run0-0-projection-exact", "run0-0-projection-perturbed"),
        *("run0-course-flipped", "run0-course-utility"),
        *("run0-divergence", "run0-leak-cut", "run0-leak-first", "run0-power"),
    ]
    for figure in found.values():
        go.Figure(figure)  # refuses what plotly.js would silently ignore


def test_headline_of_one_run(tmp_path: Path) -> None:
    html = words(page(write_results(tmp_path / "run", utility=0.9125, leak=0.7341, bound=0.8)))
    for expected in ("0.912", "0.734", "0.800", "reaches 0.620", "For the label party alone"):
        assert expected in html


def test_every_figure_is_there_once(tmp_path: Path) -> None:
    html = page(write_results(tmp_path / "run"))
    assert sorted(re.findall(r'data-figure="([^"]+)"', html)) == sorted(figures(html))
    assert "Not here" not in words(html)


def test_curves_over_the_epochs(tmp_path: Path) -> None:
    found = figures(page(write_results(tmp_path / "run", utility=0.9, leak=0.7)))
    (auc,), (norm,) = (found[f"run0-course-{name}"]["data"] for name in ("utility", "flipped"))
    assert (auc["name"], auc["x"], auc["y"]) == ("test AUC", [1, 2, 3], [0.9] * 3)
    assert (norm["name"], norm["y"]) == ("norm", [0.7] * 3)


def test_parts_of_the_gradient_that_cancel(tmp_path: Path) -> None:
    """In `gan` class 1 lies 1 below class 0 in each of 4 coordinates, in `ce` 2 above, so in both together 1 above."""
    html = page(write_results(tmp_path / "run", parts=True))
    found = figures(html)
    centres = {trace["name"]: trace["y"] for trace in found["run0-0-parts-centres"]["data"]}
    assert centres["ce"] == [4.0] * 8
    assert centres["both"] == pytest.approx([gan + 4 for gan in centres["gan"]], abs=0.01)
    assert sum(centres["gan"]) / 8 == pytest.approx(-2, abs=0.5)
    assert "In 8 of 8 batches the class centres of gan point the other way" in html
    for box in found["run0-0-parts-classes"]["data"]:
        assert box["x"] == ["gan", "ce", "both"]
        assert all(box[one] <= box[other] for one, other in (("q1", "median"), ("median", "q3")))
        go.Figure({"data": [box]})


def test_gradients_that_left_as_they_were_are_shown_once(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "run")
    file = folder / "label_party" / "samples.safetensors"
    samples = load_file(file)
    save_file({name: samples[name.replace("perturbed", "exact")] for name in samples}, file)
    html = page(folder)
    assert len(figures(html)["run0-0-norms-exact"]["data"]) == 2
    assert not figures(html).keys() & {"run0-0-norms-perturbed", "run0-0-projection-perturbed"}
    assert html.count("what left is the same: this defense changes no gradient") == 2


@pytest.mark.parametrize("ce", [0.0, np.nan, 1e-300])
def test_parts_without_class_centres_apart_are_named(ce: float) -> None:
    label_n, gan_nd = np.array([0, 1, 0, 1]), np.eye(4)
    parts = {"gan": gan_nd, "ce": np.full((4, 4), ce)}
    shown = part_figures(Samples(np.array([1, 1, 2, 2]), label_n, gan_nd, gan_nd, parts), "key", "", "")
    assert [figure.missing for figure in shown] == ["in no kept batch do the class centres of ce lie apart"] * 2


def test_batches_of_one_class_are_left_out_of_the_figure_of_parts() -> None:
    label_n, gan_nd = np.array([0, 0, 0, 1]), np.array([[1.0], [2.0], [5.0], [4.0]])
    kept = Samples(np.array([1, 1, 2, 2]), label_n, gan_nd, gan_nd, {"gan": gan_nd, "ce": -gan_nd})
    classes, centres = part_figures(kept, "key", "", "")
    assert "In 1 of 1 batches" in classes.caption
    assert {trace["name"]: (trace["x"], trace["y"]) for trace in centres.traces}["gan"] == ([2], [-1])


def test_parts_that_a_run_should_have_kept_are_named(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text()) | {"objective": {"name": "gafm"}}
    write_json(folder / "summary.json", summary)
    html = page(folder)
    assert "the samples hold no parts of the gradient" in html
    (folder / "metrics.jsonl").unlink()
    assert "metrics.jsonl is not here" in page(folder)


def test_leak_lines_have_the_true_figures(tmp_path: Path) -> None:
    found = figures(page(write_results(tmp_path / "run")))["run0-leak-cut"]["data"]
    by_name = {trace["name"]: trace for trace in found}
    assert set(by_name) == {"chance", "norm (audit)", "norm (lab)"}
    assert set(by_name["norm (audit)"]["y"]) == {0.7}
    assert set(by_name["chance"]["y"]) == {0.66}
    assert len(by_name["norm (lab)"]["x"]) == 24


def test_runs_that_differ_in_their_seed_are_one_point_of_a_curve(tmp_path: Path) -> None:
    runs = {f"{name}{seed}": {} for name in ("a", "b", "c") for seed in (0, 1)}
    strengths = {"a": {"name": "iso", "t": 1}, "b": {"name": "iso", "t": 9}, "c": "none"}
    for place, name in enumerate(runs):
        folder = tmp_path / "runs" / name
        write_results(folder, defense=strengths[name[0]], utility=0.9 + place / 100, leak=0.9 - place / 10)
        runs[name] = {"label_party.defense": strengths[name[0]], "job.seed": int(name[1])}
    write_json(tmp_path / "sweep.json", {"schema": 1, "runs": runs})
    html = page(tmp_path)
    curves = {trace["name"]: trace for trace in figures(html)["plane"]["data"]}
    assert set(curves) == {"iso", "none"}
    assert curves["iso"]["x"] == [0.65, 0.85]
    assert curves["iso"]["y"] == [0.925, 0.905]
    assert curves["iso"]["error_x"]["array"] == [0.05, 0.05]
    assert all(f">{name}<" in html for name in runs)


def test_folder_of_runs_and_several_folders(tmp_path: Path) -> None:
    write_results(tmp_path / "all" / "one")
    write_results(tmp_path / "all" / "two")
    write_results(tmp_path / "other" / "one")
    html = words(page(tmp_path / "all", tmp_path / "other" / "one"))
    assert re.findall(r'<option value="run\d">(.*?)</option>', html) == ["one", "two", "one (2)"]


def test_configuration_gives_the_same_job_again_and_hides_secrets(tmp_path: Path) -> None:
    secret = {"label_party.id_secret": "by phone", "nonlabel_parties.lab.id_secret": "by phone"}
    folder = write_results(tmp_path / "run", changes=secret)
    html = page(folder)
    assert "by phone" not in html
    (config,) = re.findall(r"<summary>Resolved configuration</summary>\n<pre>(.*?)</pre>", html, re.DOTALL)
    again = RunFile.model_validate(yaml.safe_load(config.replace("&#39;", "'")))
    assert again.job.digest().hex() == json.loads((folder / "run.json").read_text())["job_digest"]


def test_nothing_of_a_run_becomes_part_of_the_page(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    folder = write_results(tmp_path / "run", attack="norm")
    text = (folder / "summary.json").read_text().replace('"norm"', json.dumps(evil)).replace('"test"', json.dumps(evil))
    (folder / "summary.json").write_text(text)
    record = json.loads((folder / "run.json").read_text())
    record["config"]["label_party"]["defense"] = {"name": evil}
    record["versions"][evil] = evil
    write_json(folder / "run.json", record)
    html = page(folder)
    assert "<script>alert" not in html
    assert "<img" not in re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert "&lt;script&gt;alert(1)" in html


def test_names_in_figures_are_no_html(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "run", defense={"name": "x:<b>y</b>"})
    found = figures(page(folder))
    assert found["plane"]["data"][0]["name"] == "x:&lt;b&gt;y&lt;/b&gt;"


@pytest.mark.parametrize(
    ("removed", "figure", "reason"),
    [
        ("label_party/samples.safetensors", "run0-0-norms-exact", "the label party&#39;s file for it is not here"),
        ("label_party/defense.parquet", "run0-power", "the label party&#39;s file for it is not here"),
        ("lab", "run0-leak-first", "no party ran an attack on a binary task, or its folder is not here"),
        ("label_party", "run0-0-projection-exact", "the label party&#39;s folder is not here"),
    ],
)
def test_missing_figure_says_why(tmp_path: Path, removed: str, figure: str, reason: str) -> None:
    folder = write_results(tmp_path / "run")
    gone = folder / removed
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    html = page(folder)
    assert figure not in figures(html)
    assert f"<strong>Not here:</strong> {reason}." in html


@pytest.mark.parametrize(
    "file",
    [
        *(f"label_party/{name}" for name in ("samples.safetensors", "defense.parquet", "audit.parquet")),
        *("label_party/labels.parquet", "lab/attacks/norm.parquet", "metrics.jsonl"),
    ],
)
def test_damaged_file_of_a_figure_is_named_on_the_page_and_is_the_users_error(tmp_path: Path, file: str) -> None:
    folder = write_results(tmp_path / "run")
    whole = (folder / file).read_bytes()
    (folder / file).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError) as error:
        report([folder], tmp_path / "page.html")
    assert str(error.value) == f"{folder / file}: damaged; the page does without its figures"
    assert f"{file} is damaged" in words((tmp_path / "page.html").read_text())


def test_a_file_that_is_not_here_is_no_error(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "run")
    shutil.rmtree(folder / "label_party")
    (folder / "metrics.jsonl").unlink()
    report([folder], tmp_path / "page.html")


def test_samples_that_were_switched_off(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "run", changes={"label_party.samples": 0})
    (folder / "label_party" / "samples.safetensors").unlink()
    assert "label_party.samples: 0" in words(page(folder))


def test_run_without_any_figure_still_has_a_page(tmp_path: Path) -> None:
    html = page(write_results(tmp_path / "run", utility=None, leak=None))
    assert "no run has both a utility and a leak figure" in html


def test_unfinished_runs_of_a_sweep_are_named(tmp_path: Path) -> None:
    write_results(tmp_path / "runs" / "seed=0")
    write_json(tmp_path / "sweep.json", {"schema": 1, "runs": {"seed=0": {"job.seed": 0}, "seed=1": {"job.seed": 1}}})
    assert "Not in this report: seed=1 (has not begun)." in words(page(tmp_path))


def damage(folder: Path, file: str, text: str) -> None:
    (folder / file).write_text(text)


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("summary.json", "{", "summary.json: damaged, it cannot be read as JSON"),
        ("summary.json", "[]", "summary.json: damaged, expected a JSON object"),
        ("summary.json", "{}", "summary.json: damaged or of another version, it has no job, task"),
        ("run.json", "{}", "run.json: damaged or of another version, it has no config, versions"),
        ("run.json", '{"config": [], "versions": {}}', "the results are damaged or of another version"),
    ],
)
def test_damaged_run_is_named(tmp_path: Path, file: str, text: str, expected: str) -> None:
    damage(write_results(tmp_path / "run"), file, text)
    with pytest.raises(UserError) as caught:
        report([tmp_path / "run"], tmp_path / "page.html")
    assert expected in str(caught.value)


def test_folders_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such folder"):
        page(tmp_path / "missing")
    with pytest.raises(UserError, match="no run in it; give the folder of a run"):
        page(tmp_path)
    write_json(tmp_path / "state.json", {})
    with pytest.raises(UserError, match="no run here has finished"):
        page(tmp_path)


def test_page_that_cannot_be_written(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "run")
    with pytest.raises(UserError, match="--out .*: cannot be written: No such file or directory"):
        report([folder], tmp_path / "missing" / "page.html")
