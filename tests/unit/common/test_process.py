"""common/process.py: exit status and message of every way in which a party ends, in real processes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cutlayer.common.errors import ConfigError, PeerError
from cutlayer.common.files import write_json
from cutlayer.common.process import loading, peak_rss_bytes, run_party

PROCESS = """
import signal, sys, time
from cutlayer.common.errors import DefenseError
from cutlayer.common.process import run_party

def wait():
    print("ready", flush=True)
    while True:
        time.sleep(0.01)

def stubborn():
    try:
        wait()
    finally:
        wait()

def wrapping():
    try:
        wait()
    except Exception as error:
        raise DefenseError("failed") from error

def flood():
    while True:
        print("x" * 1000)

def last_words():
    print("ready", flush=True)
    sys.stdin.read()
    print("lost")

sys.exit(run_party("lab", locals()[sys.argv[1]]))
"""


def start(body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, body],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": ""},
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("body", ["wait", "wrapping"])
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_body_whatever_the_body_makes_of_it(body: str, signum: signal.Signals, status: int) -> None:
    with start(body) as process:
        assert line(process) == "ready\n"
        process.send_signal(signum)
        assert process.communicate() == ("", f"cutlayer: lab stopped by {signum.name}\n")
        assert process.returncode == status


@pytest.mark.parametrize(("first", "second"), [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
def test_the_second_signal_ends_the_process_at_once(first: signal.Signals, second: signal.Signals) -> None:
    with start("stubborn") as process:
        assert line(process) == "ready\n"
        process.send_signal(first)
        assert line(process) == "ready\n"
        process.send_signal(second)
        assert process.wait() == 128 + second


@pytest.mark.parametrize(("body", "status"), [("flood", 1), ("last_words", 0)])
def test_a_reader_that_has_gone_is_no_error_to_show(body: str, status: int) -> None:
    with start(body) as process:
        line(process)
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        assert process.communicate()[1] == ""
        assert process.returncode == status


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ConfigError("run.yaml: job.epochs: expected a number"), 2, "run.yaml: job.epochs: expected a number"),
        (PeerError("label_party is gone"), 1, "label_party is gone"),
        (OSError(28, "No space left on device"), 1, "lab: the system refused: [Errno 28] No space left on device"),
    ],
)
def test_an_error_becomes_its_message_and_status(error: Exception, status: int, message: str) -> None:
    shown: list[str] = []

    def body() -> None:
        raise error

    assert run_party("lab", body, shown.append) == status
    assert shown == [message]


@pytest.mark.parametrize("verbose", [False, True])
def test_an_internal_error_is_one_line_without_the_values_it_may_quote(
    verbose: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def body() -> None:
        raise ValueError("could not convert 'patient 7'")

    assert run_party("lab", body, verbose=verbose) == 1
    shown = capsys.readouterr().err
    assert "cutlayer: internal error, please report: lab: ValueError at test_process.py, line" in shown
    assert ("patient 7" in shown) == ("Traceback" in shown) == verbose


def test_an_internal_error_is_placed_in_our_code_not_in_a_library(capsys: pytest.CaptureFixture[str]) -> None:
    run_party("lab", lambda: write_json(Path("unused"), {"a": {1, 2}}))
    assert "TypeError at files.py, line" in capsys.readouterr().err


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (2, 2)])
def test_the_body_may_return_the_status(returned: int | None, status: int) -> None:
    assert run_party("lab", lambda: returned) == status


def test_the_last_collection_at_exit_has_nothing_to_look_at() -> None:
    code = (
        "import atexit, gc; from cutlayer.common.process import run_party; "
        "atexit.register(lambda: print(gc.get_freeze_count() > 0, len(gc.get_objects()) < 1000)); "
        "run_party('lab', lambda: None)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "True True\n"


def test_signal_handlers_are_as_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run_party("lab", lambda: None)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_peak_memory_is_of_this_process_not_of_the_one_that_forked_it() -> None:
    ballast = bytearray(os.urandom(1)) * (100 << 20)
    assert peak_rss_bytes() > len(ballast)
    code = "from cutlayer.common.process import peak_rss_bytes; print(peak_rss_bytes())"
    # preexec_fn makes subprocess fork, so that the child begins with all of this process's memory.
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, preexec_fn=os.getpid)
    assert 1 << 20 < int(child.stdout) < len(ballast)


def test_no_garbage_is_looked_for_while_modules_are_loaded_nor_in_them() -> None:
    before = gc.get_freeze_count()
    try:
        with loading():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
