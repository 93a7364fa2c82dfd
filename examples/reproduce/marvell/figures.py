"""The figures of sweeps as Markdown tables: mean and deviation over the seeds, a row for each defense.

python examples/reproduce/marvell/figures.py sweeps/marvell/default_credit ...
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

from pyarrow import parquet

# What a column of the table shows: attack and layer of the audit or of the party, and which figure of the run.
LEAKS = [("norm", "cut"), ("norm", "first"), ("cosine", "cut"), ("cosine", "first")]
HEADER = [
    *("defense", "seeds", "test AUC", *(f"{attack} {layer}: mean; p95" for attack, layer in LEAKS)),
    *("history", "p95 by chance", "bound of a step", "of the run"),
]

Row = dict[str, Any]


def main(folders: list[str]) -> None:
    """Print a table for each sweep."""
    for folder in folders:
        rows = parquet.read_table(Path(folder) / "results.parquet").to_pylist()
        print(f"\n{Path(folder).name}\n\n| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
        for defense, of_defense in _by(rows, "defense", "defense_options").items():
            print(f"| `{_named(*defense)}` | {' | '.join(_cells(of_defense))} |")


def _by(rows: list[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def _named(defense: str, options: str) -> str:
    return " ".join([defense, *(f"{key} {value}" for key, value in json.loads(options or "{}").items())])


def _cells(rows: list[Row]) -> list[str]:
    runs = [of_run[0] for of_run in _by(rows, "run").values()]
    party = [row for row in rows if row["by"] != "audit"]
    leaks = [[row for row in party if (row["attack"], row["layer"]) == leak] for leak in LEAKS]
    history = [row["leak_final"] for row in party if (row["attack"], row["layer"]) == ("history", "cut")]
    return [
        str(len(runs)),
        _spread([run["test_auc"] for run in runs]),
        *(f"{_spread([r['leak_mean'] for r in found])}; {_spread([r['leak_p95'] for r in found])}" for found in leaks),
        _spread(history),
        _spread([row["leak_null_floor"] for row in leaks[0]]),
        *(_spread([run[f"bound_{of}_leak_auc"] for run in runs]) for of in ("per_step", "whole_run")),
    ]


def _spread(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    spread = f" ±{pstdev(known):.3f}" if len(known) > 1 and pstdev(known) >= 0.0005 else ""
    return f"{mean(known):.3f}{spread}"


if __name__ == "__main__":
    main(sys.argv[1:])
