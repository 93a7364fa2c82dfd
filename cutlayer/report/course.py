"""How a run went, epoch by epoch: utility, and the leak for those who may turn a score round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cutlayer.report.figures import Figure, Values, axis, fitted, line
from cutlayer.report.runs import Details

_UTILITIES = {"test_auc": "test AUC", "test_accuracy": "test accuracy"}
_HOVER = "epoch %{x:.0f}: %{y:.3f}"

Records = Sequence[Mapping[str, Any]]


def course(details: Details, prefix: str) -> list[Figure]:
    """Utility and flipped leak AUC over the epochs, from metrics.jsonl."""
    records = details.evaluations()
    why = details.problems.get("metrics", "")
    return [_utility(records, prefix, why), _flipped(records, prefix, why)]


def _utility(records: Records, prefix: str, why: str) -> Figure:
    key, title = f"{prefix}-course-utility", "Utility over epochs"
    caption = "On the test rows after each epoch. Training may fall far and recover: the end alone does not show it."
    names = {name: words for name, words in _UTILITIES.items() if any(r.get(name) is not None for r in records)}
    if not names:
        return Figure(key, title, caption, missing=why or "no epoch has a figure of utility")
    traces = [_curve(records, name, words, place) for place, (name, words) in enumerate(names.items())]
    values = [value for trace in traces for value in trace["y"]]
    layout = {"xaxis": axis("epoch"), "yaxis": axis("utility", tickformat=".2f", range=fitted(values, 0.05))}
    return Figure(key, title, caption, traces, layout)


def _flipped(records: Records, prefix: str, why: str) -> Figure:
    key, title = f"{prefix}-course-flipped", "Flipped leak AUC over epochs"
    caption = (
        "By the label party's audit, of the scores of a whole epoch together: max(a, 1 - a) of their leak AUC a, for "
        "an attacker who may turn the score round. Mean and median know the class centres of the gradients that leave."
    )
    ending, begin = "_pooled_flipped", "leak_"
    names = sorted({name for record in records for name in record if name.startswith(begin) and name.endswith(ending)})
    known = [name for name in names if any(record.get(name) is not None for record in records)]
    if not known:
        return Figure(key, title, caption, missing=why or "the audit has no such figure of any epoch")
    shown = [(name, name.removeprefix(begin).removesuffix(ending)) for name in known]
    traces = [_curve(records, name, attack, place) for place, (name, attack) in enumerate(shown)]
    layout = {"xaxis": axis("epoch"), "yaxis": axis("flipped leak AUC", tickformat=".1f", range=[0.48, 1.02])}
    return Figure(key, title, caption, traces, layout)


def _curve(records: Records, name: str, words: str, place: int) -> Values:
    known = [(record.get("epoch", 0), record[name]) for record in records if record.get(name) is not None]
    epochs, values = (np.array(column, dtype=np.float64) for column in zip(*known, strict=True))
    return line(words, epochs, values, place, hovertemplate=_HOVER)
