"""What a party tells about itself: its log, its display, metrics.jsonl and TensorBoard scalars."""

from __future__ import annotations

import json
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from cutlayer.common.displays import finite, make_display
from cutlayer.common.errors import CutlayerError, Interrupted
from cutlayer.common.progress import Display, Level, Progress, Record
from cutlayer.common.scalars import ScalarWriter

__all__ = ["Display", "Progress", "Telemetry", "make_display"]

_SHOW_INTERVAL_S = 0.1


class Telemetry:
    """One party's telemetry; safe to use from several threads.

    Args:
        folder: the party's private folder; `log` in it gets one JSON object a line: time, level, party,
            step where known, text.
        metrics_file: gets one JSON object for each evaluation; an older file is replaced.
        tensorboard: also write evaluations as scalars under `folder`/tensorboard.
    """

    def __init__(
        self,
        party: str,
        folder: Path,
        display: Display,
        *,
        metrics_file: Path | None = None,
        tensorboard: bool = False,
    ) -> None:
        self._party = party
        self._display: Display | None = display
        self._log = open(folder / "log", "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - closed by close()
        self._metrics_file = metrics_file
        self._metrics: TextIO | None = None
        self._scalar_folder = folder / "tensorboard" if tensorboard else None
        self._scalars: ScalarWriter | None = None
        self._step: int | None = None
        self._last_shown = float("-inf")
        self._lock = threading.RLock()

    def __enter__(self) -> Telemetry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; the error that ends the work goes to the log alone, as the process shows it itself."""
        if error is not None:
            self._write_log("error", **_described(error))
        self.close()

    def info(self, text: str) -> None:
        """What a person should know."""
        self._message("info", text)

    def warning(self, text: str) -> None:
        """What a person should look into."""
        self._message("warning", text)

    def error(self, text: str) -> None:
        """What ends the work, or part of it."""
        self._message("error", text)

    def listening(self, address: str) -> None:
        """The party accepts connections at `address`, host:port."""
        self._write_log("info", text=f"listening on {address}")
        self._show(lambda display: display.listening(self._party, address))

    def step(self, progress: Progress) -> None:
        """The newest step; cheap enough for every step."""
        self._step = progress.step
        now = time.monotonic()
        if progress.finished or now - self._last_shown >= _SHOW_INTERVAL_S:
            self._last_shown = now
            self._show(lambda display: display.progress(self._party, progress))

    def evaluation(self, record: Record) -> None:
        """The figures of an evaluation point; `step` and `epoch` among them. Others than finite ones become null."""
        figures = finite(record)
        with self._lock:
            self._write_metrics(figures)
        self._show(lambda display: display.evaluation(self._party, figures))

    def restart(self, records: Sequence[Record]) -> None:
        """The run begins, or goes on where `records` are all its evaluations: the files hold these and no others."""
        with self._lock:
            self._close_figures()
            if self._metrics_file is not None:
                self._metrics_file.unlink(missing_ok=True)
            if self._scalar_folder is not None:
                shutil.rmtree(self._scalar_folder, ignore_errors=True)
            for record in records:
                self._write_metrics(finite(record))

    def done(self, text: str) -> None:
        """The party has finished its work."""
        self._write_log("info", text=text)
        self._show(lambda display: display.done(self._party, text))

    def close(self) -> None:
        """Close the files and the display; a second call does nothing."""
        self._show(lambda display: display.close())
        with self._lock:
            self._display = None
            self._log.close()
            self._close_figures()

    def _close_figures(self) -> None:
        for sink in (self._metrics, self._scalars):
            if sink is not None:
                sink.close()
        self._metrics = self._scalars = None

    def _message(self, level: Level, text: str) -> None:
        self._write_log(level, text=text)
        self._show(lambda display: display.message(self._party, level, text))

    def _show(self, call: Callable[[Display], None]) -> None:
        with self._lock:
            if self._display is not None:
                call(self._display)

    def _write_log(self, level: Level, **fields: Any) -> None:
        step = {} if self._step is None else {"step": self._step}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "level": level, "party": self._party, **step, **fields})
        with self._lock:
            if not self._log.closed:  # a stream may still end after the party has
                self._log.write(line + "\n")

    def _write_metrics(self, figures: Record) -> None:
        if self._metrics_file is not None:
            if self._metrics is None:
                self._metrics = open(self._metrics_file, "w", encoding="utf-8", buffering=1)  # noqa: SIM115
            self._metrics.write(json.dumps(figures, allow_nan=False) + "\n")
        if self._scalar_folder is not None:
            if self._scalars is None:
                self._scalars = ScalarWriter(self._scalar_folder)
            self._scalars.add(int(figures.get("step") or 0), figures)


def _described(error: BaseException) -> dict[str, Any]:
    """What the log keeps of an error: only our own and the system's messages, as others may quote a value."""
    if isinstance(error, CutlayerError | Interrupted | OSError):
        return {"text": str(error)}
    return {"text": type(error).__name__, "traceback": traceback.format_tb(error.__traceback__)}
