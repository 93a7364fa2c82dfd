"""cutlayer/local.py: real child processes that end well, fail, are killed, or will not end; and the signals."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from cutlayer import local
from cutlayer.common.errors import ConfigError, UserError

RUN_FILE = """
job: {name: trial, epochs: 1, batch_size: 4, cut_layer: {width: 2}, parties: [lab, bank]}
label_party: {data: {source: nothing}, threads: 3, listen: "LISTEN"}
nonlabel_parties:
  lab: {data: {source: nothing}}
  bank: {data: {source: nothing}, threads: 2}
"""

# What each party does is the last word of its command. It leaves its arguments and environment in its folder.
PARTY = """
import json, os, signal, sys, time
from pathlib import Path
how, options = sys.argv[1], sys.argv[2:]
name = options[options.index("--name") + 1] if "--name" in options else "label_party"
out = Path(options[options.index("--out") + 1])
(out / name).mkdir(exist_ok=True)
environment = {key: os.environ.get(key) for key in ("OMP_NUM_THREADS", "CUTLAYER_ID_SECRET")}
(out / name / "start.json").write_text(json.dumps({"options": options, "pid": os.getpid(), **environment}))

def emit(event, **fields):
    print(json.dumps({"event": event, "party": name, **fields}), flush=True)

def on_signal(number, frame):
    print(f"cutlayer: {name} stopped by {signal.Signals(number).name}", file=sys.stderr)
    sys.exit(128 + number)

def ignore(number, frame):
    emit("message", level="info", text=f"ignores {number}")

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, ignore if how == "stubborn" else on_signal)
if name == "label_party" and how != "refuse":
    emit("listening", address=os.environ.get("ADDRESS", "127.0.0.1:4321"))
if how == "finish":
    print("a word from a print()", flush=True)
    print("a warning", file=sys.stderr)
    figures = {"pid": os.getpid(), "peak_rss_bytes": 1000, "seconds": 1.5}
    (out / name / "party.json").write_text(json.dumps(figures))
    if name == "label_party":
        while not all((out / party / "party.json").exists() for party in ("lab", "bank")):
            time.sleep(0.01)
        summary = {
            "job": "trial", "task": "binary", "defense": {"name": "none"}, "utility": {"test_auc": 0.75},
            "leak": {"audit": {"norm": {"cut": {"mean": 0.6, "p95": 0.7, "max": 0.8}}}}, "bound": None,
            "steps": 3, "epochs": 1, "seconds": 1.5, "samples_per_second": 10.0, "bytes": {"activations": 12345},
        }
        (out / "summary.json").write_text(json.dumps(summary))
    emit("done", text="finished")
elif how in ("fail", "refuse"):
    print(f"cutlayer: {name}: no such column\\nwrite another", file=sys.stderr)
    sys.exit(2)
elif how == "lost":
    print("cutlayer: the label party ended the session", file=sys.stderr)
    sys.exit(1)
elif how == "late":
    time.sleep(0.5)
    sys.exit(2)
elif how == "crash":
    print("cutlayer: internal error, please report: lab: ZeroDivisionError", file=sys.stderr)
    sys.exit(1)
elif how == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
else:
    emit("message", level="info", text="is up")
    while True:
        time.sleep(0.01)
