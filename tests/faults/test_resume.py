"""`cutlayer run` with parties that are killed or stopped on the way: in the end there are the same bits as without."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.forked import Forked
from support.kills import begin, kill, kill_everything, require_same, run_to_kill, wait_for_step, write_run
from support.runs import changed, cutlayer, finish

RUN = run_to_kill(epochs=4)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the run as it is without a fault."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = cutlayer("run", write_run(folder, RUN), "--out", folder / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


def said(folder: Path, *args: str | Path) -> tuple[int, str]:
    """What a command says that ends by itself, and its exit status."""
    return Forked(*args, output=folder / "said").finish()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_P01_killed_parties_are_started_again_and_go_on(tmp_path: Path, undisturbed: Path) -> None:
    out = tmp_path / "out"
    process = begin(write_run(tmp_path, RUN), out)
    assert wait_for_step(process, out, 47)
    kill(out, ["lab", "label_party"])
    status, output = finish(process)
    assert status == 0, output
    for party in ("lab", "label_party"):
        assert f"{party}: was killed by SIGKILL; starting it again (1 of 1000)" in output
    assert "going on from the checkpoint of step" in output
    require_same(out, undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_P01_P04_P06_a_run_that_was_stopped_and_damaged_and_killed_goes_on(tmp_path: Path, undisturbed: Path) -> None:
    out, path = tmp_path / "out", write_run(tmp_path, RUN)
    process = begin(path, out)
    assert wait_for_step(process, out, 47)
    process.send_signal(signal.SIGTERM)
    status, output = finish(process)
    assert status == 143, output
    newest = max((out / "bank" / "checkpoints").glob("step-*")) / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    process = begin(path, out)
    assert wait_for_step(process, out, 90)
    kill_everything(process, out)
    done = cutlayer("run", path, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    require_same(out, undisturbed, saved_elsewhere=True)
    log = (out / "bank" / "log").read_text()
    assert f"checkpoint {newest.parent} is damaged" in log
    assert said(tmp_path, "run", path, "--out", out) == (0, f"this run is finished; results are in {out}\n")


def test_a_finished_party_says_so(undisturbed: Path, tmp_path: Path) -> None:
    path = write_run(tmp_path, RUN)
    for party, command in (
        ("label_party", ["label-party", path]),
        ("lab", ["nonlabel-party", path, "--name", "lab"]),
    ):
        status, output = said(tmp_path, *command, "--out", undisturbed)
        assert status == 0
        assert f"{party}: this run is finished; results are in {undisturbed}" in output


def test_other_choices_than_those_of_the_run_are_refused(undisturbed: Path, tmp_path: Path) -> None:
    """In a finished run; in one that goes on the same line of code decides."""
    other = write_run(tmp_path, changed(RUN, {"label_party.defense": {"name": "marvell", "max_leak_auc": 0.9}}))
    before = (undisturbed / "run.json").read_bytes()
    for command in (["run"], ["label-party"]):
        status, output = said(tmp_path, *command, other, "--out", undisturbed)
        assert status == 2
        assert '"max_leak_auc": 0.6}, is {"name": "marvell", "max_leak_auc": 0.9}' in output
    assert (undisturbed / "run.json").read_bytes() == before


def test_a_folder_of_another_job_is_refused(undisturbed: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path, changed(RUN, {"job.seed": 8}))
    for command in (["run"], ["label-party"], ["nonlabel-party", "--name", "lab"]):
        status, output = said(tmp_path, *command, other, "--out", undisturbed)
        assert status == 2
        assert "holds a run of another job" in output
        assert "give another --out DIR" in output
