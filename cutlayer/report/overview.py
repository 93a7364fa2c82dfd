"""What a report says of all its runs together: the main figures, the table, and the privacy-utility plane."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from cutlayer.common.progress import duration
from cutlayer.report.figures import PALETTE, Figure, Values, axis, fitted, rounded, text, upright
from cutlayer.report.runs import Run

NO_NUMBER = "–"
_UTILITIES = {
    "test_auc": "Test AUC",
    "test_accuracy": "Test accuracy",
    "test_loss": "Test loss",
    "train_loss": "Training loss",
}
_SEED = "job.seed"
_DEFENSE = "label_party.defense"


@dataclass(frozen=True)
class WorstLeak:
    """The largest leak AUC of a run: p95 over its batches of whichever attack did best, and what chance reaches."""

    auc: float
    by: str
    attack: str
    layer: str
    floor: float | None


@dataclass(frozen=True)
class Card:
    """One of the main figures."""

    title: str
    value: str
    note: str


def number(value: float | None) -> str:
    """A figure between 0 and 1, or a loss."""
    return NO_NUMBER if value is None else f"{value:.3f}"


def leak_rows(run: Run) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Who measured, attack, layer, figures."""
    leak = run.summary["leak"]
    for by, attacks in {"audit": leak.get("audit") or {}, **(leak.get("attacks") or {})}.items():
        for attack, layers in attacks.items():
            for layer, figures in layers.items():
                yield by, attack, layer, figures


def worst_leak(run: Run) -> WorstLeak | None:
    """None where no attack could be scored."""
    known = [row for row in leak_rows(run) if row[3].get("p95") is not None]
    if not known:
        return None
    by, attack, layer, figures = max(known, key=lambda row: float(row[3]["p95"]))
    return WorstLeak(figures["p95"], by, attack, layer, figures.get("null_floor"))


def utility_of(runs: Sequence[Run]) -> str:
    """The key of the first figure of utility that every run has; that of the first run where there is none."""
    every = [name for name in _UTILITIES if all(run.summary["utility"].get(name) is not None for run in runs)]
    return every[0] if every else "test_auc"


def utility(run: Run, name: str) -> float | None:
    """A figure of utility."""
    value = run.summary["utility"].get(name)
    return None if value is None else float(value)


def whole_run_bound(run: Run) -> float | None:
    """What the accountant says of the whole run."""
    return (run.summary.get("bound") or {}).get("whole_run_leak_auc")


def setting(run: Run) -> str:
    """The defense with its options."""
    defense = dict(run.summary["defense"])
    return " ".join([str(defense.pop("name", "none")), *(f"{key} {value}" for key, value in defense.items())])


def cards(runs: Sequence[Run]) -> list[Card]:
    """Utility, worst leak, bound: of the run, or the best of each among several."""
    name = utility_of(runs)
    return _cards_of_one(runs[0], name) if len(runs) == 1 else _cards_of_many(runs, name)


def _cards_of_one(run: Run, name: str) -> list[Card]:
    others = [
        f"{title.lower()} {number(utility(run, key))}"
        for key, title in _UTILITIES.items()
        if key != name and utility(run, key) is not None
    ]
    objective = run.summary.get("objective") or {}
    if "gamma" in objective:
        others.append(f"gamma {number(objective['gamma'])}")
    if objective.get("turned"):
        others.append("the model is upside down, its predictions are turned round")
    leak = worst_leak(run)
    bound = run.summary.get("bound") or {}
    step = bound.get("per_step_leak_auc")
    return [
        Card(_UTILITIES[name], number(utility(run, name)), ", ".join(others)),
        Card("Worst leak AUC, p95", number(leak.auc if leak else None), _leak_note(leak)),
        Card(
            "Bound, whole run",
            number(whole_run_bound(run)),
            "this defense states no bound"
            if step is None
            else f"{number(step)} for one step, if gradients are as the defense's Gaussian model says",
        ),
    ]


def _leak_note(leak: WorstLeak | None) -> str:
    if leak is None:
        return "no attack could be scored"
    floor = "" if leak.floor is None else f"; a guess that knows nothing reaches {number(leak.floor)}"
    return f"{leak.attack} at the {leak.layer} layer, measured by {leak.by}{floor}"


def _cards_of_many(runs: Sequence[Run], name: str) -> list[Card]:
    by_utility = [(value, run) for run in runs if (value := utility(run, name)) is not None]
    by_leak = [(leak.auc, run) for run in runs if (leak := worst_leak(run)) is not None]
    by_bound = [(value, run) for run in runs if (value := whole_run_bound(run)) is not None]
    smaller_is_better = name.endswith("loss")
    best = (min if smaller_is_better else max)(by_utility, key=lambda pair: pair[0], default=None)
    return [
        Card("Runs", str(len(runs)), f"of {len({setting(run) for run in runs})} defense settings"),
        _best(f"Best {_UTILITIES[name][0].lower()}{_UTILITIES[name][1:]}", best, "no run has one"),
        _best(
            "Least worst leak AUC", min(by_leak, key=lambda pair: pair[0], default=None), "no attack could be scored"
        ),
        _best("Least bound, whole run", min(by_bound, key=lambda pair: pair[0], default=None), "no run states one"),
    ]


