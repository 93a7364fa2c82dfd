"""The figures of sweeps as Markdown tables: mean and deviation over the seeds, a row for each setting.

python examples/reproduce/gafm/figures.py sweeps/gafm/spambase ...
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tables import Row, print_tables, spread  # noqa: E402

ATTACKS = ("norm", "mean", "median")
TRIED = ("mean", "median", "neighbours")  # by a party
HEADER = [
    *("setting", "seeds", "test AUC", "least", "inverted"),
    *(f"{attack}: epoch, flipped" for attack in ATTACKS),
    *(f"{attack}: batches, flipped" for attack in ATTACKS),
    "by a party, epoch: mean, median",
    "by a party, batches: neighbours",
]


def _settings(rows: list[Row]) -> dict[str, list[Row]]:
    """By what is varied but the seed."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        varied = [str(value) for axis, value in row.items() if axis.startswith("grid.") and axis != "grid.job.seed"]
        groups[" ".join(varied) or row["defense"]].append(row)
    return groups


def _cells(rows: list[Row]) -> list[str]:
    runs = {row["run"]: row["test_auc"] for row in rows}
    aucs = list(runs.values())
    audit = {attack: [row for row in rows if (row["by"], row["attack"]) == ("audit", attack)] for attack in ATTACKS}
    party = {
        attack: [row for row in rows if (row["by"] != "audit", row["attack"]) == (True, attack)] for attack in TRIED
    }
    return [
        str(len(runs)),
        spread(aucs),
        f"{min(aucs):.3f}",
        str(sum(auc < 0.5 for auc in aucs)),
        *(spread([row["leak_pooled_last_flipped"] for row in audit[attack]]) for attack in ATTACKS),
        *(spread([row["leak_mean_flipped"] for row in audit[attack]]) for attack in ATTACKS),
        ", ".join(spread([row["leak_pooled_last_flipped"] for row in party[attack]]) for attack in TRIED[:2]),
        spread([row["leak_mean_flipped"] for row in party["neighbours"]]),
    ]


if __name__ == "__main__":
    print_tables(sys.argv[1:], HEADER, _settings, _cells)
