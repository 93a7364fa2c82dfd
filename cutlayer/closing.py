"""What a person sees when a run has ended: the main figures of `summary.json` as tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cutlayer.common.progress import duration, human_bytes

_WIDTH = 110  # characters, of output that no terminal shows
_WORDS = ("attack", "layer")  # headings of columns that hold words
# figure -> heading, and the figure in brackets
_LEAK_COLUMNS = {
    "mean": ("mean", "mean_flipped"),
    "p95": ("p95", "null_floor"),
    "pooled_last": ("epoch", "pooled_last_flipped"),
    "final": ("final", "final_null_floor"),
}
_LEGEND = (
    "epoch: the scores of the last one together. In brackets: of mean and epoch for\n"
    "who may turn the score round (flipped), of p95 and final by chance"
)
_RELEASED = ("rows", "exact_rows", "steps", "exact_steps")


def closing_table(summary: Mapping[str, Any], out: Path) -> RenderableType:
    """Utility, leak, time and memory, traffic of a run, and where its files are.

    Args:
        summary: as in `summary.json`, after `merge`.
        out: the folder of the run.
    """
    return Group(
        Text(),
        Text(_headline(summary), style="bold"),
        Text(_figures(summary["utility"])),
        *_objective(summary.get("objective", {})),
        Text(),
        Text(f"defense: {', '.join(f'{key} {value}' for key, value in summary['defense'].items())}"),
        leak_table(summary["leak"]),
        Text(_bound(summary.get("bound") or {})),
        Text(_releases(summary.get("releases", {}))),
        Text(_granted(summary.get("knowledge", {}))),
        Text(),
        _party_table(summary["parties"]),
        Text(),
        Text(_traffic(summary["bytes"])),
        Text(f"files: {out}", overflow="fold"),
    )


def _headline(summary: Mapping[str, Any]) -> str:
    took = duration(summary["seconds"])
    return (
        f"{summary['job']}: {summary['epochs']} epochs, {summary['steps']} steps of training in {took} "
        f"({summary['samples_per_second']:,.0f} samples/s)"
    )


def _objective(objective: Mapping[str, Any]) -> Iterator[Text]:
    known = {name: value for name, value in objective.items() if isinstance(value, float)}
    if known:
        yield Text(f"{objective['name']}: {_figures(known)}")
    if objective.get("turned"):
        auc = _number(objective["train_auc"])
        words = f"the model is upside down (AUC {auc} on training rows): its predictions are turned round"
        yield Text(words, style="bold red")
    if steps := objective.get("flat_steps"):
        words = (
            f"the generator said the same of every row (steps: {steps}); the game's part of the gradient was 0 there"
        )
        yield Text(words, style="bold red")


def _figures(figures: Mapping[str, float | None]) -> str:
    known = {name.replace("_", " "): value for name, value in figures.items() if value is not None}
    return ", ".join(f"{name} {_number(value)}" for name, value in known.items())


def leak_table(leak: Mapping[str, Any]) -> RenderableType:
    """Leak figures by who measured or attacked, attack and layer.

    `final` is there only where an attack made a guess at the end.
    """
    found = {"audit": leak["audit"], **leak.get("attacks", {})}
    rows = [
        (who, attack, layer, figures)
        for who, attacks in found.items()
        for attack, layers in attacks.items()
        for layer, figures in layers.items()
    ]
    columns = [key for key in _LEAK_COLUMNS if key != "final" or any(key in figures for *_, figures in rows)]
    table = _table("leak AUC", "attack", "layer", *(_LEAK_COLUMNS[key][0] for key in columns))
    for who, attack, layer, figures in rows:
        table.add_row(who, attack, layer, *(_leak_cell(figures, key) for key in columns))
    return Group(table, Text(_LEGEND, style="dim"))


def _leak_cell(figures: Mapping[str, float | None], key: str) -> str:
    beside = figures.get(_LEAK_COLUMNS[key][1])
    value = figures.get(key)
    return ("" if value is None else f"{value:.3f}") + ("" if beside is None else f" ({beside:.2f})")


def _bound(bound: Mapping[str, Any]) -> str:
    shown = {"a step": bound.get("per_step_leak_auc"), "the whole run": bound.get("whole_run_leak_auc")}
    known = [f"{_number(value)} for {what}" for what, value in shown.items() if value is not None]
    if not known:
        return "bound: this defense states none"
    return f"bound: {', '.join(known)}" + (f"; if {bound['assumes']}" if "assumes" in bound else "")


def _releases(releases: Mapping[str, Mapping[str, int]]) -> str:
    """What left as it was, and what the defenses count."""
    texts = []
    for party, counts in releases.items():
        words = [f"{counts['exact_rows']:,} of {counts['rows']:,} rows"]
        others = {"whole batches": counts["exact_steps"]}
        others |= {name.replace("_", " "): count for name, count in counts.items() if name not in _RELEASED}
        words += [f"{name} {count:,}" for name, count in others.items() if count]
        texts.append(f"sent to {party} as they were: {'; '.join(words)}")
    return "\n".join(texts)


def _granted(knowledge: Mapping[str, Mapping[str, bool | int]]) -> str:
    granted = [
        f"{party}: {name}" + (f" {given}" if given is not True else "")
        for party, names in knowledge.items()
        for name, given in names.items()
        if given
    ]
    return "knowledge granted to " + ", ".join(granted) if granted else "no knowledge granted to the other parties"


def _party_table(parties: Mapping[str, Mapping[str, float | None]]) -> Table:
    table = _table("party", "time", "computing", "waiting", "peak memory")
    for party, figures in parties.items():
        times = [figures.get(key) for key in ("seconds", "compute_seconds", "wait_seconds")]
        memory = figures.get("peak_rss_bytes")
        table.add_row(
            party,
            *("" if seconds is None else f"{seconds:.1f} s" for seconds in times),
            "" if memory is None else human_bytes(memory),
        )
    return table


def _traffic(traffic: Mapping[str, int]) -> str:
    return "sent: " + ", ".join(f"{kind} {human_bytes(count)}" for kind, count in traffic.items())


def console() -> Console:
    """As wide as the terminal; in a file or a pipe, wide enough for the tables."""
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


def _table(*headings: str) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", justify="left" if place == 0 or heading in _WORDS else "right")
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
