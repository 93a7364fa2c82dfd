"""The figures of one run: leak over the steps, gradients by class, what the defense did.

Shape suffixes: n kept rows, d cut-layer width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from sklearn.decomposition import PCA

from cutlayer.report.course import course
from cutlayer.report.figures import PALETTE, Array, Figure, Values, axis, level, line, log_axis, rounded, text, thinned
from cutlayer.report.part_figures import part_figures
from cutlayer.report.runs import Details, LeakSeries, Run, Samples

_LINES_SHOWN = 6  # further ones can be switched on in the legend
_BINS = 36
_MOST_CLASSES = 7
_LEAK_CAPTION = {
    "cut": "What reaches the other party. Dotted: what a guess that knows nothing reaches in 97.5 % of such batches.",
    "first": "What follows from it at the output of the bottom model's first layer, as the curious party computes it.",
}
_UNCHANGED = "what left is the same: this defense changes no gradient that it is given"
_KEPT = "Rows of batches evenly over the run, {count} in all."


def figures(run: Run, prefix: str, most_points: int) -> list[list[Figure]]:
    """The figures of a run, in pairs that stand side by side.

    Args:
        prefix: makes their keys unique on the page.
        most_points: rows that a projection shows.
    """
    details = Details(run)
    leaks = details.leaks()
    samples = details.samples()
    pairs = [[_leak(details, leaks, layer, prefix) for layer in ("cut", "first")]]
    for place, party in enumerate(run.parties):
        kept, key = samples.get(party), f"{prefix}-{place}"
        of = f" for {party}" if len(run.parties) > 1 else ""
        why = details.problems.get("samples", f"no gradients for {party} were kept")
        pairs.append([_norms(kept, kind, key, of, why) for kind in ("exact", "perturbed")])
        pairs.append(_projections(kept, key, of, why, most_points))
        if run.summary.get("objective") or (kept is not None and kept.parts):
            pairs.append(part_figures(kept, key, of, why))
    return [course(details, prefix), *pairs, _defense(run, details, prefix)]


def _leak(details: Details, leaks: Sequence[LeakSeries], layer: str, prefix: str) -> Figure:
    key, title = f"{prefix}-leak-{layer}", f"Leak AUC over steps, {layer} layer"
    here = [series for series in leaks if series.layer == layer and len(series.step_N)]
    if not here:
        why = details.problems.get("audit", "") if layer == "cut" else ""
        why = why or details.problems.get("attacks", f"no attack looked at the {layer} layer")
        return Figure(key, title, _LEAK_CAPTION[layer], missing=why)
    gaps = [details.problems[kind] for kind in ("audit", "attacks") if layer == "cut" and kind in details.problems]
    caption = " ".join([_LEAK_CAPTION[layer], *(f"Not all is in it: {gap}." for gap in gaps)])
    here.sort(key=lambda series: -float(series.auc_N.mean()))
    steps, floors = details.null_floors()
    traces = [] if len(steps) == 0 else [level("chance", *map(list, thinned(steps, floors)))]
    attacks = sorted({series.attack for series in leaks})  # an attack has one colour at both layers
    who = sorted({series.by for series in leaks}, key=lambda by: (by.startswith("audit"), by))
    for place, series in enumerate(here):
        visible = True if place < _LINES_SHOWN else "legendonly"
        name = f"{series.attack} ({series.by})"
        look = attacks.index(series.attack) + len(PALETTE) * who.index(series.by)
        traces.append(line(name, series.step_N, series.auc_N, look, visible=visible, hovertemplate=_HOVER))
    return Figure(key, title, caption, traces, _leak_layout())


_HOVER = "step %{x:.0f}: %{y:.3f}"


def _leak_layout() -> Values:
    return {"xaxis": axis("step"), "yaxis": axis("leak AUC", tickformat=".1f", range=[-0.02, 1.04])}


def _norms(kept: Samples | None, kind: str, prefix: str, of: str, why: str) -> Figure:
    key, title = f"{prefix}-norms-{kind}", f"Length of the {kind} gradients{of}, by class"
    caption = "Where the classes lie apart, the length alone tells the label."
    if kept is None:
        return Figure(key, title, caption, missing=why)
    if kind not in (gradients := _different(kept)):
        return Figure(key, title, caption, missing=_UNCHANGED)
    here = np.linalg.norm(gradients[kind], axis=1)
    positive = here[here > 0]
    if len(positive) == 0:
        return Figure(key, title, caption, missing="all gradients that were kept are zero")
    shortest = max(positive.min(), np.quantile(here, 0.01))  # a few are as short as numbers can be
    log = np.log10(np.maximum(here, shortest))
    edges = np.linspace(log.min(), max(log.max(), log.min() + 1e-6), _BINS + 1)
    traces = [
        _outline(f"class {label}", edges, log[kept.label_n == label], place)
        for place, label in enumerate(_classes(kept))
    ]
    layout = {
        "xaxis": log_axis("length of a row's gradient", *(10**edge for edge in (edges[0], edges[-1]))),
        "yaxis": axis("share of the class", tickformat=".0%", rangemode="tozero"),
    }
    return Figure(key, title, f"{caption} {_KEPT.format(count=len(here))}", traces, layout)


def _outline(name: str, edges: Array, log_n: Array, place: int) -> Values:
    """A histogram of logarithms as a filled step line."""
    counts, _ = np.histogram(log_n, edges)
    share = counts / max(len(log_n), 1)
    colour = PALETTE[place % len(PALETTE)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": rounded(10 ** ((edges[:-1] + edges[1:]) / 2)),
        "y": rounded(share),
        "line": {"shape": "hvh", "color": colour, "width": 1.5},
        "fill": "tozeroy",
        "fillcolor": f"{colour}30",
        "hovertemplate": "length %{x:.2g}: %{y:.1%}",
    }


def _projections(kept: Samples | None, prefix: str, of: str, why: str, most_points: int) -> list[Figure]:
    """Exact and perturbed gradients on the two axes along which the exact ones vary most."""
    titles = {kind: f"{kind.capitalize()} gradients{of}, projected" for kind in ("exact", "perturbed")}
    caption = "On the two main axes of the exact gradients, coloured by label."
    if kept is None or min(kept.exact_nd.shape) < 2 or not kept.exact_nd.any():
        why = why if kept is None else "fewer than two rows or columns were kept, or all are zero"
        return [Figure(f"{prefix}-projection-{kind}", title, caption, missing=why) for kind, title in titles.items()]
    axes = PCA(n_components=2, svd_solver="full").fit(kept.exact_nd)
    shares = axes.explained_variance_ratio_
    shown = np.unique(np.linspace(0, len(kept.label_n) - 1, min(most_points, len(kept.label_n))).round().astype(int))
    found = {kind: Figure(f"{prefix}-projection-{kind}", titles[kind], caption, missing=_UNCHANGED) for kind in titles}
    for kind, g_nd in _different(kept).items():
        points = axes.transform(g_nd[shown])
        traces = [
            _cloud(f"class {label}", points[kept.label_n[shown] == label], place)
            for place, label in enumerate(_classes(kept))
        ]
        low, high = np.quantile(points, [0.01, 0.99], axis=0)  # the lengths of gradients have long tails
        layout = {
            "xaxis": axis(
                f"first axis ({shares[0]:.0%} of the exact variance)", nticks=6, range=_roomy(low[0], high[0])
            ),
            "yaxis": axis(f"second axis ({shares[1]:.0%})", nticks=6, range=_roomy(low[1], high[1])),
        }
        words = f"{caption} {len(shown)} rows; a few may lie outside, a double click shows them."
        found[kind] = Figure(f"{prefix}-projection-{kind}", titles[kind], words, traces, layout)
    return list(found.values())


def _roomy(low: float, high: float) -> list[float]:
    room = 0.25 * (high - low) or 1.0
    return [float(low - room), float(high + room)]


def _cloud(name: str, points: Array, place: int) -> Values:
    marker = {"color": PALETTE[place % len(PALETTE)], "size": 5, "opacity": 0.6, "symbol": 0 if place == 0 else place}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": rounded(points[:, 0], 3),
        "y": rounded(points[:, 1], 3),
        "marker": marker,
        "hoverinfo": "skip",
    }


def _defense(run: Run, details: Details, prefix: str) -> list[Figure]:
    """Noise power beside that of the gradients, and the sum of the KL divergences, over the steps."""
    found = details.defense_figures()
    why = details.problems.get("defense", "")
    power = Figure(
        f"{prefix}-power",
        "Power of noise and gradients over steps",
        "Mean squared length of a row: of what the defense added, and of the exact gradient.",
        *_power_lines(run, found),
        missing=why,
    )
    divergence = list(_lines(run, found, {"sum_kl": "sum-KL"}))
    caption = (
        "Both KL divergences between the classes' gradients added up, under the defense's Gaussian model: what one "
        "step gives away. A row's steps add up over the epochs."
    )
    if not divergence:
        why = why or f"the defense {run.summary['defense'].get('name', 'none')} states no divergence"
    layout = {"xaxis": axis("step"), "yaxis": axis("sum-KL of a step", rangemode="tozero")}
    return [power, Figure(f"{prefix}-divergence", "Sum-KL over steps", caption, divergence, layout, why)]


def _power_lines(run: Run, found: dict[tuple[str, str], tuple[Array, Array]]) -> tuple[list[Values], Values]:
    names = {"noise_power": "noise", "gradient_power": "gradient"}
    lines = list(_lines(run, found, names))
    values = [value for one in lines for value in one["y"]] or [1.0]
    layout = {"xaxis": axis("step"), "yaxis": log_axis("mean squared length", min(values), max(values))}
    return lines, layout


def _lines(run: Run, found: dict[tuple[str, str], tuple[Array, Array]], names: dict[str, str]) -> Iterator[Values]:
    several = len(run.parties) > 1
    keys = [(party, figure) for party in run.parties for figure in names if (party, figure) in found]
    for place, (party, figure) in enumerate(keys):
        steps, values = found[party, figure]
        usable = np.isfinite(values) & (values > 0) if figure.endswith("power") else np.isfinite(values)
        if usable.any():
            name = f"{names[figure]}, {party}" if several else names[figure]
            yield line(text(name), steps[usable], values[usable], place, hovertemplate="step %{x:.0f}: %{y:.3g}")


def _different(kept: Samples) -> dict[str, Array]:
    """Exact and perturbed gradients; the exact ones alone where they left as they were."""
    if np.array_equal(kept.exact_nd, kept.perturbed_nd):
        return {"exact": kept.exact_nd}
    return {"exact": kept.exact_nd, "perturbed": kept.perturbed_nd}


def _classes(kept: Samples) -> list[int]:
    """The labels to draw, the most common where there are many."""
    labels, counts = np.unique(kept.label_n, return_counts=True)
    return sorted(labels[np.argsort(-counts)][:_MOST_CLASSES].tolist())
