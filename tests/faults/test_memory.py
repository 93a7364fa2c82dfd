"""A party whose memory is refused ends with a word, spoils nothing, and after that the run goes on to the same bits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.fault_points import once_before
from support.kills import require_same, run_to_kill, write_run
from support.runs import environment
from support.threads import Parties

from cutlayer.common import checkpoints
from cutlayer.common.errors import PeerError, out_of_memory
from cutlayer.common.process import INTERNAL_ERROR, run_party
from cutlayer.label_party.training import LabelTraining
from cutlayer.nonlabel_party.training import BottomTraining
from cutlayer.summary import merge

RUN = run_to_kill(epochs=2)
RUN["label_party"]["timeouts"] = {"goodbye_s": 1}


def by_torch() -> None:
    torch.empty(1 << 55)


def by_python() -> None:
    bytearray(1 << 60)


@pytest.mark.parametrize("ask_too_much", [by_torch, by_python])
def test_memory_that_is_refused_is_said_in_words(
    ask_too_much: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_party("lab", ask_too_much) == 1
    said = capsys.readouterr().err
    assert said.startswith("cutlayer: lab has no memory left; free some")
    assert INTERNAL_ERROR not in said


@pytest.mark.slow
@pytest.mark.parametrize("party", ["label_party", "lab"])
def test_memory_does_not_grow_with_the_steps(party: str, tmp_path: Path) -> None:
    """Each step takes and frees 8 MB and more; what stays of it must not keep that from being used again."""
    command = [sys.executable, "-m", "support.wide_steps", party, str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100


def test_other_errors_are_no_lack_of_memory() -> None:
    assert not out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not out_of_memory(ValueError("out of memory"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the run as it is without a fault."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_run(folder, RUN)
    out = Parties(folder, RUN).wait().require_success().out
    merge(out)
    return out


@pytest.mark.parametrize(
    ("owner", "name", "due", "victim"),
    [
        (BottomTraining, "backward", lambda self, *_: self._party == "lab", "lab"),
        (LabelTraining, "step", lambda self, step, *_: step.number == 20, "label_party"),
        (checkpoints, "write_synced", lambda path, *_: path.match("lab/*/.step-000000040*/state*"), "lab"),
        (
            checkpoints,
            "write_synced",
            lambda path, *_: path.match("label_party/*/.step-000000040*/man*"),
            "label_party",
        ),
    ],
    ids=["lab's step", "label's step", "lab's checkpoint", "label's checkpoint"],
)
def test_P05_no_memory_ends_the_run_and_then_it_goes_on(
    tmp_path: Path, undisturbed: Path, owner: object, name: str, due: Callable[..., bool], victim: str
) -> None:
    write_run(tmp_path, RUN)
    with pytest.MonkeyPatch.context() as patch:
        once_before(patch, owner, name, due, by_torch)
        outcome = Parties(tmp_path, RUN).wait()
    error = outcome.errors[victim]
    assert error is not None
    assert out_of_memory(error)
    others = {"label_party", "lab", "bank"} - {victim}
    assert all(isinstance(outcome.errors[party], PeerError) for party in others)
    assert list(outcome.out.rglob(".*")) == []
    Parties(tmp_path, RUN).wait().require_success()
    merge(outcome.out)
    require_same(outcome.out, undisturbed)
