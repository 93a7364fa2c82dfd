"""Parties that are stopped, killed or frozen: nobody is left behind, and the others say who was lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from support.processes import Background, await_gone
from support.runs import BREAST_CANCER, Run, changed, free_port, with_parties, write

pytestmark = pytest.mark.slow

TIMEOUTS = {"reconnect_s": 2, "stall_s": 60, "keepalive_s": 1, "goodbye_s": 2}
TWO = changed(
    BREAST_CANCER,
    {"job.epochs": 100_000, "label_party.timeouts": TIMEOUTS, "nonlabel_parties.lab.timeouts": TIMEOUTS},
)
THREE = with_parties(TWO, ["lab", "clinic"])
TRAINING = "epoch 2,"
SECRET = {"CUTLAYER_ID_SECRET": "shared by a phone call"}


@contextmanager
def training(folder: Path, run_file: Run = TWO) -> Iterator[Background]:
    """`cutlayer run` in the middle of training."""
    with Background("run", write(folder, run_file), "--out", folder / "out") as run:
        run.await_words(TRAINING)
        assert len(run.children()) == 2
        yield run


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_ends_the_run_and_every_party(tmp_path: Path, number: signal.Signals, status: int) -> None:
    with training(tmp_path) as run:
        children = run.children()
        run.process.send_signal(number)
        found, output = run.finish(20)
        await_gone(children, 1)
    assert found == status
    assert f"stopped by {number.name}" in output
    assert "Traceback" not in output


def test_killed_supervisor_leaves_no_orphan(tmp_path: Path) -> None:
    with training(tmp_path) as run:
        children = run.children()
        run.process.kill()
        await_gone(children)


@pytest.mark.parametrize(("module", "name"), [("nonlabel_party", "lab"), ("label_party", "label_party")])
def test_P08_killed_party_that_is_not_started_again_ends_the_run(tmp_path: Path, module: str, name: str) -> None:
    with training(tmp_path, changed(TWO, {"restarts": 0})) as run:
        children = run.children()
        (one,) = (child for child in children if f"cutlayer.{module}" in child.cmdline())
        one.kill()
        status, output = run.finish(30)
        await_gone(children, 1)
    assert status == 1
    assert f"{name} was killed by SIGKILL" in output
    assert "Traceback" not in output


@contextmanager
def hosts(folder: Path, run: Run = TWO) -> Iterator[dict[str, Background]]:
    """Each party started by its own command, in the middle of training."""
    address = f"127.0.0.1:{free_port()}"
    path = write(folder, run)
    with ExitStack() as stack:
        label = Background("label-party", path, "--out", folder / "label", "--listen", address, variables=SECRET)
        parties = {"label_party": stack.enter_context(label)}
        for name in run["job"]["parties"]:
            args = ("nonlabel-party", path, "--name", name, "--out", folder / name, "--connect", address)
            parties[name] = stack.enter_context(Background(*args, variables=SECRET))
        label.await_words(TRAINING)
        yield parties


def test_terminated_party_ends_the_others_which_name_it(tmp_path: Path) -> None:
    with hosts(tmp_path, THREE) as parties:
        parties["lab"].process.terminate()
        ends = {name: party.finish(20) for name, party in parties.items()}
    assert ends["lab"][0] == 143
    assert "cutlayer: lab stopped by SIGTERM" in ends["lab"][1]
    assert ends["label_party"][0] == ends["clinic"][0] == 1
    assert "party 'lab' was stopped at step" in ends["label_party"][1]
    assert "lost party 'lab'" in ends["clinic"][1]
    for _, output in ends.values():
        assert "Traceback" not in output


def test_terminated_label_party_tells_the_others(tmp_path: Path) -> None:
    with hosts(tmp_path) as parties:
        parties["label_party"].process.terminate()
        ends = {name: party.finish(20) for name, party in parties.items()}
    assert ends["label_party"][0] == 143
    assert ends["lab"][0] == 1
    assert "the label party was stopped" in ends["lab"][1]


def test_P08_killed_party_is_named(tmp_path: Path) -> None:
    with hosts(tmp_path) as parties:
        parties["lab"].process.kill()
        status, output = parties["label_party"].finish(20)
    assert status == 1
    assert "party 'lab' was lost at step" in output


@pytest.mark.parametrize(
    ("frozen", "other", "words"),
    [
        ("lab", "label_party", "party 'lab' was lost at step"),
        ("label_party", "lab", "was lost at step"),
    ],
    ids=["lab", "label_party"],
)
def test_P08_frozen_party_is_noticed(tmp_path: Path, frozen: str, other: str, words: str) -> None:
    """By keepalive, after 2 s, and the reconnect timeout of 2 s; the stall timeout would take far longer."""
    with hosts(tmp_path) as parties:
        process = psutil.Process(parties[frozen].process.pid)
        process.suspend()
        status, output = parties[other].finish(30)
        process.resume()
    assert status == 1
    assert words in output
    assert "did not come back within 2 s" in output


def test_P03_second_process_on_one_folder(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    args = ("nonlabel-party", write(tmp_path, TWO), "--name", "lab", "--out", tmp_path / "out", "--connect", address)
    with Background(*args, variables=SECRET) as first:
        first.await_words("waiting for the label party")
        with Background(*args, variables=SECRET) as second:
            status, output = second.finish(30)
        assert first.process.poll() is None
    assert status == 2
    assert f"is in use by process {first.process.pid}" in output
