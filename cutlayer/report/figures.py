"""Plotly figures as plain values, in one look: colours, axes, legends and text are decided here alone."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Values = dict[str, Any]

# Okabe and Ito's colours, which people tell apart whatever their sight; the yellow is too faint on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
DASHES = ("solid", "dash", "dot", "dashdot")
INK, QUIET, RULE = "#1b1f24", "#59636e", "#e4e7eb"
_FONT = "Inter, 'Segoe UI', system-ui, -apple-system, 'Helvetica Neue', Arial, sans-serif"
_MOST_TICKS = 7  # of a logarithmic axis
_MOST_POINTS = 80  # of a line over steps


@dataclass(frozen=True)
class Figure:
    """A figure of the page.

    Attributes:
        key: name of the place that it is drawn in.
        caption: what one sees, and how it came about.
        missing: why there is none; then there are no traces.
    """

    key: str
    title: str
    caption: str
    traces: Sequence[Values] = ()
    layout: Values = field(default_factory=dict)
    missing: str = ""

    def plotly(self) -> Values:
        """What `Plotly.newPlot` takes."""
        return {"data": list(self.traces), "layout": _LAYOUT | self.layout}


def axis(title: str, **more: Any) -> Values:
    """An axis with a title."""
    look = {"gridcolor": RULE, "linecolor": QUIET, "zeroline": False, "ticks": "outside", "tickcolor": RULE}
    text = {"title": {"text": title, "font": {"size": 12, "color": QUIET}, "standoff": 8}, "automargin": True}
    return look | text | {"exponentformat": "power", "fixedrange": False} | more


def line(name: str, x_N: Array, y_N: Array, place: int, **more: Any) -> Values:
    """A line over steps; where it has many points, each stands for the mean of its share of them."""
    x_M, y_M = thinned(x_N, y_N)
    style = {"color": PALETTE[place % len(PALETTE)], "width": 2, "dash": DASHES[place // len(PALETTE) % len(DASHES)]}
    return {
        "type": "scatter",
        "mode": "lines" if len(x_M) > 1 else "markers",
        "name": text(name),
        "x": rounded(x_M),
        "y": rounded(y_M),
        "line": style,
    } | more


def log_axis(title: str, low: float, high: float, **more: Any) -> Values:
    """A logarithmic axis for values from `low` to `high`; over more than a decade only powers of ten have numbers."""
    decades = math.log10(high / low)
    ticks = {"dtick": math.ceil(decades / _MOST_TICKS)} if decades > 1.3 else {}
    return axis(title, type="log", tickangle=0, **ticks, **more)


def fitted(values: Iterable[float], least: float = 0.0) -> list[float]:
    """A range with some room around `values`, no narrower than `least`."""
    known = list(values)
    low, high = min(known), max(known)
    room = 0.08 * (high - low) + max(least - (high - low), 0.0) / 2
    return [low - room, high + room]


def upright(x: float, words: str) -> tuple[Values, Values]:
    """A quiet vertical line through the whole figure, and the words at its upper end."""
    style = {"color": QUIET, "width": 1.5, "dash": "dot"}
    shape = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": style, "layer": "below"}
    label = {"x": x, "y": 1, "yref": "paper", "xanchor": "left", "yanchor": "top", "xshift": 4, "showarrow": False}
    return shape, label | {"text": text(words), "font": {"size": 11, "color": QUIET}}


def level(name: str, x: Sequence[float], y: Sequence[float]) -> Values:
    """A quiet dotted line for comparison."""
    style = {"color": QUIET, "width": 1.5, "dash": "dot"}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": text(name),
        "x": rounded(x),
        "y": rounded(y),
        "line": style,
        "hoverinfo": "skip",
    }


def thinned(x_N: Array, y_N: Array) -> tuple[Array, Array]:
    """Means of neighbouring points, so many as a person can tell apart."""
    if len(x_N) <= _MOST_POINTS:
        return x_N, y_N
    parts = np.array_split(np.arange(len(x_N)), _MOST_POINTS)
    return np.array([x_N[part].mean() for part in parts]), np.array([y_N[part].mean() for part in parts])


def rounded(values: Iterable[float], digits: int = 4) -> list[float]:
    """Numbers with so many digits, to keep the page small."""
    return [float(f"{value:.{digits}g}") if abs(value) < 1e5 else float(value) for value in values]


def text(words: object) -> str:
    """Words of a run for a place where Plotly would take them as HTML."""
    return html.escape(str(words))


_LAYOUT: Values = {
    "font": {"family": _FONT, "size": 12, "color": INK},
    "paper_bgcolor": "#ffffff",
    "plot_bgcolor": "#ffffff",
    "margin": {"l": 56, "r": 12, "t": 12, "b": 48},
    "height": 360,
    "hovermode": "closest",
    "showlegend": True,
    "hoverlabel": {"font": {"family": _FONT, "size": 12}, "namelength": -1},
    "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": -0.22, "yanchor": "top", "font": {"size": 11}},
}
