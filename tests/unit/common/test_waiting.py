"""common/waiting.py: a person is told of a wait after a while, ever more seldom, and when it is over."""

from __future__ import annotations

import json
import time
from pathlib import Path

from cutlayer.common.displays import PlainDisplay
from cutlayer.common.telemetry import Telemetry
from cutlayer.common.waiting import Wait, WaitingNews


def test_a_wait_says_for_whom_why_how_long_and_for_how_long_still() -> None:
    wait = Wait("lab", "lost at step 7", 600, since=time.monotonic() - 75.2)
    assert str(wait) == "lab (lost at step 7; 1:15 so far, gives up in 8:45)"
    late = Wait("label_party", "not there yet", 60, since=time.monotonic() - 90, name="the label party at host:1")
    assert str(late) == "the label party at host:1 (not there yet; 1:30 so far, gives up in 0:00)"


def test_waits_are_told_ever_more_seldom() -> None:
    clock = 100.0
    news, told = WaitingNews(lambda: clock), []
    while clock < 1000:
        if news.of([Wait("lab", "silent", 9999, since=100.0)]):
            told.append(clock - 100)
        clock += 0.5
    assert told[:7] == [3, 6, 12, 24, 48, 96, 156]
    assert told[-1] - told[-2] == 60


def test_the_end_of_a_wait_is_told_where_the_wait_was() -> None:
    clock = 0.0
    news = WaitingNews(lambda: clock)
    assert news.of([Wait("lab", "silent", 60, since=0.0)]) is None
    assert news.of([]) is None
    clock = 10.0
    assert news.of([Wait("lab", "silent", 60, since=0.0), Wait("bank", "silent", 60, since=9.0)]) is not None
    assert news.told
    clock = 70.0
    assert news.of([]) == "going on after 1:10 of waiting"
    assert news.of([]) is None
    assert not news.told


def test_the_log_has_the_wait_as_fields(tmp_path: Path) -> None:
    with Telemetry("lab", tmp_path, PlainDisplay()) as telemetry:
        telemetry.waiting(())
        telemetry.waiting([Wait("label_party", "lost at step 7", 600, since=time.monotonic() - 75.2)])
        telemetry.waiting(())
        telemetry.reconnected("label_party")
    waiting, going_on, reconnected = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert waiting["event"] == "waiting"
    assert waiting["peers"] == [{"peer": "label_party", "why": "lost at step 7", "seconds": 75, "left": 525}]
    assert waiting["text"].startswith("waiting for label_party (lost at step 7; 1:15 so far")
    assert (going_on["event"], going_on["text"]) == ("going_on", "going on after 1:15 of waiting")
    assert (reconnected["event"], reconnected["peer"]) == ("reconnected", "label_party")
