"""What CSV and Parquet files have in common: options, and a Table of the columns."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from cutlayer.common.datasets.base import Dataset, row_numbers
from cutlayer.common.datasets.columns import Column
from cutlayer.common.datasets.roles import Reference, Wanted, assign_roles
from cutlayer.common.errors import DataError
from cutlayer.common.tables import Image, Table, listed

_MOST_SHOWN = 8


@dataclass(frozen=True)
class RawTable:
    """A file as read.

    Attributes:
        names: column names.
        columns: one a name; of a CSV file, strings.
        place: where a person finds the row of an index, such as `row 6 (line 7)`.
        notes: what a person should know.
    """

    names: tuple[str, ...]
    columns: tuple[pa.ChunkedArray, ...]
    place: Callable[[int], str]
    notes: tuple[str, ...] = ()


@dataclass(kw_only=True)
class TableFile(Dataset):
    """A file of rows. A column is named by its header, or by its position: 0 is the first, -1 the last.

    A column is numbers where every value is one, and categories otherwise, unless it is listed. Where both lists are
    given, columns in neither are left out; where one is, the kind of the others follows from their values. Columns of
    row numbers that have no name, or one that pandas made up, are left out unless listed.

    Args:
        path: the file; in a run file, relative to that file's folder.
        id: column that names the rows; by default the one called `id`, in any case, or else rows are numbered from 0.
        label: column of the labels; at a party without labels, none.
        numeric: columns of numbers.
        categorical: columns of categories.
        drop: columns to leave out.
        image: channels, height and width, where the feature columns are pixels: channel by channel, row by row.
    """

    path: str
    id: Reference | None = None
    label: Reference | None = None
    numeric: tuple[Reference, ...] | None = None
    categorical: tuple[Reference, ...] | None = None
    drop: tuple[Reference, ...] = ()
    image: Image | None = None

    @abstractmethod
    def read(self, path: Path) -> RawTable:
        """Read an existing file."""

    @property
    def wanted(self) -> Wanted:
        """What the options say of the columns."""
        return Wanted(self.id, self.label, self.numeric, self.categorical, self.drop)

    def load(self) -> Table:
        path = existing(Path(self.path))
        raw = self.read(path)
        roles = assign_roles(raw.names, self.wanted, path.name)
        columns = {
            name: Column(values, name, path.name, raw.place)
            for name, values in zip(raw.names, raw.columns, strict=True)
        }
        count = len(raw.columns[0])
        if not count:
            raise DataError(f"{path.name} has no rows")
        ids, id_notes = columns[roles.id].ids() if roles.id else (row_numbers(count), [])
        label = columns[roles.label].label() if roles.label else None
        features, notes = {}, [*raw.notes, *roles.notes, *id_notes]
        for name, kind in roles.features.items():
            features[name], more = columns[name].feature(kind)
            notes += more
        notes += _missing(features, count, path.name)
        image = None if self.image is None else _image(self.image, features, path.name)
        return Table(tuple(ids), pa.table(features), label, path.name, image, tuple(notes))


def existing(path: Path) -> Path:
    """`path`, if it is a file.

    Raises:
        DataError: there is none.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is no regular file")
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it")
    if not path.exists():
        raise DataError(f"{path} does not exist; `path` is relative to the run file's folder")
    return path


def _image(image: Image, features: Mapping[str, pa.ChunkedArray], origin: str) -> Image:
    if texts := [name for name, column in features.items() if not pa.types.is_floating(column.type)]:
        raise DataError(
            f"{origin}: with `image` every feature column is a pixel, and {listed(texts)} hold no numbers; leave other "
            "columns out with `drop: [...]`"
        )
    if min(image) < 1 or math.prod(image) != len(features):
        shape = " x ".join(map(str, image))
        raise DataError(
            f"{origin}: image: {shape} (channels, height, width) are {math.prod(image)} pixels, and there are "
            f"{len(features)} feature columns; leave columns that are no pixels out with `drop: [...]`"
        )
    return image


def _missing(features: Mapping[str, pa.ChunkedArray], rows: int, origin: str) -> list[str]:
    counts = {name: column.null_count for name, column in features.items() if column.null_count}
    if not counts:
        return []
    shown = ", ".join(f"{name!r} {count}" for name, count in list(counts.items())[:_MOST_SHOWN])
    more = f" and {len(counts) - _MOST_SHOWN} more columns" if len(counts) > _MOST_SHOWN else ""
    return [
        f"{origin}: {sum(counts.values())} missing values in {rows} rows ({shown}{more}); a number becomes the mean of "
        "the training rows, a category the code 0"
    ]
