"""Criteo's display-advertising data in the form in which it is published: tab-separated, without a header."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from cutlayer.common.datasets.base import SharedRows, datasets, row_numbers
from cutlayer.common.datasets.click_log import COLUMNS, NUMERIC
from cutlayer.common.datasets.columns import Column
from cutlayer.common.datasets.files import existing
from cutlayer.common.errors import DataError
from cutlayer.common.tables import Table

_LABEL = "label"
_ID = "id"
_EXPECTED = f"label, {NUMERIC} whole numbers and {len(COLUMNS) - NUMERIC} hashed categories, without a header"
_CATEGORY = pa.dictionary(pa.int32(), pa.string())
_BLOCK_BYTES = 1 << 24


@datasets.register("criteo")
@dataclass(kw_only=True)
class Criteo(SharedRows):
    """Criteo's click log as published, plain or gzip (.gz): label, 13 numbers, 26 hashed categories; no header.

    A party reads only its own columns. Where two parties stand in for owners of one file, both name that file.

    Args:
        path: the file; in a run file, relative to that file's folder.
        rows: how many rows to read from the beginning; by default all.
        id: position of a further column that names the rows, from 0; by default rows are numbered from 0.
    """

    path: str
    rows: int | None = None
    id: int | None = None

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 1:
            raise ValueError("rows is a number above 0")
        if self.id is not None and not 0 <= self.id <= len(COLUMNS) + 1:
            raise ValueError(f"id is a position from 0 to {len(COLUMNS) + 1}")

    def load(self) -> Table:
        path = existing(Path(self.path))
        own = [COLUMNS[i] for i in self.own_part(len(COLUMNS))]
        wanted = [*([_ID] if self.id is not None else []), *([_LABEL] if self.wants_label else []), *own]
        table = self._read(path, wanted or [_LABEL])
        if not table.num_rows:
            raise DataError(f"{path.name} has no rows")
        label = _checked_label(table[_LABEL], path.name) if self.wants_label else None
        ids, notes = self._ids(table, path.name)
        return Table(ids, table.select(own), label, path.name, notes=tuple(notes))

    def _ids(self, table: pa.Table, origin: str) -> tuple[tuple[str, ...], list[str]]:
        if self.id is None:
            return row_numbers(table.num_rows), []
        ids, notes = Column(table[_ID], _ID, origin, _place).ids()
        return tuple(ids), notes

    @property
    def _names(self) -> list[str]:
        """All columns of the file."""
        names = [_LABEL, *COLUMNS]
        return names if self.id is None else [*names[: self.id], _ID, *names[self.id :]]

    def _read(self, path: Path, wanted: list[str]) -> pa.Table:
        ragged: list[tuple[int, int]] = []

        def note(row: arrow_csv.InvalidRow) -> str:
            ragged.append((row.number, row.actual_columns))
            return "skip"

        try:
            with pa.input_stream(path, compression="detect") as stream:
                reader = arrow_csv.open_csv(stream, *_options(self._names, wanted, note))
                batches = list(_first(reader, self.rows, ragged))
        except pa.ArrowInvalid as error:
            raise DataError(f"{path.name}{_where(error, self._names)}; expected {_EXPECTED}") from None
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error}") from error
        if ragged:
            line, count = ragged[0]
            raise DataError(
                f"{path.name}, line {line}: {count} values between tabs, expected {len(self._names)}: {_EXPECTED}"
            )
        return pa.Table.from_batches(batches, reader.schema)


def _options(
    names: list[str], wanted: list[str], note: object
) -> tuple[arrow_csv.ReadOptions, arrow_csv.ParseOptions, arrow_csv.ConvertOptions]:
    kinds = {name: pa.float64() for name in COLUMNS[:NUMERIC]} | dict.fromkeys(COLUMNS[NUMERIC:], _CATEGORY)
    types = {name: kinds.get(name, pa.string()) for name in wanted}
    return (
        arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=_BLOCK_BYTES),
        arrow_csv.ParseOptions(delimiter="\t", quote_char=False, invalid_row_handler=note),
        arrow_csv.ConvertOptions(
            column_types=types, include_columns=wanted, null_values=[""], strings_can_be_null=True
        ),
    )


def _first(
    reader: arrow_csv.CSVStreamingReader, rows: int | None, ragged: list[tuple[int, int]]
) -> Iterator[pa.RecordBatch]:
    """Batches until there are `rows` rows, or a line that does not fit."""
    left = rows
    for batch in reader:
        if ragged or left == 0:
            return
        part = batch if left is None else batch.slice(0, left)
        left = None if left is None else left - part.num_rows
        yield part


def _checked_label(label: pa.ChunkedArray, origin: str) -> pa.Array:
    wrong = pc.invert(pc.is_in(label, value_set=pa.array(["0", "1"])))
    if count := pc.sum(wrong).as_py():
        row = pc.index(wrong, True).as_py() + 1
        header = "; the file has a header, take `source: csv` for it" if row == 1 and count == 1 else ""
        raise DataError(
            f"{origin}: {count} labels are not 0 or 1, the first in line {row}{header}; expected {_EXPECTED}"
        )
    return label.combine_chunks()


def _where(error: Exception, names: list[str]) -> str:
    """Where a value does not fit; Arrow's own message would show it."""
    if "Empty" in str(error):
        return " has no rows"
    found = re.search(r"In CSV column #(\d+):(?: Row #(\d+):)?", str(error))
    if not found:
        return " cannot be read as tab-separated text"
    line, name = f", line {found[2]}" if found[2] else "", names[int(found[1])]
    kind = "number" if name in COLUMNS[:NUMERIC] else "UTF-8 text"
    return f"{line}: column {name!r} has a value that is no {kind}"


def _place(index: int) -> str:
    return f"line {index + 1}"
