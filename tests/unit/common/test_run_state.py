"""common/run_state.py: what a folder of results remembers of its run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutlayer.common.errors import AlignmentError, CheckpointError
from cutlayer.common.run_state import RunState, new_run

JOB, ROWS, RUN = b"j" * 32, b"r" * 32, bytes(range(16))


def test_a_run_goes_on_only_as_what_it_began(tmp_path: Path) -> None:
    state = RunState(tmp_path, JOB)
    assert not state.begun
    assert state.begin(threads=1) is None
    state.of_rows(ROWS, RUN)
    with pytest.raises(CheckpointError, match="holds a run of another job"):
        RunState(tmp_path, b"k" * 32)
    again = RunState(tmp_path, JOB)
    assert again.begun
    assert again.begin(threads=1) is None
    with pytest.raises(AlignmentError, match="not those that the run in"):
        again.of_rows(b"s" * 32, RUN)
    again.of_rows(ROWS, RUN)
    again.finish()
    assert RunState(tmp_path, JOB).finished


def test_a_job_may_be_mended_as_long_as_no_rows_are_agreed_on(tmp_path: Path) -> None:
    RunState(tmp_path, b"k" * 32).begin(threads=1)
    state = RunState(tmp_path, JOB)
    state.begin(threads=1)
    state.of_rows(ROWS, RUN)
    with pytest.raises(CheckpointError, match="holds a run of another job"):
        RunState(tmp_path, b"k" * 32)


def test_P11_what_the_last_bits_depend_on_is_told_when_it_has_changed(tmp_path: Path) -> None:
    RunState(tmp_path, JOB).begin(threads=1)
    state = RunState(tmp_path, JOB)
    state.of_rows(ROWS, RUN)
    warning = state.begin(threads=2)
    assert warning is not None
    assert warning.startswith("the run goes on with threads 2, before 1: what is computed may differ in the last bits")
    content = json.loads((tmp_path / "state.json").read_text())
    content["computed_with"]["torch"] = "1.0"
    (tmp_path / "state.json").write_text(json.dumps(content))
    assert "torch" in (RunState(tmp_path, JOB).begin(threads=1) or "")


def test_who_does_not_compute_compares_nothing(tmp_path: Path) -> None:
    RunState(tmp_path, JOB).begin()
    assert RunState(tmp_path, JOB).begin(threads=3) is None


def test_P16_a_folder_keeps_its_run(tmp_path: Path) -> None:
    state = RunState(tmp_path, JOB)
    assert state.run is None
    state.of_rows(ROWS, RUN)
    again = RunState(tmp_path, JOB)
    assert again.run == RUN
    for other, words in ((bytes(16), "run 00000000"), (None, "one that has no name")):
        with pytest.raises(
            CheckpointError, match=rf"is of run 00010203 of this job, .* goes on with {words}: start both"
        ):
            again.of_rows(ROWS, other)
    again.finish()
    assert RunState(tmp_path, JOB).run == RUN


def test_P20_a_folder_of_an_earlier_release_takes_the_name_of_the_run(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps({"job": JOB.hex(), "rows": ROWS.hex(), "schema": 1}))
    state = RunState(tmp_path, JOB)
    state.of_rows(ROWS, None)
    assert json.loads(file.read_text())["schema"] == 1  # nothing to write
    state.of_rows(ROWS, RUN)
    assert json.loads(file.read_text())["schema"] == 2
    assert RunState(tmp_path, JOB).run == RUN


def test_no_two_runs_have_one_name() -> None:
    assert len({new_run() for _ in range(100)}) == 100
