"""Puts a report together as one HTML page that needs nothing from elsewhere."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import yaml
from plotly.offline import get_plotlyjs

from cutlayer import __version__
from cutlayer.common.job import LABEL_PARTY
from cutlayer.report import detail
from cutlayer.report.figures import Figure
from cutlayer.report.overview import cards, leak_rows, number, plane, setting, table
from cutlayer.report.runs import Run, Runs

_MOST_DETAILED = 40  # runs whose own figures are on the page
_POINTS = 2000  # of all projections of one kind together, about
_FEWEST_POINTS = 300
_LEAK_COLUMNS = {
    **{"mean": "Mean", "mean_flipped": "flipped", "p95": "p95", "p95_flipped": "flipped", "null_floor": "Chance, p95"},
    **{"pooled_last": "Last epoch", "pooled_last_flipped": "flipped", "pooled_last_null_floor": "Chance"},
    **{"final": "Final", "final_flipped": "flipped"},
}
_LEAK_HEADINGS = ("Measured by", "Attack", "Layer", *_LEAK_COLUMNS.values())
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Section:
    """What the page shows of one run."""

    key: str
    name: str
    setting: str
    leaks: list[list[str]]
    pairs: list[list[Figure]]
    config: str
    commands: str
    versions: str


def render(found: Runs, command: str) -> str:
    """The page.

    Args:
        command: the command line that makes it again.
    """
    shown = found.runs[:_MOST_DETAILED]
    points = max(_FEWEST_POINTS, _POINTS // len(shown))
    sections = [_section(run, f"run{place}", points) for place, run in enumerate(shown)]
    overview = plane(found.runs)
    headings, rows = table(found.runs)
    figures = [overview, *(figure for section in sections for pair in section.pairs for figure in pair)]
    jobs = list(dict.fromkeys(str(run.summary["job"]) for run in found.runs))
    template = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    ).get_template("page.html")
    return template.render(
        title=", ".join(jobs),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),  # noqa: TID251 - a person reads it
        version=__version__,
        command=command,
        cards=cards(found.runs),
        overview=overview,
        headings=headings,
        rows=rows,
        unfinished=found.unfinished,
        sections=sections,
        left_out=len(found.runs) - len(shown),
        leak_headings=_LEAK_HEADINGS,
        style=(_FOLDER / "style.css").read_text(encoding="utf-8"),
        script=(_FOLDER / "script.js").read_text(encoding="utf-8"),
        plotly=get_plotlyjs(),
        figures=_embedded({figure.key: figure.plotly() for figure in figures if not figure.missing}),
    )


def _section(run: Run, key: str, points: int) -> Section:
    return Section(
        key=key,
        name=run.name,
        setting=setting(run),
        leaks=[
            [by, attack, layer, *(number(figures.get(name)) for name in _LEAK_COLUMNS)]
            for by, attack, layer, figures in leak_rows(run)
        ],
        pairs=detail.figures(run, key, points),
        config=yaml.safe_dump(_again(run), sort_keys=False, allow_unicode=True),
        commands=_commands(run),
        versions=", ".join(f"{package} {version}" for package, version in run.versions.items()),
    )


def _again(run: Run) -> dict[str, Any]:
    """The resolved run file without what is not set, and with the noise secret that the run has used."""
    config: dict[str, Any] = _set(run.config)
    secret = run.folder / LABEL_PARTY / "noise_secret"
    if secret.exists() and "noise_secret" not in config.get(LABEL_PARTY, {}):
        config[LABEL_PARTY]["noise_secret"] = str(secret.resolve())
    return config


def _set(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _set(one) for key, one in value.items() if one is not None and one != {}}
    return [_set(one) for one in value] if isinstance(value, list) else value


def _commands(run: Run) -> str:
    beside = run.folder.parent / f"{run.folder.name}.yaml"  # where a sweep has it
    file, first = ("run.yaml", "# the configuration below, saved as run.yaml\n")
    if run.varied and beside.exists():
        file, first = str(beside.resolve()), ""
    return f"{first}cutlayer run {shlex.quote(file)} --out {shlex.quote(f'{run.folder.name}-again')}"


def _embedded(figures: Mapping[str, Any]) -> str:
    """JSON that may stand in a script element."""
    text = json.dumps(figures, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