"""


@pytest.fixture
def run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CUTLAYER_ID_SECRET", raising=False)
    (tmp_path / "party.py").write_text(PARTY)
    path = tmp_path / "run.yaml"
    path.write_text(RUN_FILE.replace("LISTEN", "127.0.0.1:0"))
    return path


def commands(**how: str) -> Callable[[str], list[str]]:
    """Starts a party that does what `how` says for its name, by default: finish."""
    return lambda name: [sys.executable, "-S", "party.py", how.get(name, "finish")]


def started(folder: Path, name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / name / "start.json").read_text())
    return found


def alive(folder: Path) -> list[str]:
    """The parties in `folder` that still run."""
    names = []
    for file in folder.glob("*/start.json"):
        pid = json.loads(file.read_text())["pid"]
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            names.append(file.parent.name)
    return names


def test_every_party_is_started_as_told_and_the_results_are_shown(
    run_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert local.run(run_file, tmp_path / "out", command=commands()) == 0
    out, err = capsys.readouterr()
    assert "label_party: listening on 127.0.0.1:4321" in out
    assert "lab: a word from a print()" in out
    assert "lab: finished" in out
    assert "test auc 0.7500" in out
    assert "activations 12.3 kB" in out
    assert err == ""
    folder = tmp_path / "out"
    common = [str(run_file), "--out", str(folder), "--events"]
    label, lab, bank = (started(folder, name) for name in ("label_party", "lab", "bank"))
    assert label["options"] == common
    assert lab["options"] == [*common, "--name", "lab", "--connect", "127.0.0.1:4321"]
    assert [party["OMP_NUM_THREADS"] for party in (label, lab, bank)] == ["3", "1", "2"]
    secrets = {party["CUTLAYER_ID_SECRET"] for party in (label, lab, bank)}
    assert len(secrets) == 1
    assert len(str(secrets.pop())) == 64
    summary = json.loads((folder / "summary.json").read_text())
    assert {name: party["pid"] for name, party in summary["parties"].items()} == {
        "label_party": label["pid"],
        "lab": lab["pid"],
        "bank": bank["pid"],
    }


def test_a_secret_that_somebody_gave_is_not_replaced(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTLAYER_ID_SECRET", "ours")
    assert local.run(run_file, Path("by-environment"), command=commands()) == 0
    assert started(Path("by-environment"), "lab")["CUTLAYER_ID_SECRET"] == "ours"
    monkeypatch.delenv("CUTLAYER_ID_SECRET")
    run_file.write_text(run_file.read_text().replace("bank: {", "bank: {id_secret: theirs, "))
    assert local.run(run_file, Path("by-section"), command=commands()) == 0
    assert started(Path("by-section"), "lab")["CUTLAYER_ID_SECRET"] is None


@pytest.mark.parametrize(
    ("address", "reached"), [("0.0.0.0:5", "127.0.0.1:5"), ("[::]:5", "[::1]:5"), ("10.0.0.1:5", "10.0.0.1:5")]
)
def test_a_wildcard_address_is_reached_over_loopback(
    run_file: Path, monkeypatch: pytest.MonkeyPatch, address: str, reached: str
) -> None:
    monkeypatch.setenv("ADDRESS", address)
    assert local.run(run_file, Path("out"), command=commands()) == 0
    options = started(Path("out"), "lab")["options"]
    assert isinstance(options, list)
    assert options[-1] == reached


def test_a_party_that_fails_ends_the_run_with_its_words_once(
    run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = commands(label_party="serve", lab="fail", bank="serve")
    assert local.run(run_file, Path("out"), command=how, grace_s=0.2) == 2
    out, err = capsys.readouterr()
    assert err == (
        "cutlayer: lab failed with exit status 2; its log is out/lab/log\nlab: no such column\nwrite another\n"
    )
    assert "no such column" not in out
    assert alive(Path("out")) == []


def test_the_users_mistake_is_the_status_whoever_ends_first(run_file: Path) -> None:
    for label_party, lab in (("late", "lost"), ("lost", "late")):
        folder = Path(f"{label_party}-{lab}")
        how = commands(label_party=label_party, lab=lab, bank="serve")
        assert local.run(run_file, folder, command=how, grace_s=5) == 2
        assert alive(folder) == []


def test_verbose_passes_words_on_as_they_come_and_does_not_repeat_them(
    run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = commands(label_party="serve", lab="fail", bank="serve")
    assert local.run(run_file, Path("out"), verbose=True, command=how, grace_s=0.2) == 2
    err = capsys.readouterr().err
    assert err.count("no such column") == 1
    assert "lab: cutlayer: lab: no such column\n" in err
    assert "--verbose" in str(started(Path("out"), "lab")["options"])


def test_others_are_not_started_when_the_label_party_does_not_come_up(
    run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert local.run(run_file, Path("out"), command=commands(label_party="refuse")) == 2
    assert "label_party failed with exit status 2" in capsys.readouterr().err
    assert [path.name for path in Path("out").iterdir() if path.is_dir()] == ["label_party"]


def test_a_party_that_is_killed_again_and_again_ends_the_run_and_is_named(
    run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = commands(label_party="serve", lab="killed", bank="serve")
    assert local.run(run_file, Path("out"), command=how, grace_s=0.2) == 1
    out, err = capsys.readouterr()
    assert err == (
        "cutlayer: lab was killed by SIGKILL after it had been started again 3 times; its log is out/lab/log\n"
    )
    again = [f"lab: was killed by SIGKILL; starting it again ({n} of 3); its log is out/lab/log" for n in (1, 2, 3)]
    assert [line for line in out.splitlines() if "starting it again" in line] == again
    assert alive(Path("out")) == []


def test_who_is_not_to_be_started_again_is_not(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_file.write_text(run_file.read_text() + "restarts: 0\n")
    how = commands(label_party="serve", lab="killed", bank="serve")
    assert local.run(run_file, Path("out"), command=how, grace_s=0.2) == 1
    assert capsys.readouterr().err == "cutlayer: lab was killed by SIGKILL; its log is out/lab/log\n"


def test_an_internal_error_is_an_accident_and_a_mistake_of_the_user_is_not(
    run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for how, restarts in (("crash", 3), ("fail", 0)):
        local.run(run_file, Path(how), command=commands(label_party="serve", lab=how, bank="serve"), grace_s=0.2)
        assert capsys.readouterr().out.count("starting it again") == restarts


def test_a_party_that_ignores_sigterm_is_killed(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    how = commands(label_party="stubborn", lab="killed", bank="serve")
    before = time.monotonic()
    assert local.run(run_file, Path("out"), command=how, grace_s=0.3) == 1
    assert time.monotonic() - before >= 0.6
    assert f"label_party: ignores {int(signal.SIGTERM)}" in capsys.readouterr().out
    assert alive(Path("out")) == []


def test_a_results_folder_is_found_and_never_reused(run_file: Path) -> None:
    for _ in range(3):
        assert local.run(run_file, None, command=commands()) == 0
    assert sorted(os.listdir("runs")) == ["trial", "trial-2", "trial-3"]
    (Path("runs/foreign/something")).mkdir(parents=True)
    with pytest.raises(UserError, match="--out runs/foreign: not empty"):
        local.run(run_file, Path("runs/foreign"), command=commands())
    (Path("runs") / "empty").mkdir()
    assert local.run(run_file, Path("runs/empty"), command=commands()) == 0


@pytest.mark.parametrize(("section", "key"), [("  lab:", "nonlabel_parties.lab"), ("label_party:", "label_party")])
def test_a_file_without_a_section_is_refused_before_anything_starts(run_file: Path, section: str, key: str) -> None:
    lines = run_file.read_text().splitlines()
    run_file.write_text("\n".join(line for line in lines if not line.startswith(section)))
    with pytest.raises(ConfigError, match=rf"run.yaml: the file has no `{key}` section"):
        local.run(run_file, Path("out"), command=commands())
    assert not Path("out").exists()


SUPERVISOR = """
import sys
from pathlib import Path
from cutlayer import local
how = dict(word.split("=") for word in sys.argv[1:])
command = lambda name: [sys.executable, "-S", "party.py", how[name]]
sys.exit(local.run(Path("run.yaml"), Path("out"), command=command, grace_s=0.3))
"""


@contextmanager
def supervisor(how: str) -> Iterator[subprocess.Popen[str]]:
    """A supervisor as a process of its own, whose three parties are up and all do `how`."""
    behaviour = [f"{name}={how}" for name in ("label_party", "lab", "bank")]
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, *behaviour],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(local.__file__).parents[1])},
    ) as process:
        assert process.stdout is not None
        for _ in range(4):  # one listens, three are up
            assert process.stdout.readline()
        yield process


@pytest.mark.usefixtures("run_file")
@pytest.mark.parametrize(("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("how", ["serve", "stubborn"])
def test_a_signal_ends_all_parties_and_leaves_no_orphan(how: str, signum: signal.Signals, status: int) -> None:
    with supervisor(how) as process:
        process.send_signal(signum)
        _, err = process.communicate()
    assert process.returncode == status
    goes_on = "what was written so far is in out, and the same command goes on with --out"
    assert err == f"cutlayer: stopped by {signum.name}; {goes_on}\n"
    assert alive(Path("out")) == []


@pytest.mark.usefixtures("run_file")
def test_a_second_signal_kills_at_once() -> None:
    with supervisor("stubborn") as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        for _ in range(3):
            assert "ignores 2" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    assert alive(Path("out")) == []


@pytest.mark.usefixtures("run_file")
def test_parties_end_when_their_supervisor_is_killed() -> None:
    with supervisor("serve") as process:
        handles = [os.pidfd_open(json.loads(file.read_text())["pid"]) for file in Path("out").glob("*/start.json")]
        process.kill()
        process.wait()
    for handle in handles:
        assert select.select([handle], [], [], 10)[0], "a party outlived its supervisor"
        os.close(handle)


@pytest.mark.usefixtures("run_file")
def test_a_reader_that_has_gone_does_not_end_the_run() -> None:
    with supervisor("serve") as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate()
    assert process.returncode == 143
    assert "Traceback" not in err


def test_no_descriptor_is_left_open(run_file: Path) -> None:
    local.run(run_file, Path("first"), command=commands(lab="killed"), grace_s=0.1)
    before = len(os.listdir("/proc/self/fd"))
    local.run(run_file, Path("second"), command=commands(lab="killed"), grace_s=0.1)
    assert len(os.listdir("/proc/self/fd")) == before
