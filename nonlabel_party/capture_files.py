"""The files of a capture: their names, what a step is in them, and whether they are still as they were written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from cutlayer.common.errors import UserError

SCHEMA = 1
HEADER, ROWS, PART_SUFFIX = "capture.json", "rows.arrow", "arrow"
_NUMBERS = pa.list_(pa.float32())
STEP_SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("rows", pa.list_(pa.int64())),  # (B,), indices into rows.arrow
        ("z", _NUMBERS),  # (B, d), row after row; and so are the following
        ("g", _NUMBERS),  # (B, d)
        ("g_first", _NUMBERS),  # (B, D), at the first layer; null where not recorded
        ("positive_row", pa.int64()),  # index in the batch; null at a step without granted gradient
        ("positive_g", _NUMBERS),  # (d,)
        ("positive_g_first", _NUMBERS),  # (D,)
    ]
)


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def require_unchanged(path: Path, expected: str) -> None:
    """UserError unless the file has that checksum."""
    with _understood(path):
        found = checksum(path)
    if found != expected:
        raise _damaged(path, "its checksum is another")


@contextmanager
def opened(path: Path) -> Iterator[pa.RecordBatchFileReader]:
    """An Arrow file, to read.

    Raises:
        UserError: it cannot be read, also later while the context lasts.
    """
    with _understood(path), pa.memory_map(str(path)) as file, pa.ipc.open_file(file) as reader:
        yield reader


def whole_batch(reader: pa.RecordBatchFileReader, number: int) -> pa.RecordBatch:
    """Step `number` of a part; Arrow itself would trust the lengths in it, and end the process where they are wrong."""
    batch = reader.get_batch(number)
    batch.validate(full=True)
    return batch


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"{path}: this file of the capture is damaged ({why}); take it from a copy, or record anew")
