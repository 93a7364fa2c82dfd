"""What a party tells about itself: its log, its display, metrics.jsonl, TensorBoard scalars and figures to scrape."""

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
from typing import TYPE_CHECKING, Any

from cutlayer.common.displays import finite, make_display
from cutlayer.common.errors import CutlayerError, Interrupted, StorageError
from cutlayer.common.files import write_atomically, writing
from cutlayer.common.line_file import LineFile
from cutlayer.common.metrics import Metrics
from cutlayer.common.progress import Display, Level, Progress, Record
from cutlayer.common.waiting import Wait, WaitingNews

if TYPE_CHECKING:  # at run time where there is something to write: to load TensorBoard delays a start
    from cutlayer.common.scalars import ScalarWriter

__all__ = ["Display", "Progress", "Telemetry", "make_display"]

_SHOW_INTERVAL_S = 0.1
_TELL_BACK_INTERVAL_S = 5.0


class Telemetry:
    """One party's telemetry; safe to use from several threads.

    Log and scalars are a convenience: where they cannot be written the party says so, once, and goes on. The metrics
    file is a result.

    Args:
        folder: the party's private folder; `log` in it gets one JSON object a line: time, level, party, event,
            step where known, text, and what else an event has; see docs/operations.md.
        metrics_file: gets one JSON object for each evaluation; an older file is replaced.
        tensorboard: also write evaluations as scalars under `folder`/tensorboard.
        prometheus: takes the figures that can be scraped.

    Raises:
        StorageError: the log cannot be opened; later: the metrics file cannot be written.
    """

    def __init__(
        self,
        party: str,
        folder: Path,
        display: Display,
        *,
        metrics_file: Path | None = None,
        tensorboard: bool = False,
        prometheus: Metrics | None = None,
    ) -> None:
        self._party = party
        self.prometheus = prometheus or Metrics()
        self._waiting = WaitingNews()
        self._display: Display | None = display
        self._log = LineFile(folder / "log")
        self._unwritten: set[Path] = set()
        self._metrics_file = metrics_file
        self._metrics: LineFile | None = None
        self._scalar_folder = folder / "tensorboard" if tensorboard else None
        self._scalars: ScalarWriter | None = None
        self._step: int | None = None
        self._last_shown = float("-inf")
        self._told_back: dict[str, float] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> Telemetry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; the error that ends the work goes to the log alone, as the process shows it itself."""
        if error is not None:
            self._write_log("error", "end", **_described(error))
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
        self._write_log("info", "listening", text=f"listening on {address}")
        self._show(lambda display: display.listening(self._party, address))

    def waiting(self, waits: Sequence[Wait]) -> None:
        """The party waits for these; for nobody any more, where there are none. To be called while it lasts."""
        if not waits and not self._waiting.told:
            return
        with self._lock:
            text = self._waiting.of(waits)
            self.prometheus.waiting(waits if self._waiting.told else ())
        if text is None:
            return
        peers = [{"peer": w.peer, "why": w.why, "seconds": round(w.seconds), "left": round(w.left)} for w in waits]
        self._message("info", text, "waiting" if waits else "going_on", **({"peers": peers} if peers else {}))

    def reconnected(self, peer: str) -> None:
        """A party that was lost is back; who comes and goes all the time does not fill the log."""
        self.prometheus.reconnected(peer)
        now = time.monotonic()
        if now - self._told_back.get(peer, float("-inf")) >= _TELL_BACK_INTERVAL_S:
            self._told_back[peer] = now
            self._message("info", f"{peer} is back", "reconnected", peer=peer)

    def step(self, progress: Progress) -> None:
        """The newest step; cheap enough for every step."""
        self._step = progress.step
        self.prometheus.step(progress)
        now = time.monotonic()
        if progress.finished or now - self._last_shown >= _SHOW_INTERVAL_S:
            self._last_shown = now
            self._show(lambda display: display.progress(self._party, progress))

    def evaluation(self, record: Record) -> None:
        """The figures of an evaluation point; `step` and `epoch` among them. Others than finite ones become null."""
        figures = finite(record)
        with self._lock:
            self._write_metrics(figures)
            self._write_scalars(figures)
        self.prometheus.evaluation(figures)
        self._show(lambda display: display.evaluation(self._party, figures))

    def restart(self, records: Sequence[Record]) -> None:
        """The run begins, or goes on where `records` are all its evaluations: the files hold these and no others."""
        with self._lock:
            self._close_figures()
            figures = [finite(record) for record in records]
            if self._metrics_file is not None:
                self._metrics = self._new_metrics(self._metrics_file, figures)
            if self._scalar_folder is not None:
                shutil.rmtree(self._scalar_folder, ignore_errors=True)
            for one in figures:
                self._write_scalars(one)

    def sync(self) -> None:
        """The metrics are safe on the disk when this returns."""
        with self._lock:
            if self._metrics is not None:
                self._metrics.sync()

    def done(self, text: str) -> None:
        """The party has finished its work."""
        self._write_log("info", "done", text=text)
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

    def _message(self, level: Level, text: str, event: str = "message", **fields: Any) -> None:
        self._write_log(level, event, text=text, **fields)
        self._show(lambda display: display.message(self._party, level, text))

    def _show(self, call: Callable[[Display], None]) -> None:
        with self._lock:
            if self._display is not None:
                call(self._display)

    def _write_log(self, level: Level, event: str, **fields: Any) -> None:
        step = {} if self._step is None else {"step": self._step}
        now = datetime.now(UTC).isoformat(timespec="milliseconds")  # noqa: TID251 - for people
        line = json.dumps({"time": now, "level": level, "party": self._party, "event": event, **step, **fields})
        with self._lock:
            try:
                self._log.write(line)  # nothing once closed: a stream may still end after the party has
            except StorageError as error:
                self._do_without(self._log.path, error)

    def _write_metrics(self, figures: Record) -> None:
        if self._metrics_file is not None:
            if self._metrics is None:
                self._metrics = self._new_metrics(self._metrics_file, [])
            self._metrics.write(_line(figures))

    @staticmethod
    def _new_metrics(path: Path, figures: Sequence[Record]) -> LineFile:
        write_atomically(path, "".join(f"{_line(one)}\n" for one in figures))
        return LineFile(path)

    def _write_scalars(self, figures: Record) -> None:
        folder = self._scalar_folder
        if folder is None:
            return
        try:
            with writing(folder):
                if self._scalars is None:
                    self._scalars = _scalar_writer(folder)
                self._scalars.add(int(figures.get("step") or 0), figures)
        except StorageError as error:
            self._scalar_folder = None  # a part of a record may be in the file, and nothing is read after that
            self._do_without(folder, error)

    def _do_without(self, path: Path, error: StorageError) -> None:
        """Say, once, that a convenience is gone."""
        if path not in self._unwritten:
            self._unwritten.add(path)
            text = f"goes on without {path}, which cannot be written: {error.__cause__}"
            self._show(lambda display: display.message(self._party, "warning", text))


def _scalar_writer(folder: Path) -> ScalarWriter:
    from cutlayer.common.scalars import ScalarWriter  # noqa: PLC0415 - see above

    return ScalarWriter(folder)


def _line(figures: Record) -> str:
    return json.dumps(figures, allow_nan=False)


def _described(error: BaseException) -> dict[str, Any]:
    """What the log keeps of an error: only our own and the system's messages, as others may quote a value."""
    if isinstance(error, CutlayerError | Interrupted | OSError):
        return {"text": str(error)}
    return {"text": type(error).__name__, "traceback": traceback.format_tb(error.__traceback__)}
