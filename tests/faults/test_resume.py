"""Parties that are killed and started again: in the end there are the same bits as without."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.kills import (
    PARTIES,
    begin,
    kill,
    kill_everything,
    require_same,
    run_to_kill,
    wait_for_step,
    write_run,
)
from support.runs import changed, cutlayer, finish

RUN = run_to_kill(epochs=4)
STEPS = 148


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the run as it is without a fault."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = cutlayer("run", write_run(folder, RUN), "--out", folder / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


@pytest.mark.parametrize(
    "who", [("lab",), ("label_party",), ("lab", "label_party"), PARTIES], ids=["lab", "label", "both", "all"]
)
def test_P01_killed_parties_are_started_again_and_go_on(
    tmp_path: Path, undisturbed: Path, who: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    process = begin(write_run(tmp_path, RUN), out)
    assert wait_for_step(process, out, 47)
    kill(out, who)
    status, output = finish(process)
    assert status == 0, output
    for party in who:
        assert f"{party}: was killed by SIGKILL; starting it again (1 of 1000)" in output
    assert "going on after step" in output
    require_same(out, undisturbed)


def test_P01_killed_twice(tmp_path: Path, undisturbed: Path) -> None:
    out = tmp_path / "out"
    process = begin(write_run(tmp_path, RUN), out)
    assert wait_for_step(process, out, 30)
    kill(out, ["bank"])
    assert wait_for_step(process, out, 90)
    kill(out, ["label_party"])
    status, output = finish(process)
    assert status == 0, output
    require_same(out, undisturbed)


def test_P01_P04_everything_is_killed_and_the_newest_checkpoint_damaged(tmp_path: Path, undisturbed: Path) -> None:
    out, path = tmp_path / "out", write_run(tmp_path, RUN)
    process = begin(path, out)
    assert wait_for_step(process, out, 90)
    kill_everything(process, out)
    newest = max((out / "bank" / "checkpoints").glob("step-*")) / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    done = cutlayer("run", path, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"checkpoint {newest.parent} is damaged" in done.stderr
    require_same(out, undisturbed)
    again = cutlayer("run", path, "--out", out)
    assert (again.returncode, again.stdout) == (0, f"this run is finished; results are in {out}\n")


def test_P01_killed_before_the_first_checkpoint(tmp_path: Path, undisturbed: Path) -> None:
    out = tmp_path / "out"
    process = begin(write_run(tmp_path, RUN), out)
    assert wait_for_step(process, out, 3)
    kill(out, ["lab"])
    status, output = finish(process)
    assert status == 0, output
    require_same(out, undisturbed)


def test_P06_a_run_that_was_stopped_goes_on(tmp_path: Path, undisturbed: Path) -> None:
    out, path = tmp_path / "out", write_run(tmp_path, RUN)
    process = begin(path, out)
    assert wait_for_step(process, out, 47)
    process.send_signal(signal.SIGTERM)
    status, output = finish(process)
    assert status == 143, output
    done = cutlayer("run", path, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    require_same(out, undisturbed)


def test_a_finished_party_says_so(undisturbed: Path, tmp_path: Path) -> None:
    path = write_run(tmp_path, RUN)
    label = cutlayer("label-party", path, "--out", undisturbed)
    assert (label.returncode, label.stdout) == (0, f"label_party: this run is finished; results are in {undisturbed}\n")
    lab = cutlayer("nonlabel-party", path, "--name", "lab", "--out", undisturbed)
    assert lab.returncode == 0
    assert "this run is finished" in lab.stdout


def test_a_folder_of_another_job_is_refused(undisturbed: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path, changed(RUN, {"job.seed": 8}))
    for command in (["run"], ["label-party"], ["nonlabel-party", "--name", "lab"]):
        done = cutlayer(*command, other, "--out", undisturbed)
        assert done.returncode == 2
        assert "holds a run of another job" in done.stderr
        assert "give another --out DIR" in done.stderr
