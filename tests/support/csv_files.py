"""Small CSV pairs: a label party's file and a partner's, and the run that joins them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from support.runs import Run

Rows = Iterable[Sequence[object]]


def write_csv(path: Path, header: str, rows: Rows) -> None:
    """Write a file with `header` and `rows`."""
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


def pair(
    folder: Path, label_ids: Sequence[object], partner_ids: Sequence[object], labels: Sequence[object] | None = None
) -> Run:
    """Write label.csv and partner.csv, and give the run; by default every third label is 1."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(5)
    labels = labels or [int(number % 3 == 0) for number in range(len(label_ids))]
    write_csv(folder / "label.csv", "id,outcome", zip(label_ids, labels, strict=True))
    write_csv(folder / "partner.csv", "id,age,income", [(i, draw.gauss(40, 9), draw.gauss(0, 1)) for i in partner_ids])
    return {
        "job": {
            "name": "case",
            "epochs": 1,
            "batch_size": 16,
            "seed": 3,
            "cut_layer": {"width": 4},
            "parties": ["lab"],
        },
        "label_party": {
            "listen": "127.0.0.1:0",
            "data": {"source": "csv", "path": "label.csv", "id": "id", "label": "outcome"},
        },
        "nonlabel_parties": {
            "lab": {"data": {"source": "csv", "path": "partner.csv", "id": "id"}, "bottom_model": "linear"}
        },
    }


def numbers(start: int, count: int) -> list[int]:
    """Ids that a message could not contain by chance."""
    return [7_310_000 + start + i for i in range(count)]
