"""common/run_state.py: what a folder of results remembers of its run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutlayer.common.errors import AlignmentError, CheckpointError
from cutlayer.common.run_state import RunState

JOB, ROWS = b"j" * 32, b"r" * 32


def test_a_run_goes_on_only_as_what_it_began(tmp_path: Path) -> None:
    state = RunState(tmp_path, JOB)
    assert not state.begun
    assert state.begin(threads=1) is None
    state.of_rows(ROWS)
    with pytest.raises(CheckpointError, match="holds a run of another job"):
        RunState(tmp_path, b"k" * 32)
    again = RunState(tmp_path, JOB)
    assert again.begun
    assert again.begin(threads=1) is None
    with pytest.raises(AlignmentError, match="not those that the run in"):
        again.of_rows(b"s" * 32)
    again.of_rows(ROWS)
    again.finish()
    assert RunState(tmp_path, JOB).finished


def test_a_job_may_be_mended_as_long_as_no_rows_are_agreed_on(tmp_path: Path) -> None:
    RunState(tmp_path, b"k" * 32).begin(threads=1)
    state = RunState(tmp_path, JOB)
    state.begin(threads=1)
    state.of_rows(ROWS)
    with pytest.raises(CheckpointError, match="holds a run of another job"):
        RunState(tmp_path, b"k" * 32)


def test_P11_what_the_last_bits_depend_on_is_told_when_it_has_changed(tmp_path: Path) -> None:
    RunState(tmp_path, JOB).begin(threads=1)
    state = RunState(tmp_path, JOB)
    state.of_rows(ROWS)
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
