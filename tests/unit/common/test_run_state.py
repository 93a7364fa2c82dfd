"""common/run_state.py: what a folder of results remembers of its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def agreed(folder: Path, setting: dict[str, Any] | None, *, finished: bool = False) -> None:
    state = RunState(folder, JOB, setting)
    state.begin(threads=1)
    state.of_rows(b"r" * 32, RUN)
    if finished:
        state.finish()


BEGAN_WITH = {"label_party.defense": {"name": "iso", "t": 5.0}, "label_party.seed": 3, "label_party.top_model": None}


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_goes_on_with_the_choices_that_it_began_with(finished: bool, tmp_path: Path) -> None:
    agreed(tmp_path, BEGAN_WITH, finished=finished)
    before = (tmp_path / "state.json").read_bytes()
    other = BEGAN_WITH | {"label_party.defense": {"name": "iso", "t": 1.0}, "label_party.top_model": {"name": "mlp"}}
    with pytest.raises(CheckpointError, match="another --out DIR at every party") as refused:
        RunState(tmp_path, JOB, other)
    assert 'label_party.defense was {"name": "iso", "t": 5.0}, is {"name": "iso", "t": 1.0}' in str(refused.value)
    assert 'label_party.top_model was null, is {"name": "mlp"}' in str(refused.value)
    assert "seed" not in str(refused.value)
    assert (tmp_path / "state.json").read_bytes() == before
    assert RunState(tmp_path, JOB, BEGAN_WITH).finished == finished
    assert RunState(tmp_path, JOB).finished == finished


def test_choices_may_change_until_rows_are_agreed_on(tmp_path: Path) -> None:
    RunState(tmp_path, JOB, BEGAN_WITH).begin(threads=1)
    other = BEGAN_WITH | {"label_party.seed": 4}
    agreed(tmp_path, other)
    with pytest.raises(CheckpointError, match="label_party.seed was 4, is 3"):
        RunState(tmp_path, JOB, BEGAN_WITH)


def test_a_run_of_an_earlier_release_goes_on_with_any_choices(tmp_path: Path) -> None:
    agreed(tmp_path, None)
    assert not RunState(tmp_path, JOB, BEGAN_WITH).finished
