"""Labels as whole numbers: what the label party's label column means."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutlayer.common.errors import DataError
from cutlayer.common.tables import Table

Positive = str | int | float | bool | None

_WORDS = {"true": 1.0, "false": 0.0}
# What YAML reads `Yes` or `off` as, where the run file has no quotes around it.
_YAML_WORDS = {True: frozenset({"yes", "true", "on"}), False: frozenset({"no", "false", "off"})}


@dataclass(frozen=True)
class Labels:
    """The labels of a table's N rows.

    Attributes:
        y: (N,); 0 or 1, or 0..k-1; -1 where the row is dropped.
        keep: (N,); false where the row is dropped.
        notes: what a person should know; no label.
    """

    y: npt.NDArray[np.int64]
    keep: npt.NDArray[np.bool_]
    notes: tuple[str, ...] = ()


def read_labels(table: Table, *, task: str, classes: int, positive: Positive, missing_label: str) -> Labels:
    """The table's labels as numbers.

    Binary labels are 0 and 1, false and true, or -1 and 1; or, with `positive`, that value against all others. Labels
    of `classes` classes are 0..k-1, or else any k values, numbered in sorted order.

    Args:
        task: `binary` or `multiclass`.
        classes: number of classes k of a multiclass task.
        positive: binary: the value that counts as 1; compared as text, as a number, or as a word that YAML takes for
            true or false.
        missing_label: `error`, or `drop` for leaving rows without a label out.

    Raises:
        DataError: no label column, missing labels, or values that do not fit the task. It shows none.
    """
    if table.label is None:
        raise DataError(f"{table.origin}: there is no label column; name it with `label: ...` in the party's data")
    encoded = table.label.cast(pa.string()).dictionary_encode()
    position_N = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy()
    keep = position_N >= 0
    notes = _missing(table.origin, int(np.count_nonzero(~keep)), missing_label)
    values: list[str] = encoded.dictionary.to_pylist()
    if not values:
        raise DataError(f"{table.origin}: no row has a label")
    if task == "binary":
        counts = np.bincount(position_N[keep], minlength=len(values))
        class_of_value = _binary(values, counts, positive, table.origin)
    else:
        class_of_value, more = _multiclass(values, classes, table.origin)
        notes += more
    return Labels(np.array([*class_of_value, -1], dtype=np.int64)[position_N], keep, tuple(notes))


def require_classes(y_train: npt.NDArray[np.int64], task: str) -> None:
    """Check that there is something to learn.

    Raises:
        DataError: the training rows have one class only. For the label party alone: it tells about labels.
    """
    found = len(np.unique(y_train))
    if found < 2:
        raise DataError(
            f"the {len(y_train)} training rows have {found} class, expected "
            f"{'2' if task == 'binary' else 'at least 2'}; there is nothing to learn from them: check the label "
            "column, `positive` and which rows all parties hold"
        )


def _missing(origin: str, missing: int, missing_label: str) -> list[str]:
    if not missing:
        return []
    if missing_label != "drop":
        pronoun = "it" if missing == 1 else "them"
        raise DataError(f"{origin}: {_rows(missing)} no label; `missing_label: drop` drops {pronoun}")
    return [f"{origin}: {_rows(missing)} no label and {'is' if missing == 1 else 'are'} dropped"]


def _binary(values: Sequence[str], counts: npt.NDArray[np.int64], positive: Positive, origin: str) -> list[int]:
    """0 or 1 for each value."""
    if positive is not None:
        counts_as_one = [_equals(value, positive) for value in values]
        if not any(counts_as_one):
            raise DataError(
                f"{origin}: `positive` is {positive!r}, and no label is; the label column has {_different(values)}, of "
                "which it must be one, as it is written there"
            )
        return list(map(int, counts_as_one))
    numbers = {_number(value) for value in values}
    if numbers <= {0.0, 1.0} or numbers <= {-1.0, 1.0}:
        return [int(_number(value) == 1) for value in values]
    odd = int(counts[[_number(value) not in (-1.0, 0.0, 1.0) for value in values]].sum())
    others, instead = ("the other", "") if len(values) == 2 else ("all others", ", or write task: multiclass")
    raise DataError(
        f"{origin}: task binary, but the label column has {_different(values)}, expected 0 and 1, -1 and 1, or false "
        f"and true{f'; {_rows(odd)} something else' if odd else ''}; say which value counts as 1 against {others}, in "
        f"the label party's data: `positive: ...`{instead}"
    )


def _multiclass(values: Sequence[str], classes: int, origin: str) -> tuple[list[int], list[str]]:
    """0 to k-1 for each value, and notes."""
    numbers = [number for number in map(_number, values) if number is not None]
    keys = [(n, "") for n in numbers] if len(numbers) == len(values) else [(0.0, value) for value in values]
    rank_of = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    if len(rank_of) != classes:
        raise DataError(
            f"{origin}: the label column has {len(rank_of)} different values, but job.classes is {classes}; "
            "write that number there, or see which column `label` names"
        )
    notes = []
    if any(key != (rank, "") for key, rank in rank_of.items()):
        notes = [f"{origin}: the labels are not 0 to {classes - 1}; their {classes} values are numbered in order"]
    return [rank_of[key] for key in keys], notes


def _rows(count: int) -> str:
    return "1 row has" if count == 1 else f"{count} rows have"


def _different(values: Sequence[str]) -> str:
    """How many there are. Which ones is for nobody's log: the column may be another than a person thinks."""
    return f"{len(values)} different value{'' if len(values) == 1 else 's'}"


def _equals(label: str, positive: str | int | float | bool) -> bool:
    """Whether a label is the value that a person wrote in the run file."""
    if label == unicodedata.normalize("NFC", str(positive)).strip():
        return True
    if isinstance(positive, bool) and label.lower() in _YAML_WORDS[positive]:
        return True
    return _number(label) is not None and _number(label) == _number(str(positive))


def _number(value: str) -> float | None:
    """The number that a label is; None where it is none."""
    try:
        number = _WORDS[value.lower()] if value.lower() in _WORDS else float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
