"""What a person sees of a sweep: which runs go on, how far they are, and how each one ended."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.progress import Level, Progress, Record, duration, message_text, progress_figures

_REFRESH_S = 0.12
_BAR_COLUMNS = 12


class Board:
    """Shows a sweep on stdout: in place on a terminal, else a line for each run that begins or ends.

    Args:
        total: runs of the sweep.
        kept: those that had finished before.
        console: for tests.
    """

    def __init__(self, total: int, kept: int, console: Console | None = None) -> None:
        self._console = console or Console()
        self._total, self._kept = total, kept
        self._began = time.monotonic()
        self._started: dict[str, float] = {}
        self._newest: dict[str, Progress] = {}
        self._ended = self._failed = 0
        # Without rich's own thread: this process goes on to fork.
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._shown = float("-inf")

    def __enter__(self) -> Board:
        if self._kept:
            self._say(f"{self._kept} of {self._total} runs had finished before and are kept")
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.update(Text())
            self._live.stop()

    def display_of(self, run: str) -> RunDisplay:
        """Where the events of a run go."""
        return RunDisplay(self, run)

    def started(self, run: str) -> None:
        """A run begins."""
        self._started[run] = time.monotonic()
        if not self._live:
            self._say(f"{run}: started")
        self._refresh()

    def progressed(self, run: str, progress: Progress) -> None:
        """How far a run is."""
        self._newest[run] = progress
        self._refresh(_REFRESH_S)

    def complained(self, run: str, text: str) -> None:
        """What ends a run, or part of it."""
        self._say(f"{run}: {text}", "bold red")

    def finished(self, run: str, folder: Path) -> None:
        """A run has finished, with results in `folder`."""
        self._end(run, headline(json.loads((folder / "summary.json").read_text())), "")

    def failed(self, run: str, reason: str) -> None:
        """A run ended without results; the first line of the reason is shown now, the rest at the end."""
        self._failed += 1
        self._end(run, f"failed: {reason.splitlines()[0]}", "bold red")

    def _end(self, run: str, words: str, style: str) -> None:
        self._ended += 1
        took = duration(time.monotonic() - self._started.pop(run))
        self._newest.pop(run, None)
        self._say(f"[{self._kept + self._ended}/{self._total}] {run}: {words} ({took})", style)
        self._refresh()

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)

    def _refresh(self, interval_s: float = 0.0) -> None:
        if self._live and time.monotonic() - self._shown >= interval_s:
            self._shown = time.monotonic()
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 1))
        done = self._kept + self._ended
        overall = ProgressBar(total=self._total, completed=done, width=_BAR_COLUMNS)
        table.add_row(Text("sweep", style="bold"), overall, Text(", ".join(self._overall(done))))
        for run in self._started:
            progress = self._newest.get(run)
            figures = progress_figures(progress) if progress else {}
            bar = ProgressBar(
                total=progress.steps if progress else 1, completed=progress.step if progress else 0, width=_BAR_COLUMNS
            )
            known = ("step", "AUC", "leak AUC", "ETA")
            text = ", ".join(f"{name} {figures[name]}" for name in known if name in figures)
            table.add_row(Text(run, overflow="ellipsis", no_wrap=True), bar, Text(text or "starting"))
        return table

    def _overall(self, done: int) -> Iterator[str]:
        yield f"{done}/{self._total} runs"
        if self._failed:
            yield f"{self._failed} failed"
        if self._ended:
            a_run = (time.monotonic() - self._began) / self._ended
            yield f"ETA {duration(a_run * (self._total - done))}"


class RunDisplay:
    """Takes the events of one run; shows its progress and errors, and leaves the rest to the run's own logs."""

    def __init__(self, board: Board, run: str) -> None:
        self._board = board
        self._run = run

    def message(self, party: str, level: Level, text: str) -> None:
        if level == "error":
            self._board.complained(self._run, message_text(party, level, text))

    def listening(self, party: str, address: str) -> None:
        pass

    def progress(self, party: str, progress: Progress) -> None:
        if party == LABEL_PARTY:
            self._board.progressed(self._run, progress)

    def evaluation(self, party: str, record: Record) -> None:
        pass

    def done(self, party: str, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def headline(summary: Mapping[str, Any]) -> str:
    """The main figures of a finished run in a few words: utility, and the worst leak of all attacks."""
    utility = {name: value for name, value in summary["utility"].items() if value is not None}
    name = next((name for name in ("test_auc", "test_accuracy", "test_loss", "train_loss") if name in utility), None)
    words = ["finished"] if name is None else [f"{name.replace('_', ' ')} {utility[name]:.4f}"]
    by_who = [summary["leak"]["audit"], *summary["leak"].get("attacks", {}).values()]
    found = [
        figures["p95"]
        for attacks in by_who
        for layers in attacks.values()
        for figures in layers.values()
        if figures.get("p95") is not None
    ]
    return ", ".join([*words, f"worst leak AUC {max(found):.4f} (p95)"] if found else words)