def _best(title: str, best: tuple[float, Run] | None, nothing: str) -> Card:
    return Card(title, NO_NUMBER, nothing) if best is None else Card(title, number(best[0]), best[1].name)


def table(runs: Sequence[Run]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the table of all runs."""
    axes = list(dict.fromkeys(axis for run in runs for axis in run.varied if not axis.startswith(_DEFENSE)))
    names = [name for name in _UTILITIES if any(utility(run, name) is not None for run in runs)][:2]
    headings = ["Run", "Defense", *axes, *(_UTILITIES[name] for name in names)]
    headings += ["Worst leak", "Chance", "By", "Bound", "Time"]
    return headings, [_row(run, axes, names) for run in runs]


def _row(run: Run, axes: Sequence[str], names: Sequence[str]) -> list[str]:
    leak = worst_leak(run)
    return [
        run.name,
        setting(run),
        *(str(run.varied.get(axis, "")) for axis in axes),
        *(number(utility(run, name)) for name in names),
        number(leak.auc if leak else None),
        number(leak.floor if leak else None),
        f"{leak.attack}, {leak.layer}" if leak else NO_NUMBER,
        number(whole_run_bound(run)),
        duration(float(run.summary["seconds"])),
    ]


def plane(runs: Sequence[Run]) -> Figure:
    """Utility against the worst leak, a curve for each defense; runs that differ in their seed alone are one point."""
    name = utility_of(runs)
    points = _points(runs, name)
    caption = (
        "Each point is one setting; the further up and to the left, the better. Bars span one standard deviation "
        "over the seeds. Leak AUC is the p95 over batches of the attack that did best: 0.5 tells nothing, 1.0 all."
    )
    if len(points) == 1 and len(points[0]) == 1:
        caption += " One run is one point: a sweep over defenses gives curves."
    if not points:
        return Figure("plane", "", caption, missing="no run has both a utility and a leak figure")
    traces: list[Values] = [_curve(curve, place) for place, curve in enumerate(points)]
    layout = {
        "height": 440,
        "xaxis": axis("worst leak AUC (p95)", tickformat=".2f", range=[0.47, 1.03]),
        "yaxis": axis(
            _UTILITIES[name],
            tickformat=".3f",
            range=fitted([value for curve in points for point in curve for value in point.utilities], 0.02),
        ),
    }
    return Figure("plane", "", caption, traces, layout | _chance(runs))


def _chance(runs: Sequence[Run]) -> Values:
    """Where a guess that knows nothing stands, the mean over the runs."""
    floors = [leak.floor for run in runs if (leak := worst_leak(run)) and leak.floor is not None]
    if not floors:
        return {}
    shape, label = upright(fmean(floors), "chance")
    return {"shapes": [shape], "annotations": [label]}


@dataclass(frozen=True)
class _Point:
    """Runs that differ in their seed alone."""

    curve: str
    words: str
    leaks: list[float]
    utilities: list[float]


def _points(runs: Sequence[Run], name: str) -> list[list[_Point]]:
    """A list of points, by ascending leak, for each curve."""
    groups: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    several_jobs = len({run.summary["job"] for run in runs}) > 1
    for run in runs:
        leak, value = worst_leak(run), utility(run, name)
        if leak is not None and value is not None:
            groups[_curve_of(run, several_jobs=several_jobs), setting(run)].append((leak.auc, value))
    curves: defaultdict[str, list[_Point]] = defaultdict(list)
    for (curve, words), pairs in groups.items():
        curves[curve].append(_Point(curve, words, [leak for leak, _ in pairs], [value for _, value in pairs]))
    return [sorted(curve, key=lambda point: fmean(point.leaks)) for curve in curves.values()]


def _curve_of(run: Run, *, several_jobs: bool) -> str:
    """The defense's name, and whatever else is varied but the seed."""
    others = [
        f"{axis} {value}" for axis, value in run.varied.items() if axis != _SEED and not axis.startswith(_DEFENSE)
    ]
    job = [str(run.summary["job"])] if several_jobs else []
    return ", ".join([str(run.summary["defense"].get("name", "none")), *job, *others])


def _curve(points: Sequence[_Point], place: int) -> Values:
    colour = PALETTE[place % len(PALETTE)]

    def bars(samples: Sequence[Sequence[float]]) -> Values:
        spread = rounded([pstdev(values) for values in samples])
        return {"type": "data", "array": spread, "color": colour, "thickness": 1, "width": 3, "visible": any(spread)}

    leaks, utilities = [point.leaks for point in points], [point.utilities for point in points]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": text(points[0].curve),
        "x": rounded(map(fmean, leaks)),
        "y": rounded(map(fmean, utilities)),
        "error_x": bars(leaks),
        "error_y": bars(utilities),
        "text": [f"{text(point.words)}<br>runs: {len(point.leaks)}" for point in points],
        "hovertemplate": "%{text}<br>leak AUC %{x:.3f}<br>utility %{y:.4f}<extra></extra>",
        "line": {"color": colour, "width": 1.5},
        "marker": {"color": colour, "size": 9, "symbol": place // len(PALETTE), "line": {"color": "#fff", "width": 1}},
    }
