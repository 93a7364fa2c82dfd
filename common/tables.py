"""A party's rows as they are, and the numbers that a bottom model gets.

Whatever is learned from data (means, deviations, vocabularies) is learned from the training rows alone.

Shape suffixes: N rows, F features, C columns of one group that is scaled together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from cutlayer.common.errors import DataError

Image = tuple[int, int, int]  # channels, height, width
Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """A party's rows.

    Attributes:
        ids: N ids, each once.
        columns: feature columns, N rows: float64 for numbers (uint8 for pixels), string (plain or dictionary-encoded)
            for categories, null where a value is missing.
        label: labels as written, N strings, null where missing; None at a party without labels.
        origin: where the rows come from, for messages, such as `bank.csv`.
        image: set where the numeric columns are the pixels of an image, channel by channel, row by row.
        notes: what a person should know; no id, label or value.
    """

    ids: tuple[str, ...]
    columns: pa.Table
    label: pa.Array | None
    origin: str
    image: Image | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class InputSpec:
    """What a bottom model gets.

    Attributes:
        numeric: number of numeric columns.
        cardinalities: for each categorical column the number of its codes, the code 0 included.
        image: set where the numeric columns are pixels; its product is `numeric`.
    """

    numeric: int
    cardinalities: tuple[int, ...] = ()
    image: Image | None = None

    @property
    def width(self) -> int:
        """Columns of the input."""
        return self.numeric + len(self.cardinalities)


@dataclass(frozen=True)
class Features:
    """Input of a bottom model, in aligned order.

    Attributes:
        x_NF: float32, finite. Numeric columns, then category codes as whole numbers: 0 for a category that is missing
            or does not occur in the training rows, 1 and up for the others.
        spec: what the columns are.
        notes: what a person should know; no value.
    """

    x_NF: Tensor
    spec: InputSpec
    notes: tuple[str, ...] = ()


def prepare(table: Table, order: Indices, train_rows: Indices, standardise: bool) -> Features:
    """Turn a table's columns into numbers.

    A missing number becomes the mean of the training rows. A column that is constant in the training rows is
    standardised to zeros, and one without any number in them becomes zeros. An image is scaled as a whole, by one mean
    and one deviation. Categories are numbered in the order of their texts.

    Args:
        table: N' rows.
        order: aligned row i is row order[i] of the table, (N,).
        train_rows: aligned rows to learn means, deviations and vocabularies from.
        standardise: scale numeric columns to mean 0 and (population) deviation 1 over the training rows.

    Raises:
        DataError: no feature columns, or numbers that are infinite or too large for 32 bits.
    """
    names = [field.name for field in table.columns.schema if not _is_category(field.type)]
    others = [field.name for field in table.columns.schema if _is_category(field.type)]
    if not names and not others:
        raise DataError(
            f"{table.origin}: there are no feature columns; every other column is an id, a label or dropped"
        )
    x_NF = np.empty((len(order), len(names) + len(others)), dtype=np.float32)
    scaler = _Scaler(table, train_rows, standardise)
    for first, group in _groups(names, table):
        x_NF[:, first : first + len(group)] = scaler.scale(group, order)
    cardinalities = []
    for position, name in enumerate(others, start=len(names)):
        x_NF[:, position], cardinality = _codes(table.columns[name], order, train_rows)
        cardinalities.append(cardinality)
    spec = InputSpec(len(names), tuple(cardinalities), table.image)
    return Features(torch.from_numpy(x_NF), spec, tuple(scaler.notes()))


def listed(names: Sequence[str], most: int = 8) -> str:
    """The names in quotes, for a message; only the first ones where they are many."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + rest


def _is_category(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind))


def _groups(names: list[str], table: Table) -> Iterator[tuple[int, list[str]]]:
    """Columns that are scaled together, each with the position of its first."""
    if table.image is not None:
        if (pixels := math.prod(table.image)) != len(names):
            raise DataError(f"{table.origin}: an image of {pixels} pixels, but {len(names)} numeric columns")
        yield 0, names
    else:
        yield from ((position, [name]) for position, name in enumerate(names))


class _Scaler:
    """Imputes and standardises groups of numeric columns, and remembers the odd ones."""

    def __init__(self, table: Table, train_rows: Indices, standardise: bool) -> None:
        self._table = table
        self._train_rows = train_rows
        self._standardise = standardise
        self._constant: list[str] = []
        self._empty: list[str] = []

    def scale(self, group: list[str], order: Indices) -> npt.NDArray[np.float32]:
        """The group's columns as the model gets them, (N, C)."""
        values_NC = np.stack([_numbers(self._table.columns[name])[order] for name in group], axis=1)
        train_NC = values_NC[self._train_rows]
        known = train_NC[~np.isnan(train_NC)]
        if not len(known):
            self._empty += group
            return np.zeros(values_NC.shape, np.float32)
        with np.errstate(all="ignore"):  # what comes out is checked
            scaled_NC = self._standardised(group, values_NC, known) if self._standardise else values_NC
            filled_NC = np.where(np.isnan(values_NC), 0.0 if self._standardise else known.mean(), scaled_NC)
            x_NC: npt.NDArray[np.float32] = filled_NC.astype(np.float32)
        if not np.isfinite(x_NC).all():
            raise DataError(
                f"{self._table.origin}: column {listed(group, 1)}: numbers that are infinite or too large for 32 bits"
            )
        return x_NC

    def _standardised(self, group: list[str], values_NC: Numbers, known: Numbers) -> Numbers:
        low, span = known.min(), np.ptp(known)
        if span == 0:
            self._constant += group
            return np.zeros_like(values_NC)
        # In units of the span no square vanishes or overflows, however small or large the numbers are.
        units = (known - low) / span
        scaled_NC: Numbers = ((values_NC - low) / span - units.mean()) / units.std()
        return scaled_NC

    def notes(self) -> Iterator[str]:
        """What a person should know about the scaled columns."""
        for names, what in ((self._constant, "constant"), (self._empty, "missing everywhere")):
            if names:
                yield f"{self._table.origin}: {what} in the training rows, taken as zeros: {listed(names)}"


def _numbers(column: pa.ChunkedArray) -> Numbers:
    """A numeric column with NaN where a value is missing, (N,)."""
    numbers: Numbers = column.cast(pa.float64()).to_numpy()
    return numbers


def _codes(column: pa.ChunkedArray, order: Indices, train_rows: Indices) -> tuple[Indices, int]:
    """Category codes, (N,), and how many there are."""
    encoded = _encode(column)
    position_N = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy()[order]
    train = position_N[train_rows]
    known = np.unique(train[train >= 0])
    by_text = known[pc.array_sort_indices(encoded.dictionary.take(pa.array(known))).to_numpy()]
    code_of_position = np.zeros(len(encoded.dictionary) + 1, dtype=np.int64)  # the last one is for the position -1
    code_of_position[by_text] = np.arange(1, len(known) + 1)
    return code_of_position[position_N], len(known) + 1


def _encode(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """One dictionary-encoded array whose dictionary has every text once."""
    text = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return column.cast(text).combine_chunks().dictionary_encode()
