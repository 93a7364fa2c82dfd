"""What the job grants to curious parties before training: the labels of some rows."""

from __future__ import annotations

from torch import Tensor

from cutlayer.common.randomness import permutation
from cutlayer.common.schedule import Schedule


def draw_labelled(y_N: Tensor, schedule: Schedule, per_class: int, *parts: object) -> dict[int, int]:
    """Aligned row -> label, of `per_class` training rows of each class; of all where a class has fewer.

    The same rows for the same `parts`, so that a run that goes on after a crash grants no others.
    """
    if per_class == 0:
        return {}
    train_y = y_N[schedule.train_rows]
    found: dict[int, int] = {}
    for label in sorted(set(train_y.tolist())):
        rows = schedule.train_rows[(train_y == label).numpy()]
        drawn = rows[permutation(len(rows), "labelled", label, *parts)[:per_class]]
        found |= dict.fromkeys(drawn.tolist(), int(label))
    return found
