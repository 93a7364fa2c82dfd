"""The figures of sweeps as Markdown tables: mean and deviation over the seeds, a row for each defense.

python examples/reproduce/marvell/figures.py sweeps/marvell/default_credit ...
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tables import Row, print_tables, spread  # noqa: E402

# What a column of the table shows: attack and layer of the audit or of the party, and which figure of the run.
LEAKS = [("norm", "cut"), ("norm", "first"), ("cosine", "cut"), ("cosine", "first")]
HEADER = [
    *("defense", "seeds", "test AUC", *(f"{attack} {layer}: mean; p95" for attack, layer in LEAKS)),
    *("history", "p95 by chance", "bound of a step", "of the run"),
]


def _defenses(rows: list[Row]) -> dict[str, list[Row]]:
    return {_named(*defense): found for defense, found in _by(rows, "defense", "defense_options").items()}


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
        spread([run["test_auc"] for run in runs]),
        *(f"{spread([r['leak_mean'] for r in found])}; {spread([r['leak_p95'] for r in found])}" for found in leaks),
        spread(history),
        spread([row["leak_null_floor"] for row in leaks[0]]),
        *(spread([run[f"bound_{of}_leak_auc"] for run in runs]) for of in ("per_step", "whole_run")),
    ]


if __name__ == "__main__":
    print_tables(sys.argv[1:], HEADER, _defenses, _cells)
