"""Gradients that are made of parts, such as those of GAFM: what the parts tell of the labels, and their sum.

Han and Guan, "GAN-based Vertical Federated Learning for Label Protection", 2023: the class centres of the two parts
point in opposite directions, and cancel. Shape suffixes: n kept rows, d cut-layer width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cutlayer.report.figures import PALETTE, Array, Figure, Values, axis, line, rounded, text
from cutlayer.report.runs import Samples

_TITLES = ("Parts of the gradient{of}, by class", "Class centres in the parts{of}, over steps")


def part_figures(kept: Samples | None, prefix: str, of: str, why: str) -> list[Figure]:
    """A box for each part, sum and class, and how far the class centres are apart in each over the steps.

    Both along the direction in which one part has them apart: the last one from the end of the alphabet, `ce` of GAFM.
    """
    keys = [f"{prefix}-parts-{name}" for name in ("classes", "centres")]
    titles = [title.format(of=of) for title in _TITLES]
    if kept is not None:
        why = "" if kept.parts else "the samples hold no parts of the gradient; the run may be of an older version"
    if kept is None or why:
        return _missing(keys, titles, why)
    rows = {name: kept.parts[name].astype(np.float64) for name in sorted(kept.parts, reverse=True)}
    rows["both"] = kept.exact_nd.astype(np.float64)
    first, second, *_ = rows
    offsets = {name: _offsets(g_nd, kept) for name, g_nd in rows.items()}
    axis_sd = _directions(offsets[second])
    apart_s = np.isfinite(axis_sd).all(axis=1)
    if not apart_s.any():
        return _missing(keys, titles, f"in no kept batch do the class centres of {second} lie apart")
    steps = np.unique(kept.step_n)[apart_s]
    along = {name: (offset_sd * axis_sd).sum(axis=1)[apart_s] for name, offset_sd in offsets.items()}
    return [
        Figure(keys[0], titles[0], _words(offsets, first, second), _boxes(rows, kept, axis_sd), _box_layout(second)),
        Figure(
            keys[1],
            titles[1],
            f"How far the centre of class 1 lies from that of class 0, along the direction in {second}. Below 0 a part "
            "points the other way; where the two cancel, both together are near 0 and tell little.",
            [line(name, steps, values, place) for place, (name, values) in enumerate(along.items())],
            {"xaxis": axis("step"), "yaxis": axis("centre of class 1 less that of class 0")},
        ),
    ]


def _missing(keys: Sequence[str], titles: Sequence[str], why: str) -> list[Figure]:
    return [Figure(key, title, "", missing=why) for key, title in zip(keys, titles, strict=True)]


def _offsets(g_nd: Array, kept: Samples) -> Array:
    """Of each kept batch, the centre of class 1 less that of class 0, (batches, d); NaN where a class is missing."""
    found = []
    for step in np.unique(kept.step_n):
        here = kept.step_n == step
        classes = [g_nd[here & (kept.label_n == label)] for label in (1, 0)]
        centres = [rows.mean(axis=0) if len(rows) else np.full(g_nd.shape[1], np.nan) for rows in classes]
        found.append(centres[0] - centres[1])
    return np.array(found)


def _directions(offset_sd: Array) -> Array:
    """Each row at length 1; NaN where it has none."""
    length_s1 = np.linalg.norm(offset_sd, axis=1, keepdims=True)
    unit_sd: Array = np.divide(offset_sd, length_s1, out=np.full_like(offset_sd, np.nan), where=length_s1 > 0)
    return unit_sd


def _words(offsets: Mapping[str, Array], first: str, second: str) -> str:
    cosines = (_directions(offsets[first]) * _directions(offsets[second])).sum(axis=1)
    known = cosines[np.isfinite(cosines)]
    shown = (
        f"Kept rows along the direction in which {second} has the classes of their batch apart, in units of its "
        "typical length."
    )
    if len(known) == 0:
        return f"{shown} The class centres of {first} lie apart in none."
    return (
        f"{shown} In {(known < 0).sum()} of {len(known)} batches the class centres of {first} point the other way: "
        f"cosine below 0, {np.median(known):.2f} in the median."
    )


def _boxes(rows: Mapping[str, Array], kept: Samples, axis_sd: Array) -> list[Values]:
    places = np.searchsorted(np.unique(kept.step_n), kept.step_n)
    along = {name: (g_nd * axis_sd[places]).sum(axis=1) for name, g_nd in rows.items()}
    second = list(rows)[1]
    unit = np.sqrt(np.nanmean(along[second] ** 2)) or 1.0
    traces: list[Values] = []
    for label in (0, 1):
        values = {name: one[(kept.label_n == label) & np.isfinite(one)] / unit for name, one in along.items()}
        known = {name: one for name, one in values.items() if len(one)}
        marks = np.array([np.quantile(one, [0.05, 0.25, 0.5, 0.75, 0.95]) for one in known.values()])
        ends = ("lowerfence", "q1", "median", "q3", "upperfence")
        box: Values = {
            "type": "box",
            "name": f"class {label}",
            "x": list(map(text, known)),
            "marker": {"color": PALETTE[label]},
        }
        traces.append(box | {end: rounded(marks[:, place]) for place, end in enumerate(ends)})
    return traces


def _box_layout(second: str) -> Values:
    return {
        "boxmode": "group",
        "xaxis": {"title": {"text": ""}},
        "yaxis": axis(text(f"along the class centres of {second}")),
    }
