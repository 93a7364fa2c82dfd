"""The table of a sweep's results: a row for each run, attack and layer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from cutlayer.common.parquet import write_table
from cutlayer.sweep.names import canonical
from cutlayer.sweep.plan import PlannedRun

UTILITY = ("test_auc", "test_accuracy", "test_loss", "train_loss")
BOUND = ("per_step_leak_auc", "whole_run_leak_auc")
_BY_STEP = ("mean", "mean_flipped", "p95", "p95_flipped", "max", "null_floor")
_BY_EPOCH = ("pooled", "pooled_flipped", "pooled_last", "pooled_last_flipped", "pooled_last_null_floor")
LEAK = (*_BY_STEP, *_BY_EPOCH, "final", "final_flipped")
COUNTS = ("batches", "skipped")
Row = dict[str, Any]


def write_results(path: Path, finished: Sequence[tuple[PlannedRun, Mapping[str, Any]]]) -> None:
    """Write runs and their summaries, in this order, to the Parquet file `path`.

    No column depends on when or how fast a run went, so the same runs give the same table.
    """
    axes = list(finished[0][0].varied) if finished else []
    rows = [row for run, summary in finished for row in _rows(run, summary)]
    write_table(path, _table(axes, rows))


def _rows(run: PlannedRun, summary: Mapping[str, Any]) -> Iterator[Row]:
    defense = dict(summary["defense"])
    common: Row = {"run": run.name, **{f"grid.{axis}": value for axis, value in run.varied.items()}}
    common |= {"job": summary["job"], "seed": run.run_file.job.seed, "defense": defense.pop("name")}
    common |= {"defense_options": canonical(defense)}
    common |= {name: summary["utility"].get(name) for name in UTILITY}
    common |= {f"bound_{name}": (summary.get("bound") or {}).get(name) for name in BOUND}
    leaks = list(_leaks(summary["leak"]))
    yield from ({**common, **leak} for leak in leaks or [{}])


def _leaks(leak: Mapping[str, Any]) -> Iterator[Row]:
    """The audit's figures, then those of each party's attacks."""
    for who, attacks in {"audit": leak["audit"], **leak.get("attacks", {})}.items():
        for attack, layers in attacks.items():
            for layer, figures in layers.items():
                row: Row = {"by": who, "attack": attack, "layer": layer}
                row |= {f"leak_{name}": figures.get(name) for name in LEAK}
                yield row | {name: figures.get(name) for name in COUNTS}


def _table(axes: Sequence[str], rows: Sequence[Row]) -> pa.Table:
    columns = {"run": pa.string()}
    columns |= {f"grid.{axis}": _type_of([row[f"grid.{axis}"] for row in rows]) for axis in axes}
    columns |= {"job": pa.string(), "seed": pa.int64(), "defense": pa.string(), "defense_options": pa.string()}
    columns |= dict.fromkeys([*UTILITY, *(f"bound_{name}" for name in BOUND)], pa.float64())
    columns |= dict.fromkeys(["by", "attack", "layer"], pa.string())
    columns |= dict.fromkeys([f"leak_{name}" for name in LEAK], pa.float64()) | dict.fromkeys(COUNTS, pa.int64())
    arrays = [pa.array([_as(row.get(name), kind) for row in rows], type=kind) for name, kind in columns.items()]
    return pa.table(arrays, names=list(columns))


def _type_of(values: Sequence[Any]) -> pa.DataType:
    """Numbers stay numbers where an axis has nothing else; the rest is text."""
    known = [value for value in values if value is not None]
    for kind, types in ((pa.bool_(), (bool,)), (pa.int64(), (int,)), (pa.float64(), (int, float))):
        if known and all(type(value) in types for value in known):
            return kind
    return pa.string()


def _as(value: Any, kind: pa.DataType) -> Any:
    if value is None or not pa.types.is_string(kind) or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, default=str)
