"""A text file that grows by whole lines."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from cutlayer.common.files import writing


class LineFile:
    """Appends lines to `path`, which is made if missing.

    Nothing is held back: a line is in the file when `write` returns, and `close` has nothing left that may fail.

    Raises:
        StorageError: the disk is full or refuses; the file then ends with the last whole line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing(path):
            self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, line: str) -> None:
        """Append `line`, which has no line end; does nothing after `close`."""
        if self._file is None:
            return
        data = memoryview(f"{line}\n".encode())
        with writing(self.path):
            before = os.fstat(self._file).st_size
            try:
                while data:  # a disk that gets full takes a part, and refuses the rest
                    data = data[os.write(self._file, data) :]
            except OSError:
                with suppress(OSError):  # no file but a device
                    os.ftruncate(self._file, before)
                raise

    def sync(self) -> None:
        """All lines are safe on the disk when this returns."""
        if self._file is not None:
            with writing(self.path):
                os.fsync(self._file)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
