"""What a party writes, on a disk that takes no more: an error with the file's name, and nothing that is half there."""

from __future__ import annotations

import json
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from support.runs import BREAST_CANCER, command, environment

from cutlayer.common.checkpoints import CheckpointOwner, CheckpointStore
from cutlayer.common.config import Choice, RunFile
from cutlayer.common.displays import PlainDisplay
from cutlayer.common.errors import StorageError
from cutlayer.common.files import DirectoryLock
from cutlayer.common.line_file import LineFile
from cutlayer.common.telemetry import Telemetry
from cutlayer.label_party.answered import AnsweredActivations
from cutlayer.nonlabel_party.curiosity import Curiosity
from cutlayer.nonlabel_party.view import StepView

TOO_LARGE = r"cannot be written \(File too large\); raise the limit on the size of files \(`ulimit -f`\), then start"


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """No file may grow beyond `size`, as on a full disk. Short, for the tests' own output may be one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_P05_a_line_is_whole_or_absent(tmp_path: Path) -> None:
    file = LineFile(tmp_path / "lines")
    file.write("x" * 9)
    with files_end_at(15), pytest.raises(StorageError, match=rf"lines: {TOO_LARGE}"):
        file.write("y" * 9)
    file.write("z" * 9)
    file.close()
    file.close()
    file.write("nothing")
    assert (tmp_path / "lines").read_text() == "x" * 9 + "\n" + "z" * 9 + "\n"


def test_P05_a_full_device_says_that_it_is_full(tmp_path: Path) -> None:
    (tmp_path / "lines").symlink_to("/dev/full")
    file = LineFile(tmp_path / "lines")
    with pytest.raises(StorageError, match=r"lines: cannot be written \(No space left on device\); make room on this"):
        file.write("a line")
    file.close()


def test_P05_a_part_of_a_digest_does_not_count_as_answered(tmp_path: Path) -> None:
    answered = AnsweredActivations(tmp_path / "answered")
    answered.note(1, {"lab": b"1" * 32})
    with files_end_at(32 + 20), pytest.raises(StorageError, match=rf"answered/lab: {TOO_LARGE}"):
        answered.note(2, {"lab": b"2" * 32})
    assert answered.at("lab", 2) is None
    answered.note(2, {"lab": b"2" * 32})
    assert [answered.at("lab", step) for step in (1, 2)] == [b"1" * 32, b"2" * 32]
    answered.close()


def test_P05_a_checkpoint_that_does_not_fit_leaves_the_one_before(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, CheckpointOwner("lab", "job"), 2, print)
    store.save(1, {"weight": torch.ones(4)}, {})
    with files_end_at(1000), pytest.raises(StorageError, match=rf"checkpoints/step-000000002: {TOO_LARGE}"):
        store.save(2, {"weight": torch.ones(400)}, {})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000001"]
    assert store.steps() == (1,)


def test_P05_a_lock_that_cannot_be_written_is_given_back(tmp_path: Path) -> None:
    with files_end_at(0), pytest.raises(StorageError, match=rf"lock: {TOO_LARGE}"), DirectoryLock(tmp_path):
        pass
    with DirectoryLock(tmp_path):
        pass


def test_P05_the_log_is_left_out_and_the_metrics_are_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = tmp_path / "metrics.jsonl"
    with Telemetry("lab", tmp_path, PlainDisplay(), metrics_file=metrics) as telemetry:
        telemetry.info("one")
        telemetry.evaluation({"step": 1})
        size = (tmp_path / "log").stat().st_size
        with files_end_at(len('{"step": 1}\n') + 5):
            telemetry.info("two")
            telemetry.warning("three")
            with pytest.raises(StorageError, match=rf"metrics.jsonl: {TOO_LARGE}"):
                telemetry.evaluation({"step": 2})
        assert (tmp_path / "log").stat().st_size == size
        telemetry.info("four")
        telemetry.evaluation({"step": 3})
    said = capsys.readouterr()
    assert said.err.count(f"goes on without {tmp_path / 'log'}, which cannot be written: File too large") == 1
    assert all(f"lab: {word}" in said.out + said.err.replace("warning: ", "") for word in ("one", "two", "three"))
    assert [json.loads(line)["text"] for line in (tmp_path / "log").read_text().splitlines()] == ["one", "four"]
    assert [json.loads(line)["step"] for line in metrics.read_text().splitlines()] == [1, 3]


def view(step: int, rows: int) -> StepView:
    g_Bd = torch.rand(rows, 8, generator=torch.Generator().manual_seed(step))
    ids = tuple(f"row {step} {row}" for row in range(rows))
    return StepView(step=step, row_ids=ids, x_BF=torch.zeros(rows, 1), z_Bd=g_Bd, g_Bd=g_Bd)


def test_P05_guesses_that_cannot_be_written_end_the_party_and_not_the_attack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cutlayer.nonlabel_party.guesses._ROWS_PER_GROUP", 1000)
    warned: list[str] = []
    job = RunFile.model_validate(BREAST_CANCER).job
    norm = Choice.model_validate({"name": "norm", "layers": ["cut"]})
    curiosity = Curiosity(job, "lab", [norm], tmp_path / "attacks", warned.append)
    curiosity.observe(view(1, 100))
    curiosity.save(1)
    for step in range(2, 12):  # a group of rows is full at the next one
        curiosity.observe(view(step, 100))
    with files_end_at(3000), pytest.raises(StorageError, match=rf"attacks/norm.parquet: {TOO_LARGE}"):
        curiosity.observe(view(12, 100))
    assert warned == []
    assert curiosity.awake
    assert [file.name for file in (tmp_path / "attacks" / "norm").iterdir()] == ["part-000000001.parquet"]


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["run", "--help"]])
def test_P05_output_that_gets_lost_is_a_failure_in_words(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*arguments), stdout=full, stderr=subprocess.PIPE, env=environment(), text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "cutlayer: the output could not be written: No space left on device\n")


def test_P05_work_is_done_to_its_end_when_the_output_gets_lost() -> None:
    code = (
        "import sys; from cutlayer.common.process import run_party, write_out\n"
        "sys.exit(run_party('lab', lambda: [write_out(sys.stdout, 'x') for _ in range(9)].clear()))"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*command()[:1], "-c", code], stdout=full, stderr=subprocess.PIPE, env=environment(), text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "cutlayer: lab is done, but <stdout> could not be written: No space left on device\n"
