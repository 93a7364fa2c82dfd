"""The display for a terminal: messages scroll, and one line a party below them follows the training."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cutlayer.common.progress import Level, Progress, Record, evaluation_text, message_text, progress_figures

_STYLES: dict[Level, str] = {"info": "", "warning": "yellow", "error": "bold red"}
_BAR_COLUMNS = 8


class LiveDisplay:
    """Progress in place, one row a party, with messages and evaluations above it.

    Args:
        console: of stdout, which must be a terminal; for tests any.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._newest: dict[str, Progress] = {}
        self._live = Live(
            console=self._console,
            get_renderable=self._table,
            refresh_per_second=8,
            redirect_stderr=sys.stderr.isatty(),
        )

    def message(self, party: str, level: Level, text: str) -> None:
        self._console.print(Text(message_text(party, level, text), style=_STYLES[level]), soft_wrap=True)

    def listening(self, party: str, address: str) -> None:
        self.message(party, "info", f"listening on {address}")

    def progress(self, party: str, progress: Progress) -> None:
        self._newest[party] = progress
        if not self._live.is_started:
            self._live.start()

    def evaluation(self, party: str, record: Record) -> None:
        self._console.print(Text(evaluation_text(party, record)), soft_wrap=True)

    def done(self, party: str, text: str) -> None:
        self.message(party, "info", text)

    def close(self) -> None:
        self._live.stop()

    def _table(self) -> Table:
        newest = dict(self._newest)  # the refresh thread reads while others write
        figures = {party: progress_figures(progress) for party, progress in newest.items()}
        headings = list(dict.fromkeys(heading for row in figures.values() for heading in row))
        table = Table("", "", *headings, box=None, header_style="dim", padding=(0, 1, 0, 0))
        for party, progress in newest.items():
            bar = ProgressBar(total=progress.steps, completed=progress.step, width=_BAR_COLUMNS)
            table.add_row(Text(party), bar, *(Text(figures[party].get(heading, "")) for heading in headings))
        return table
