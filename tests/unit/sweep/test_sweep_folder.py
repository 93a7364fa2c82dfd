"""The folder of a sweep and its table of results."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.results import summary
from support.runs import BREAST_CANCER, changed

from cutlayer.common.errors import UserError
from cutlayer.common.files import DirectoryLock, write_json
from cutlayer.common.run_state import RunState
from cutlayer.sweep.folder import SweepFolder
from cutlayer.sweep.plan import PlannedRun, load
from cutlayer.sweep.results import write_results


def planned(folder: Path, grid: dict[str, Any], **changes: Any) -> list[PlannedRun]:
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump({"run": changed(BREAST_CANCER, changes), "grid": grid}, sort_keys=False))
    return load(file).runs


def finish(folder: SweepFolder, run: PlannedRun) -> None:
    """Leave what a finished run leaves."""
    out = folder.of(run.name)
    out.mkdir()
    write_json(out / "summary.json", {})
    state(folder, run, run.run_file.job.digest(), finished=True)


def state(folder: SweepFolder, run: PlannedRun, job: bytes, *, finished: bool) -> None:
    """Leave the state of a run of that job."""
    (folder.of(run.name) / "state.json").unlink(missing_ok=True)
    made = RunState(folder.of(run.name), job)
    made.begin()
    if finished:
        made.finish()


def test_run_files_are_written_and_can_be_read_by_their_owner_alone(tmp_path: Path) -> None:
    (run,) = planned(tmp_path, {"job.seed": [3]}, **{"label_party.id_secret": "by phone"})
    folder = SweepFolder(tmp_path / "out")
    folder.prepare([run])
    file = folder.run_file("seed=3")
    assert yaml.safe_load(file.read_text()) == run.content
    assert file.stat().st_mode & 0o777 == 0o600


def test_only_a_run_with_a_summary_and_its_finished_state_is_finished(tmp_path: Path) -> None:
    whole, without_summary, half_done, of_another_job = planned(tmp_path, {"job.seed": [0, 1, 2, 3]})
    folder = SweepFolder(tmp_path / "out")
    for run in (whole, without_summary, half_done, of_another_job):
        finish(folder, run)
    (folder.of(without_summary.name) / "summary.json").unlink()
    digest = half_done.run_file.job.digest()
    state(folder, half_done, digest, finished=False)
    state(folder, of_another_job, digest, finished=True)
    assert [folder.finished(run) for run in (whole, without_summary, half_done, of_another_job)] == [
        *(True, False, False, False),
    ]


def test_what_the_runs_have_in_common_may_not_change(tmp_path: Path) -> None:
    (run,) = planned(tmp_path, {"job.seed": [0]})
    (other,) = planned(tmp_path, {"job.seed": [0]}, **{"label_party.optimizer": {"lr": 0.5}})
    folder = SweepFolder(tmp_path / "out")
    folder.prepare([run])
    folder.prepare([other])  # not begun yet
    finish(folder, other)
    folder.prepare([other])
    with pytest.raises(UserError, match="seed=0 holds a run of another run file"):
        folder.prepare([run])


@pytest.mark.parametrize(
    "grid",
    [{"job.seed": [0], "job.epochs": [1]}, {"job.batch_size": [64]}],
    ids=["one more axis", "another axis"],
)
def test_axes_may_not_change_once_a_run_was_begun(tmp_path: Path, grid: dict[str, Any]) -> None:
    before = planned(tmp_path, {"job.seed": [0, 1]})
    folder = SweepFolder(tmp_path / "out")
    folder.prepare(before)
    folder.prepare(planned(tmp_path, grid))  # not begun yet
    folder.prepare(before)
    finish(folder, before[0])
    with pytest.raises(UserError, match=r"a sweep over job.seed was begun in it, .* over job\.\w+.*another --out DIR"):
        folder.prepare(planned(tmp_path, grid))


def test_values_that_are_gone_leave_their_folders_and_are_told_of(tmp_path: Path) -> None:
    before, after = planned(tmp_path, {"job.seed": [0, 1]}), planned(tmp_path, {"job.seed": [1, 2]})
    folder = SweepFolder(tmp_path / "out")
    folder.prepare(before)
    for run in before:
        finish(folder, run)
    assert folder.others(before) == []
    folder.prepare(after)
    assert folder.others(after) == ["seed=0"]


def test_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(UserError, match="not empty, and no sweep was begun in it"):
        SweepFolder(tmp_path / "out")
    with pytest.raises(UserError, match="cannot be used as a folder"):
        SweepFolder(tmp_path / "out" / "thesis.tex")


def test_parties_that_are_left_are_waited_for_and_named(tmp_path: Path) -> None:
    (run,) = planned(tmp_path, {"job.seed": [0]})
    folder = SweepFolder(tmp_path / "out")
    party = folder.of(run.name) / "lab"
    party.mkdir(parents=True)
    with DirectoryLock(party), pytest.raises(UserError, match="is in use by process"):
        folder.await_leftovers([run], timeout_s=0.2)
    folder.await_leftovers([run], timeout_s=0.2)


def table_of(folder: Path, runs: list[PlannedRun], *, leak: float | None = 0.7) -> pa.Table:
    write_results(folder / "results.parquet", [(run, summary(run.run_file, 0.9, leak, 0.8, "norm")) for run in runs])
    return pq.read_table(folder / "results.parquet")


def test_table_has_a_row_for_each_run_attack_and_layer(tmp_path: Path) -> None:
    runs = planned(tmp_path, {"label_party.defense": ["none", {"name": "iso", "t": 4}], "job.seed": [5]})
    rows = table_of(tmp_path, runs).to_pylist()
    assert [(row["run"], row["by"], row["attack"], row["layer"]) for row in rows] == [
        ("defense=none,seed=5", "audit", "norm", "cut"),
        ("defense=none,seed=5", "lab", "norm", "cut"),
        ("defense=none,seed=5", "lab", "norm", "first"),
        ("defense=iso-t-4,seed=5", "audit", "norm", "cut"),
        ("defense=iso-t-4,seed=5", "lab", "norm", "cut"),
        ("defense=iso-t-4,seed=5", "lab", "norm", "first"),
    ]
    known = {"grid.job.seed": 5, "seed": 5, "test_auc": 0.9, "leak_p95": 0.7, "leak_null_floor": 0.62, "batches": 24}
    assert rows[3].items() >= known.items()
    assert rows[3]["grid.label_party.defense"] == '{"name": "iso", "t": 4}'
    assert rows[3]["defense_options"] == '{"t": 4}'
    assert rows[3]["bound_whole_run_leak_auc"] == 0.8


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1, 2], pa.int64()), ([1, 0.5], pa.float64()), ([True, False], pa.bool_()), (["a", 1], pa.string())],
)
def test_axis_of_numbers_is_a_column_of_numbers(tmp_path: Path, values: list[Any], kind: pa.DataType) -> None:
    runs = planned(tmp_path, {"label_party.defense.t": values}, **{"label_party.defense": {"name": "iso"}})
    assert table_of(tmp_path, runs).schema.field("grid.label_party.defense.t").type == kind


def test_table_without_a_finished_run_has_its_columns(tmp_path: Path) -> None:
    table = table_of(tmp_path, [])
    assert table.num_rows == 0
    assert {"run", "test_auc", "leak_p95"} <= set(table.column_names)


def test_the_code_on_the_page_reads_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "sweep.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    folder = tmp_path / "sweeps" / "sweep"
    folder.mkdir(parents=True)
    table_of(folder, planned(tmp_path, {"label_party.defense": ["none", {"name": "iso", "t": 4}], "job.seed": [5, 6]}))
    monkeypatch.chdir(tmp_path)
    exec(code)
    rows = ast.literal_eval(capsys.readouterr().out)
    assert [(row["defense"], row["test_auc_mean"]) for row in rows] == [("none", 0.9), ("iso", 0.9)]
    assert [row["leak_p95_mean"] for row in rows] == pytest.approx([0.7, 0.7])
