"""How a CSV file is written: what separates its values, and whether it has a header."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from cutlayer.common.datasets.columns import MISSING, NUMBER
from cutlayer.common.datasets.roles import tidy

if TYPE_CHECKING:
    from _csv import Reader

SEPARATORS = (",", ";", "\t", "|")

_SAMPLE_RECORDS = 100
_SAMPLE_CHARACTERS = 1 << 20

Record = list[str]


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written.

    Attributes:
        separator: one character.
        quoting: whether quotes enclose values; otherwise they are part of them.
        header: whether the first record names the columns.
        names: column names; `c0`, `c1`, ... without a header, `unnamed_0` at position 0 for one without a name.
    """

    separator: str
    quoting: bool
    header: bool
    names: tuple[str, ...]

    def records(self, text: str) -> Iterator[tuple[int, Record]]:
        """Records of a file, the header included, each with the number of its last line.

        A blank line is no record, unless there is but one column: there it is a value that is missing.
        """
        started = False
        reader = _reader(text, self.separator, self.quoting)
        for record in reader:
            if record or (started and len(self.names) == 1):
                started = True
                yield reader.line_num, record


def sniff(
    text: str, separator: str | None, quoting: bool, header: bool | None, wanted_names: Collection[str]
) -> Dialect:
    """Find out how a file is written, from its first records.

    The separator is the one that cuts most records into as many values as the first. The first record is a header if
    it holds a name that is asked for, if a column of numbers begins with a text, or if it holds no number at all.

    Args:
        text: the file, with at least one character other than line breaks.
        separator, quoting, header: what a person said; None: to be found out.
        wanted_names: column names that the run file mentions.
    """
    if separator is None:
        separator = max(SEPARATORS, key=lambda candidate: _fitness(_sample(text, candidate, quoting)))
    first, *rest = _sample(text, separator, quoting) or [[text]]
    if header is None:
        header = _is_header(first, rest, {*wanted_names, "id"})
    cells = map(tidy, first)
    names = tuple((cell or f"unnamed_{i}") if header else f"c{i}" for i, cell in enumerate(cells))
    return Dialect(separator, quoting, header, names)


def _reader(text: str, separator: str, quoting: bool) -> Reader:
    style: Literal[0, 3] = csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE
    return csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=style, skipinitialspace=True)


def _sample(text: str, separator: str, quoting: bool) -> list[Record]:
    cut = text[:_SAMPLE_CHARACTERS]
    try:
        records = list(islice(filter(None, _reader(cut, separator, quoting)), _SAMPLE_RECORDS + 1))
    except csv.Error:  # a value of more than 128 KiB: a quote is not closed with this separator
        return []
    whole = len(cut) == len(text) and len(records) <= _SAMPLE_RECORDS
    return records if whole or len(records) == 1 else records[:-1]


def _fitness(records: Sequence[Record]) -> tuple[float, int]:
    """Share of the records that have as many values as the first, and that number; nothing if it is one."""
    if not records or len(records[0]) == 1:
        return 0.0, 0
    values, count = len(records[0]), Counter(map(len, records))
    return count[values] / len(records), values


def _is_header(first: Record, rest: Sequence[Record], wanted_names: Collection[str]) -> bool:
    cells = list(map(tidy, first))
    if any(cell in wanted_names or cell.lower() in wanted_names for cell in cells):
        return True
    if any(_begins_with_text(cell, [record[i] for record in rest if i < len(record)]) for i, cell in enumerate(cells)):
        return True
    return not any(map(_is_number, cells))


def _begins_with_text(cell: str, others: Sequence[str]) -> bool:
    known = [other for other in others if not _is_missing(other)]
    return not _is_missing(cell) and not _is_number(cell) and bool(known) and all(map(_is_number, known))


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def _is_number(cell: str) -> bool:
    return re.match(NUMBER, cell.strip()) is not None
