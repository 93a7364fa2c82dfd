"""CSV files as people have them: any common separator, with or without a header, quotes, byte order mark, spaces."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from cutlayer.common.datasets.base import datasets
from cutlayer.common.datasets.columns import counted
from cutlayer.common.datasets.dialect import Dialect, sniff
from cutlayer.common.datasets.files import RawTable, TableFile
from cutlayer.common.errors import DataError

_MAX_BLOCK_BYTES = 1 << 30
_LITERAL_QUOTES = "where quotes are part of the text, write `quoting: false`"


@datasets.register("csv")
@dataclass(kw_only=True)
class Csv(TableFile):
    """A CSV file in UTF-8, or in UTF-16 with a byte order mark.

    Args:
        separator: one character, or `tab`; by default that of comma, semicolon, tab and bar which fits the file.
        header: whether the first line names the columns; by default found out. Without, they are c0, c1, ...
        quoting: whether quotes enclose values; false where they are part of the text.
    """

    separator: str | None = None
    header: bool | None = None
    quoting: bool = True

    def read(self, path: Path) -> RawTable:
        text = _read_text(path)
        dialect = sniff(text, _separator(self.separator), self.quoting, self.header, self.wanted.names())
        place = partial(_place, path, dialect)
        columns = _parse(_canonical(text, dialect, path.name), dialect, path.name, place)
        notes = []
        if not dialect.header and self.header is None:
            notes.append(f"{path.name}: no header found; the columns are called c0 to c{len(dialect.names) - 1}")
        if breaks := sum(pc.sum(pc.count_substring(column, "\n")).as_py() or 0 for column in columns):
            notes.append(f"{path.name}: {counted(breaks, 'line break')} inside quotes; {_LITERAL_QUOTES}")
        return RawTable(dialect.names, columns, place, tuple(notes))


def _separator(written: str | None) -> str | None:
    separator = "\t" if written in ("tab", r"\t") else written
    if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
        raise DataError(f"separator: {written!r}: expected one character that is no quote or line break, or tab")
    return separator


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path.name}: byte {error.start} (line {line}) is not {encoding.upper()}; save the file as UTF-8"
        ) from error
    if "\0" in text:
        raise DataError(
            f"{path.name}: byte {text.encode().index(0)} is a NUL, so this is no text; save it as UTF-8 CSV"
        )
    if not text.strip("\r\n"):
        raise DataError(f"{path.name} has no rows: the file is empty")
    return text


def _canonical(text: str, dialect: Dialect, origin: str) -> str:
    """The file as Arrow reads it: no blank lines around, no spaces between a separator and a quote."""
    text = text.strip("\r\n") + "\n"
    if not dialect.quoting or f'{dialect.separator} "' not in text:
        return text
    out = io.StringIO(newline="")
    try:
        csv.writer(out, delimiter=dialect.separator).writerows(record for _, record in dialect.records(text))
    except csv.Error as error:
        raise DataError(f"{origin}: {error}; {_LITERAL_QUOTES}") from error
    return out.getvalue()


def _parse(text: str, dialect: Dialect, origin: str, place: Callable[[int], str]) -> tuple[pa.ChunkedArray, ...]:
    """All columns as strings, so that values stay as written."""
    ragged: list[tuple[int, int]] = []

    def note(row: arrow_csv.InvalidRow) -> str:
        ragged.append((row.number, row.actual_columns))
        return "skip"

    data, count = text.encode(), len(dialect.names)
    names = list(map(str, range(count)))
    table = arrow_csv.read_csv(
        pa.BufferReader(data),
        arrow_csv.ReadOptions(
            column_names=names,
            skip_rows_after_names=int(dialect.header),
            use_threads=False,  # with threads, rows have no numbers
            block_size=min(len(data), _MAX_BLOCK_BYTES),
        ),
        arrow_csv.ParseOptions(
            delimiter=dialect.separator,
            quote_char='"' if dialect.quoting else False,
            newlines_in_values=dialect.quoting,
            ignore_empty_lines=count > 1,
            invalid_row_handler=note,
        ),
        arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), null_values=[]),
    )
    if ragged:
        _refuse_ragged(ragged, dialect, origin, place)
    last = table.columns[-1][-1].as_py() if table.num_rows else ""
    if last.endswith("\n") and not text.endswith('"\n'):
        raise DataError(f"{origin}: a quote is never closed; {_LITERAL_QUOTES}")
    return tuple(table.columns)


def _refuse_ragged(ragged: list[tuple[int, int]], dialect: Dialect, origin: str, place: Callable[[int], str]) -> None:
    number, values = ragged[0]
    more = f" ({len(ragged)} rows have another number, this one first)" if len(ragged) > 1 else ""
    raise DataError(
        f"{origin}, {place(number - 1 - dialect.header)}: {counted(values, 'value')}, expected {len(dialect.names)} as "
        f"in the first line{more}; the separator is taken to be {dialect.separator!r}, `separator: ...` says "
        f"otherwise; {_LITERAL_QUOTES}"
    )


def _place(path: Path, dialect: Dialect, index: int) -> str:
    """Where a person finds a row; reads the file again, so that only a file with an error pays for it."""
    try:
        line, _ = next(islice(dialect.records(_read_text(path)), index + dialect.header, None))
    except (csv.Error, StopIteration):
        return f"row {index + 1}"
    return f"row {index + 1} (line {line})"
