"""A disk that is full or read-only ends the run with a word, spoils nothing, and after that the run goes on.

The disk is real, and gets full right before a function of the program, once. In the end there are the same bits as
without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fault_points import once_before
from support.kills import kill_everything, require_same, run_to_kill, wait_for_step, write_run
from support.runs import command, cutlayer, environment, finish
from support.small_disk import small_disk
from support.threads import Outcome, Parties

from cutlayer.common.checkpoints import CheckpointStore
from cutlayer.common.errors import PeerError, StorageError
from cutlayer.label_party.answered import AnsweredActivations
from cutlayer.label_party.process import LabelParty
from cutlayer.nonlabel_party.guesses import Guesses
from cutlayer.nonlabel_party.process import NonlabelParty
from cutlayer.nonlabel_party.recorder import Recorder
from cutlayer.summary import merge

RUN = run_to_kill(epochs=4)
RUN["label_party"]["timeouts"] = {"goodbye_s": 1}
ALL = ("label_party", "lab", "bank")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the run as it is without a fault."""
    out = start(tmp_path_factory.mktemp("undisturbed")).wait().require_success().out
    merge(out)
    return out


def start(folder: Path) -> Parties:
    write_run(folder, RUN)
    return Parties(folder, RUN)


def require_no_leftovers(out: Path) -> None:
    """No temporary file, and nothing that is not whole under its name."""
    left = [path for path in out.rglob("*") if path.name.startswith(".") or path.suffix in (".part", ".whole")]
    assert left == []


def require_clear_ends(outcome: Outcome, victim: str, file: str) -> None:
    error = outcome.errors[victim]
    assert isinstance(error, StorageError)
    words = r"cannot be written (No space left on device); make room on this disk, then start again with the same --out"
    assert words in str(error)
    assert str(error).startswith(str(outcome.out / file))
    for party in ALL:
        if party != victim:
            assert isinstance(outcome.errors[party], PeerError), repr(outcome.errors[party])
            assert (victim if victim != "label_party" else "label party") in outcome.error(party)


def _of(party: str) -> Callable[..., bool]:
    return lambda self, step, *rest: self._owner.party == party and step == 60


def _always(*_: object) -> bool:
    return True


def _of_lab(self: Guesses, step: int) -> bool:
    return step >= 60 and self._path.parts[-3:] == ("lab", "attacks", "norm.parquet")


@pytest.mark.parametrize(
    ("owner", "name", "due", "victim", "file"),
    [
        (CheckpointStore, "save", _of("lab"), "lab", "lab/checkpoints/step-000000060"),
        (CheckpointStore, "save", _of("label_party"), "label_party", "label_party/checkpoints/step-000000060"),
        (AnsweredActivations, "note", lambda self, step, z: step == 129, "label_party", "label_party/answered/"),
        (Recorder, "end_part", lambda self, step: step == 60, "lab", "lab/"),  # or the next file, if its page has room
        (Guesses, "end_part", _of_lab, "lab", "lab/attacks/norm.parquet"),
        (Guesses, "merge", _of_lab, "lab", "lab/attacks/norm.parquet"),
        (NonlabelParty, "_write_results", _always, "bank", "bank/"),
        (LabelParty, "_write_results", _always, "label_party", "label_party/model"),
    ],
    ids=[
        "checkpoint",
        "label's checkpoint",
        "answered",
        "capture",
        "guesses",
        "all guesses",
        "results",
        "label's results",
    ],
)
def test_P05_a_full_disk_ends_the_run_and_then_it_goes_on(
    tmp_path: Path,
    undisturbed: Path,
    owner: type,
    name: str,
    due: Callable[..., bool],
    victim: str,
    file: str,
) -> None:
    with small_disk(tmp_path / "out" / victim) as disk:
        with pytest.MonkeyPatch.context() as patch:
            once_before(patch, owner, name, due if victim != "bank" else _is_bank, disk.fill)
            outcome = start(tmp_path).wait()
        require_clear_ends(outcome, victim, file)
        disk.free()
        require_no_leftovers(outcome.out)
        log = outcome.log(victim)
        start(tmp_path).wait().require_success()
        assert outcome.log(victim).startswith(log)
        assert "going on from the checkpoint of step" in outcome.log(victim) + outcome.log("lab")
        merge(outcome.out)
        require_same(outcome.out, undisturbed)


def _is_bank(self: NonlabelParty, *_: object) -> bool:
    return self._name == "bank"


def test_P05_log_and_tensorboard_are_not_worth_a_run(
    tmp_path: Path, undisturbed: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    private = tmp_path / "out" / "label_party"
    private.mkdir(parents=True)
    (private / "log").symlink_to("/dev/full")
    (private / "tensorboard").write_text("a file in the way")
    outcome = start(tmp_path).wait().require_success()
    merge(outcome.out)
    require_same(outcome.out, undisturbed)
    said = capfd.readouterr().err
    for file in ("log", "tensorboard"):
        assert said.count(f"label_party: warning: goes on without {private / file}, which cannot be written") == 1


@pytest.mark.slow
def test_P05_a_limit_on_the_size_of_files_ends_the_run_and_then_it_goes_on(tmp_path: Path, undisturbed: Path) -> None:
    """Needs no right to mount; as processes, with `cutlayer run` around them."""
    path, out = write_run(tmp_path, RUN), tmp_path / "out"
    limited = [shutil.which("prlimit") or pytest.skip("prlimit is missing"), "--fsize=6000"]
    status, output = finish(start_by(limited, "run", path, "--out", out))
    assert status == 1, output
    assert "cannot be written (File too large); raise the limit on the size of files (`ulimit -f`)" in output
    assert "Traceback" not in output
    assert "internal error" not in output
    require_no_leftovers(out)
    again = cutlayer("run", path, "--out", out)
    assert again.returncode == 0, again.stderr
    require_same(out, undisturbed)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is missing")
def test_P05_a_folder_that_got_read_only_ends_the_run_and_then_it_goes_on(tmp_path: Path, undisturbed: Path) -> None:
    path, out = write_run(tmp_path, RUN), tmp_path / "out"
    as_user = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"] if os.geteuid() == 0 else []
    process = start_by(as_user, "run", path, "--out", out)
    try:
        assert wait_for_step(process, out, 47)
        (out / "lab" / "checkpoints").chmod(0o555)
        status, output = finish(process)
    finally:
        kill_everything(process, out)
    (out / "lab" / "checkpoints").chmod(0o700)
    assert status == 1, output
    assert "lab/checkpoints/step-" in output
    assert "cannot be written (Permission denied); let this user write there" in output
    assert "Traceback" not in output
    require_no_leftovers(out)
    again = cutlayer("run", path, "--out", out)
    assert again.returncode == 0, again.stderr
    require_same(out, undisturbed)


def start_by(prefix: list[str], *args: str | Path) -> subprocess.Popen[str]:
    """Start `cutlayer ARGS` by another command."""
    return subprocess.Popen(
        [*prefix, *command(*args)],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
