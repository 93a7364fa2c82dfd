"""IDX files, the format in which MNIST and its relatives are published."""

from __future__ import annotations

import gzip
import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from cutlayer.common.datasets.base import Dataset, datasets, row_numbers
from cutlayer.common.datasets.files import existing
from cutlayer.common.errors import DataError
from cutlayer.common.tables import Image, Table

_UNSIGNED_BYTES = 8  # the type code of the third byte


@datasets.register("idx")
@dataclass(kw_only=True)
class Idx(Dataset):
    """An IDX file of bytes, plain or gzip: labels where it has one dimension, grey or colour images where more.

    The label party names the file of labels, another party that of the images. Ids are row numbers.

    Args:
        path: the file; in a run file, relative to that file's folder.
    """

    path: str

    def load(self) -> Table:
        path = existing(Path(self.path))
        shape, data = _parse(_read(path), path.name)
        values = np.frombuffer(data, np.uint8).reshape(shape[0], -1)
        ids = row_numbers(shape[0])
        if len(shape) == 1:
            return Table(ids, pa.table({}), pa.array(map(str, values[:, 0].tolist()), pa.string()), path.name)
        columns = {f"pixel{i}": pa.array(np.ascontiguousarray(values[:, i])) for i in range(values.shape[1])}
        return Table(ids, pa.table(columns), None, path.name, _image(shape[1:], path.name))


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    except (OSError, EOFError, zlib.error) as error:  # gzip.BadGzipFile is an OSError
        raise DataError(f"{path} cannot be read: {error}") from error


def _parse(data: bytes, origin: str) -> tuple[tuple[int, ...], bytes]:
    """The dimensions and the values after them."""
    if len(data) < 4 or data[:2] != b"\0\0" or not data[3]:
        raise DataError(f"{origin} is no IDX file: it does not begin with two zero bytes, a type and its dimensions")
    if data[2] != _UNSIGNED_BYTES:
        raise DataError(f"{origin}: values of IDX type {data[2]}; only unsigned bytes (type 8) are read")
    start = 4 + 4 * data[3]
    shape = tuple(int.from_bytes(data[i : i + 4], "big") for i in range(4, start, 4))
    if len(data) < start or len(data) - start != math.prod(shape):
        raise DataError(f"{origin} is cut off or has more than it says: {len(data)} bytes for dimensions {shape}")
    if not math.prod(shape):
        raise DataError(f"{origin} has no rows")
    return shape, data[start:]


def _image(shape: tuple[int, ...], origin: str) -> Image:
    if len(shape) == 2:
        return 1, shape[0], shape[1]
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    raise DataError(f"{origin}: rows of {len(shape)} dimensions; expected height and width, or channels before them")
