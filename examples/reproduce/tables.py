"""What the tables of every study share: groups of the rows of a sweep, and means ± deviation over the seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from pyarrow import parquet

Row = dict[str, Any]
Groups = Callable[[list[Row]], Mapping[str, list[Row]]]


def print_tables(
    folders: Sequence[str], header: Sequence[str], groups: Groups, cells: Callable[[list[Row]], list[str]]
) -> None:
    """Print a Markdown table for each folder of a sweep, a row for each group of its rows."""
    for folder in folders:
        rows = parquet.read_table(Path(folder) / "results.parquet").to_pylist()
        print(f"\n{Path(folder).name}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
        for name, of_group in groups(rows).items():
            print(f"| `{name}` | {' | '.join(cells(of_group))} |")


def spread(values: Sequence[float | None]) -> str:
    """Mean ± deviation of the figures that are known."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    shown = f" ±{pstdev(known):.3f}" if len(known) > 1 and pstdev(known) >= 0.0005 else ""
    return f"{mean(known):.3f}{shown}"
