"""What the values of one column of a file become: ids, labels, numbers or categories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.common.datasets.roles import Kind
from cutlayer.common.errors import DataError

MISSING = ("", "?", "n/a", "na", "nan", "none", "null")  # in any case

NUMBER = r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:inf|infinity))$"


@dataclass(frozen=True)
class Column:
    """A column of a file.

    Attributes:
        values: as read.
        name: its name.
        origin: the file's name.
        place: where a person finds the row of an index, such as `row 6 (line 7)`.
    """

    values: pa.ChunkedArray
    name: str
    origin: str
    place: Callable[[int], str]

    def ids(self) -> tuple[list[str], list[str]]:
        """The column as row ids, without spaces around them and in Unicode normal form C; and notes.

        Raises:
            DataError: ids that are missing, occur twice, or are stored as numbers with a decimal point.
        """
        kind = _stored_type(self.values)
        if not (_is_text(kind) or pa.types.is_integer(kind)):
            raise DataError(
                f"{self.origin}: the id column {self.name!r} is stored as {kind}; store ids as text or whole numbers, "
                "written as the other parties write theirs"
            )
        texts = self.values.cast(pa.string())
        ids = _tidy(texts)
        if missing := ids.null_count + _count(pc.equal(ids, "")):
            raise DataError(f"{self.origin}: {_rows(missing)} no id in column {self.name!r}")
        counts = pc.value_counts(ids).field("counts")
        if repeated := _count(pc.greater(counts, 1)):
            raise DataError(
                f"{counted(repeated, 'id occurs', 'ids occur')} more than once in {self.origin}, column {self.name!r}; "
                "keep one row for each id, or name another column with `id: ...`"
            )
        trimmed = _count(pc.not_equal(pc.utf8_trim_whitespace(texts), texts))
        notes = [f"{self.origin}: spaces around {counted(trimmed, 'id')} were trimmed"] if trimmed else []
        return ids.to_pylist(), notes

    def label(self) -> pa.Array:
        """The column as labels: texts, null where missing."""
        return self._texts().combine_chunks()

    def feature(self, wanted: Kind | None) -> tuple[pa.ChunkedArray, list[str]]:
        """The column as float64 numbers or as string categories, null where missing; and notes.

        Args:
            wanted: the kind that a person asked for; None: numbers where every value is one.

        Raises:
            DataError: a value does not fit, or the column is of a type that is neither.
        """
        kind = self.values.type
        if wanted is None and pa.types.is_dictionary(kind):
            wanted = "categorical"
        if _is_text(_stored_type(self.values)) or wanted == "categorical":
            return self._from_texts(wanted)
        if pa.types.is_boolean(kind):
            return self.values.cast(pa.int8()).cast(pa.float64()), []
        if (
            pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_decimal(kind)
            or pa.types.is_null(kind)
        ):
            return self._finite(self.values.cast(pa.float64(), safe=False)), []
        raise DataError(
            f"{self.origin}: column {self.name!r} is of type {kind}, which is neither numbers nor text; turn it into "
            f"one of them, or leave it out with `drop: [{self.name}]`"
        )

    def _texts(self) -> pa.ChunkedArray:
        try:
            texts = _tidy(self.values.cast(pa.string()))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(f"{self.origin}: column {self.name!r} of type {self.values.type} holds no text") from error
        missing = pc.is_in(pc.utf8_lower(texts), value_set=pa.array(MISSING))
        return pc.if_else(missing, pa.scalar(None, pa.string()), texts)

    def _from_texts(self, wanted: Kind | None) -> tuple[pa.ChunkedArray, list[str]]:
        texts = self._texts()
        if wanted == "categorical":
            return texts, []
        # Not by trying the cast, which makes a message for every value that fails.
        no_number = pc.invert(pc.match_substring_regex(texts, NUMBER))
        count, known = _count(no_number), len(texts) - texts.null_count
        if not count:
            return self._finite(texts.cast(pa.float64())), []
        if wanted == "numeric":
            raise DataError(
                f"{self.origin}, {self._first(no_number)}: column {self.name!r} is listed under `numeric` and has "
                f"{counted(count, 'value')} that {'is' if count == 1 else 'are'} no number, this one first"
            )
        if count * 2 > known:
            return texts, []
        return texts, [
            f"{self.origin}: column {self.name!r} is taken as categories: {count} of {known} values are no numbers, "
            f"the first in {self._first(no_number)}; list the column under `numeric` or `categorical` to decide"
        ]

    def _finite(self, numbers: pa.ChunkedArray) -> pa.ChunkedArray:
        infinite = pc.is_inf(numbers)
        if count := _count(infinite):
            raise DataError(
                f"{self.origin}, {self._first(infinite)}: column {self.name!r} has "
                f"{counted(count, 'number')} that {'is' if count == 1 else 'are'} infinite or too large, this one "
                "first; write a finite number, or nothing where it is missing"
            )
        return pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)

    def _first(self, mask: pa.ChunkedArray) -> str:
        return self.place(pc.index(mask, True).as_py())


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number and its noun, for a message."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def _tidy(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_normalize(pc.utf8_trim_whitespace(texts), form="NFC")


def _stored_type(values: pa.ChunkedArray) -> pa.DataType:
    return values.type.value_type if pa.types.is_dictionary(values.type) else values.type


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)


def _rows(count: int) -> str:
    return "1 row has" if count == 1 else f"{count} rows have"
