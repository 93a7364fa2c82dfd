"""Reads a sweep file: which runs it asks for, each a whole run file."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr

from cutlayer.common import run_files
from cutlayer.common.config import RunFile
from cutlayer.common.errors import ConfigError
from cutlayer.sweep.keys import Tree, get, problem_of, put
from cutlayer.sweep.names import canonical, name_runs

ENGINES = ("local", "ray")
_KEYS = ("run", "grid", "engine")
_MOST_RUNS = 10_000
_PATHS = ("data.path", "noise_secret", "tls.ca", "tls.cert", "tls.key")
_RUN_EXPECTED = "the path of a run file, or its sections such as `job:`"
_GRID_EXPECTED = "keys of the run file with lists of values, such as `job.seed: [0, 1, 2]`"


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep.

    Attributes:
        varied: axis -> value, or the name of the variant; in the order of the file.
        content: the whole run file as values of YAML, paths absolute, with its secrets.
    """

    name: str
    varied: Mapping[str, Any]
    run_file: RunFile
    content: Tree

    @property
    def cores(self) -> int:
        """Cores that it keeps busy: the label party and the others compute in turn."""
        others = sum(section.threads for section in self.run_file.nonlabel_parties.values())
        return max(self.run_file.label_section().threads, others)


class Plan(NamedTuple):
    """What a sweep file asks for."""

    runs: list[PlannedRun]
    engine: str


class _Setting(NamedTuple):
    """One point of an axis: how it is shown, and what it sets, dotted key -> value."""

    shown: Any
    changes: Mapping[str, Any]


def load(file: Path) -> Plan:
    """The runs of a sweep file, in the order of the grid: the last axis changes fastest.

    Raises:
        ConfigError: the file, its run file or a combination is wrong; the message says where and what to write.
    """
    raw = run_files.read(file, f"`run:`, {_RUN_EXPECTED}, and `grid:`")
    for key in sorted(raw.keys() - set(_KEYS), key=str):
        raise ConfigError(f"{file}: {key}: unknown key; a sweep file has: {', '.join(_KEYS)}")
    engine = raw.get("engine", ENGINES[0])
    if engine not in ENGINES:
        raise ConfigError(f"{file}: engine: expected {' or '.join(ENGINES)}, got {engine!r}")
    return Plan(planned(file, raw.get("run"), raw.get("grid")), engine)


def planned(file: Path, run: Any, grid: Any, common: Mapping[str, Any] | None = None) -> list[PlannedRun]:
    """The runs of `grid` over what `base_of` gives, with `common` (key -> value) changed in all of them.

    Raises:
        ConfigError: as `load`.
    """
    base = base_of(file, run)
    for key, value in (common or {}).items():
        put(base, key, value)
    parties = get(base, "job.parties")
    axes = _axes(file, grid, [str(one) for one in parties] if isinstance(parties, list) else [])
    return _combine(file, base, axes)


def base_of(file: Path, run: Any) -> Tree:
    """The run file that `run` is, or names as a path beside `file`; paths in it made absolute.

    Raises:
        ConfigError: it is neither, or cannot be read.
    """
    if isinstance(run, str):
        path = file.parent / run
        base = run_files.read(path, "sections such as `job:`")
    elif isinstance(run, dict):
        path, base = file, run
    else:
        raise ConfigError(f"{file}: run: expected {_RUN_EXPECTED}")
    others = base.get("nonlabel_parties")
    for section in [base.get("label_party"), *(others.values() if isinstance(others, dict) else ())]:
        for key in _PATHS:
            if isinstance(found := get(section, key), str):
                put(section, key, str(path.resolve().parent / found))
    return base


def _axes(file: Path, grid: Any, parties: Sequence[str]) -> dict[str, list[_Setting]]:
    if not isinstance(grid, dict) or not grid:
        raise ConfigError(f"{file}: grid: expected {_GRID_EXPECTED}")
    axes = {str(axis): list(_settings(f"{file}: grid: {axis}", str(axis), points)) for axis, points in grid.items()}
    for axis, settings in axes.items():
        for setting in settings:
            for key in setting.changes:
                if problem := problem_of(key, parties):
                    raise ConfigError(f"{file}: grid: {axis if key == axis else f'{axis}: {key}'}: {problem}")
    _require_apart(file, axes)
    count = math.prod(map(len, axes.values()))
    if count > _MOST_RUNS:
        raise ConfigError(f"{file}: grid: {count:,} runs; a sweep has at most {_MOST_RUNS:,}, split it")
    return axes


def _settings(where: str, axis: str, points: Any) -> Iterator[_Setting]:
    """The points of an axis: a list of values of the key `axis`, or named variants that set several keys."""
    if isinstance(points, list) and points:
        if len({canonical(value) for value in points}) < len(points):
            raise ConfigError(f"{where}: a value occurs twice")
        yield from (_Setting(value, {axis: value}) for value in points)
    elif isinstance(points, dict) and points:
        for name, changes in points.items():
            if not isinstance(changes, dict) or not changes:
                raise ConfigError(
                    f"{where}: {name}: expected what this variant sets, such as {{job.batch_size: 64, job.epochs: 5}}; "
                    f"for values of one key write a list"
                )
            yield _Setting(str(name), {str(key): value for key, value in changes.items()})
    else:
        raise ConfigError(f"{where}: expected a list of values, or variants with a name each")


def _require_apart(file: Path, axes: Mapping[str, Sequence[_Setting]]) -> None:
    """No key may be set by two axes, of which one would silently win."""
    owner: dict[str, str] = {}
    for axis, settings in axes.items():
        for key in sorted({key for setting in settings for key in setting.changes}):
            for other, first in owner.items():
                if first != axis and f"{key}.".startswith(f"{other}.") | f"{other}.".startswith(f"{key}."):
                    raise ConfigError(
                        f"{file}: grid: {first} and {axis} both set {max(key, other, key=len)}; tie them together as "
                        "variants of one axis, see docs/sweep.md"
                    )
            owner[key] = axis


def _combine(file: Path, base: Tree, axes: Mapping[str, Sequence[_Setting]]) -> list[PlannedRun]:
    points = [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    varied = [{axis: setting.shown for axis, setting in point.items()} for point in points]
    runs: list[PlannedRun] = []
    problems: dict[str, str] = {}
    for name, shown, point in zip(name_runs(varied), varied, points, strict=True):
        try:
            run_file = _validated(file, base, point)
        except ConfigError as error:
            problems.setdefault(str(error), f"{file}: run {name}: {error}")
            continue
        runs.append(PlannedRun(name, shown, run_file, _plain(run_file.model_dump(exclude_unset=True))))
    if problems:
        raise ConfigError("\n".join(problems.values()))
    return runs


def _validated(file: Path, base: Tree, point: Mapping[str, _Setting]) -> RunFile:
    raw = copy.deepcopy(base)
    for setting in point.values():
        for key, value in setting.changes.items():
            put(raw, key, copy.deepcopy(value))
    run_file = run_files.validate(raw, "the run file it makes", file.resolve().parent)
    label = run_file.label_section()
    for name in run_file.job.parties:
        run_file.nonlabel_section(name)
    host = label.listen.rpartition(":")[0]  # any free port: several runs share this machine
    return run_file.model_copy(update={"label_party": label.model_copy(update={"listen": f"{host}:0"})})


def _plain(value: Any) -> Any:
    """`value` as YAML can hold it, secrets shown."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else value
