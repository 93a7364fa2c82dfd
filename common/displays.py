"""Displays for a pipe, a log collector or a supervisor; the one for a terminal is in live_display.py.

They outlive their reader: a run is not lost because what followed it has gone.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import asdict
from typing import Any

from cutlayer.common.process import write_out
from cutlayer.common.progress import (
    Display,
    Level,
    Progress,
    Record,
    evaluation_text,
    message_text,
    progress_text,
)

_PLAIN_INTERVAL_S = 5.0


class PlainDisplay:
    """Lines: messages and evaluations as they come, progress every few seconds and at the last step."""

    def __init__(self, interval_s: float = _PLAIN_INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._last: dict[str, float] = {}

    def message(self, party: str, level: Level, text: str) -> None:
        stream = sys.stdout if level == "info" else sys.stderr
        write_out(stream, message_text(party, level, text) + "\n")

    def listening(self, party: str, address: str) -> None:
        self.message(party, "info", f"listening on {address}")

    def progress(self, party: str, progress: Progress) -> None:
        now = time.monotonic()
        # The first step starts the clock: a run of a second needs no line before its last step.
        if progress.finished or now - self._last.setdefault(party, now) >= self._interval_s:
            self._last[party] = now
            write_out(sys.stdout, progress_text(party, progress) + "\n")

    def evaluation(self, party: str, record: Record) -> None:
        write_out(sys.stdout, evaluation_text(party, record) + "\n")

    def done(self, party: str, text: str) -> None:
        self.message(party, "info", text)

    def close(self) -> None:
        pass


class EventDisplay:
    """One JSON object a line on stdout: `event` is the method of Display, `party` and the rest its arguments."""

    def message(self, party: str, level: Level, text: str) -> None:
        self._emit("message", party, level=level, text=text)

    def listening(self, party: str, address: str) -> None:
        self._emit("listening", party, address=address)

    def progress(self, party: str, progress: Progress) -> None:
        self._emit("progress", party, **{key: value for key, value in asdict(progress).items() if value is not None})

    def evaluation(self, party: str, record: Record) -> None:
        self._emit("evaluation", party, record=finite(record))

    def done(self, party: str, text: str) -> None:
        self._emit("done", party, text=text)

    def close(self) -> None:
        pass

    def _emit(self, event: str, party: str, **fields: Any) -> None:
        # Progress may hold a loss that is not finite; Python's json writes and reads it as NaN.
        write_out(sys.stdout, json.dumps({"event": event, "party": party, **fields}) + "\n")


def show_event(event: dict[str, Any], display: Display) -> None:
    """Show on `display` what an EventDisplay wrote.

    Raises:
        TypeError, AttributeError, KeyError: `event` is not one of EventDisplay's.
    """
    fields = dict(event)
    kind = fields.pop("event")
    party = fields.pop("party")
    if kind == "progress":
        display.progress(party, Progress(**fields))
    elif kind in ("message", "listening", "evaluation", "done"):
        getattr(display, kind)(party, **fields)
    else:
        raise KeyError(kind)


def finite(record: Record) -> dict[str, float | int | None]:
    """`record` with None for what strict JSON cannot hold."""
    return {key: value if value is None or math.isfinite(value) else None for key, value in record.items()}


def make_display(events: bool) -> Display:
    """The display for this process: events for a supervisor, live on a terminal, else plain lines."""
    if events:
        return EventDisplay()
    if not sys.stdout.isatty():
        return PlainDisplay()
    from cutlayer.common.live_display import LiveDisplay  # noqa: PLC0415 - only a terminal needs rich

    return LiveDisplay()
