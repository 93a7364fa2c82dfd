"""common/telemetry.py and the displays: what is written, shown, throttled, and understood by a supervisor."""

from __future__ import annotations

import io
import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from cutlayer.common.displays import EventDisplay, PlainDisplay, make_display, show_event
from cutlayer.common.errors import PeerError
from cutlayer.common.live_display import LiveDisplay
from cutlayer.common.progress import Level, Record, duration, evaluation_text, progress_text
from cutlayer.common.telemetry import Progress, Telemetry

FULL = Progress(
    step=120,
    steps=180,
    epoch=3,
    epochs=20,
    loss=0.43217,
    samples_per_second=2834.2,
    eta_seconds=72.4,
    leak={"norm": 0.55, "cosine": 0.61},
    chance={"norm": 0.57, "cosine": 0.58},
    bound={"step": 0.6, "run": 0.72},
    exact_steps=3,
    test_auc=0.98765,
)
RECORD: Record = {"step": 180, "epoch": 20, "test_auc": 0.5, "leak_norm_max": 1.0, "defense_lab_u": 3.0, "gone": None}


class Kept:
    """A display that keeps what it was given."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def message(self, party: str, level: Level, text: str) -> None:
        self.calls.append(("message", party, level, text))

    def listening(self, party: str, address: str) -> None:
        self.calls.append(("listening", party, address))

    def progress(self, party: str, progress: Progress) -> None:
        self.calls.append(("progress", party, progress))

    def evaluation(self, party: str, record: Record) -> None:
        self.calls.append(("evaluation", party, record))

    def done(self, party: str, text: str) -> None:
        self.calls.append(("done", party, text))

    def close(self) -> None:
        self.calls.append(("close",))


def log_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def test_messages_go_to_the_log_and_the_display(tmp_path: Path) -> None:
    display = Kept()
    with Telemetry("lab", tmp_path, display) as telemetry:
        telemetry.info("one")
        telemetry.step(Progress(step=7, steps=9))
        telemetry.warning("two")
        telemetry.error("three")
        telemetry.listening("127.0.0.1:5")
        telemetry.done("four")
    log = log_of(tmp_path)
    assert [(entry["level"], entry["party"], entry.get("step"), entry["text"]) for entry in log] == [
        ("info", "lab", None, "one"),
        ("warning", "lab", 7, "two"),
        ("error", "lab", 7, "three"),
        ("info", "lab", 7, "listening on 127.0.0.1:5"),
        ("info", "lab", 7, "four"),
    ]
    assert all(entry["time"].endswith("+00:00") for entry in log)
    assert display.calls == [
        ("message", "lab", "info", "one"),
        ("progress", "lab", Progress(step=7, steps=9)),
        ("message", "lab", "warning", "two"),
        ("message", "lab", "error", "three"),
        ("listening", "lab", "127.0.0.1:5"),
        ("done", "lab", "four"),
        ("close",),
    ]


def test_the_log_of_an_earlier_run_is_kept(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with Telemetry("lab", tmp_path, Kept()) as telemetry:
            telemetry.info(text)
    assert [entry["text"] for entry in log_of(tmp_path)] == ["first", "second"]


def test_the_error_that_ends_the_work_is_logged_not_shown(tmp_path: Path) -> None:
    display = Kept()
    with pytest.raises(PeerError), Telemetry("lab", tmp_path, display):
        raise PeerError("label_party is gone")
    assert log_of(tmp_path)[0]["text"] == "label_party is gone"
    assert display.calls == [("close",)]


def test_an_internal_error_is_logged_with_its_traceback_but_without_values(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="patient 7"), Telemetry("lab", tmp_path, Kept()):
        raise ValueError(f"patient {3 + 4}")
    (entry,) = log_of(tmp_path)
    assert entry["text"] == "ValueError"
    assert "test_telemetry.py" in entry["traceback"][0]
    assert "patient 7" not in json.dumps(entry)


def test_many_steps_are_shown_seldom_but_the_last_always(tmp_path: Path) -> None:
    display = Kept()
    with Telemetry("lab", tmp_path, display) as telemetry:
        for step in range(1, 1001):
            telemetry.step(Progress(step=step, steps=1000))
    shown = [call[2].step for call in display.calls if call[0] == "progress"]
    assert shown[0] == 1
    assert shown[-1] == 1000
    assert len(shown) < 500


def test_evaluations_go_to_strict_json_and_tensorboard(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("of an earlier run\n")
    records: list[Record] = [
        {"step": 9, "test_auc": 0.5, "gone": None},
        {"step": 18, "test_auc": 0.75, "loss": float("nan")},
    ]
    with Telemetry("lab", tmp_path, Kept(), metrics_file=metrics, tensorboard=True) as telemetry:
        for record in records:
            telemetry.evaluation(record)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert lines == [records[0], {"step": 18, "test_auc": 0.75, "loss": None}]
    (file,) = (tmp_path / "tensorboard").iterdir()
    events = list(EventFileLoader(str(file)).Load())
    scalars = [(event.step, value.tag, value.tensor.float_val[0]) for event in events for value in event.summary.value]
    assert scalars == [(9, "step", 9), (9, "test_auc", 0.5), (18, "step", 18), (18, "test_auc", 0.75)]


@pytest.mark.parametrize("display", [EventDisplay, PlainDisplay])
def test_a_display_whose_reader_has_gone_ends_nothing(
    display: type[EventDisplay] | type[PlainDisplay], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", pipe)
        with Telemetry("lab", tmp_path, display()) as telemetry:
            telemetry.info("one")
            telemetry.evaluation({"step": 1})
            telemetry.info("two")
    assert [entry["text"] for entry in log_of(tmp_path)] == ["one", "two"]


def test_threads_do_not_mix_lines(tmp_path: Path) -> None:
    with Telemetry("lab", tmp_path, Kept(), metrics_file=tmp_path / "metrics.jsonl") as telemetry:

        def talk() -> None:
            for step in range(100):
                telemetry.info("x" * 5000)
                telemetry.evaluation({"step": step})

        threads = [threading.Thread(target=talk) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(log_of(tmp_path)) == 400
    assert len([json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]) == 400


def test_what_comes_after_the_end_is_dropped(tmp_path: Path) -> None:
    telemetry = Telemetry("lab", tmp_path, Kept())
    telemetry.close()
    telemetry.info("too late")
    telemetry.close()
    assert log_of(tmp_path) == []


figure = st.none() | st.floats(allow_nan=False)
progresses = st.builds(
    Progress,
    step=st.integers(1, 10**9),
    steps=st.integers(1, 10**9),
    epoch=st.none() | st.integers(1, 999),
    epochs=st.none() | st.integers(1, 999),
    loss=figure,
    samples_per_second=figure,
    eta_seconds=st.none() | st.floats(0, 1e9),
    leak=st.none() | st.dictionaries(st.text(), st.floats(0, 1)),
    chance=st.none() | st.dictionaries(st.text(), st.floats(0, 1)),
    bound=st.none() | st.fixed_dictionaries({"step": st.floats(0, 1), "run": st.floats(0, 1)}),
    exact_steps=st.none() | st.integers(1, 10**9),
    test_auc=st.none() | st.floats(0, 1),
)
records = st.dictionaries(st.text(), st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False))


def through_events(tell: Any) -> list[tuple[Any, ...]]:
    """What a supervisor shows of what a party tells."""
    kept, pipe = Kept(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", pipe)
        tell(EventDisplay())
    for line in pipe.getvalue().splitlines():
        show_event(json.loads(line), kept)
    return kept.calls


@given(progress=progresses, record=records, text=st.text())
def test_a_supervisor_shows_exactly_what_the_party_told(progress: Progress, record: Record, text: str) -> None:
    def tell(display: EventDisplay) -> None:
        display.message("lab", "warning", text)
        display.listening("lab", text)
        display.progress("lab", progress)
        display.evaluation("lab", record)
        display.done("lab", text)

    assert through_events(tell) == [
        ("message", "lab", "warning", text),
        ("listening", "lab", text),
        ("progress", "lab", progress),
        ("evaluation", "lab", record),
        ("done", "lab", text),
    ]


@pytest.mark.parametrize(
    "event", [{"event": "close", "party": "lab"}, {"party": "lab"}, {"event": "progress", "party": "lab", "other": 1}]
)
def test_what_is_no_event_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError)):
        show_event(event, Kept())


def test_progress_as_a_line() -> None:
    assert progress_text("label_party", FULL) == (
        "label_party: step 120/180, epoch 3/20, loss 0.4322, AUC 0.988, leak (flipped, chance) 0.61 (0.61, 0.58), "
        "bound (run) 0.60 (0.72), as is 3, samples/s 2,834, ETA 1:12"
    )
    assert progress_text("lab", Progress(step=1, steps=2)) == "lab: step 1/2"
    turned = Progress(step=1, steps=2, leak={"norm": 0.55, "mean": 0.25})
    assert progress_text("lab", turned) == "lab: step 1/2, leak (flipped, chance) 0.55 (0.75)"


def test_an_evaluation_line_has_the_main_figures() -> None:
    assert evaluation_text("label_party", RECORD) == "label_party: step 180, epoch 20, test_auc 0.5"
    leak = {"leak_norm_mean": 0.4, "leak_norm_mean_flipped": 0.6, "leak_norm_pooled_flipped": 0.7}
    assert evaluation_text("label_party", leak) == "label_party: leak_norm_mean 0.4 (flipped 0.6)"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3600, "1:00:00"), (90061, "25:01:01")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(interval_s=0)
    display.message("lab", "info", "a [bold]line[/bold]")
    display.message("lab", "warning", "look")
    display.listening("label_party", "127.0.0.1:5")
    display.progress("lab", Progress(step=1, steps=2))
    display.evaluation("lab", {"step": 1, "test_auc": 0.25})
    display.done("lab", "finished")
    display.close()
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "lab: a [bold]line[/bold]",
        "label_party: listening on 127.0.0.1:5",
        "lab: step 1/2",
        "lab: step 1, test_auc 0.25",
        "lab: finished",
    ]
    assert err == "lab: warning: look\n"


def test_plain_progress_is_rare_and_each_party_has_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    display = PlainDisplay(interval_s=3600)
    for step in range(1, 101):
        display.progress("lab", Progress(step=step, steps=100))
        display.progress("bank", Progress(step=step, steps=200))
    assert capsys.readouterr().out == "lab: step 100/100\n"


def test_the_live_display_shows_messages_and_the_newest_figures() -> None:
    terminal = io.StringIO()
    display = LiveDisplay(Console(file=terminal, force_terminal=True, width=100, color_system=None))
    display.listening("label_party", "127.0.0.1:5")
    display.progress("label_party", replace(FULL, step=1))
    display.progress("label_party", FULL)
    display.progress("lab", Progress(step=119, steps=180))
    display.message("lab", "warning", "a [bold]line[/bold]")
    display.evaluation("label_party", RECORD)
    display.close()
    shown = terminal.getvalue()
    for text in ("listening on 127.0.0.1:5", "lab: warning: a [bold]line[/bold]", "label_party: step 180, epoch 20"):
        assert text in shown
    last = shown[shown.rindex("samples/s") :]
    for text in ("120/180", "3/20", "0.4322", "0.988", "0.61 (0.61, 0.58)", "0.60 (0.72)", "2,834", "1:12", "119/180"):
        assert text in last


def test_a_live_display_that_showed_nothing_leaves_nothing() -> None:
    terminal = io.StringIO()
    LiveDisplay(Console(file=terminal, force_terminal=True)).close()
    assert terminal.getvalue() == ""


def test_the_display_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_display(True), EventDisplay)
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert isinstance(make_display(False), PlainDisplay)
    leader, follower = os.openpty()
    with open(follower, "w") as terminal, open(leader):
        monkeypatch.setattr("sys.stdout", terminal)
        assert isinstance(make_display(False), LiveDisplay)
