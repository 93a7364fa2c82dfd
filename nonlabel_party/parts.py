"""A folder of parts, one for each stretch between two checkpoints: a run that goes back has no step twice."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from cutlayer.common.files import private_folder, sync_folder, writing


class Writer(Protocol):
    """Writes one file of tables."""

    def write_table(self, table: pa.Table, /) -> None: ...

    def close(self) -> None: ...


class Parts:
    """`folder`, made if missing, with parts `part-<first step>.<suffix>`; one grows under another name.

    Args:
        begin: a writer to a new file.
        named: what an error speaks of.

    Raises:
        StorageError: the disk is full or refuses. The part that grows is given up.
    """

    def __init__(self, folder: Path, suffix: str, begin: Callable[[str], Writer], named: Path) -> None:
        self._folder = private_folder(folder)
        self._suffix = suffix
        self._begin = begin
        self._named = named
        self._first_step = 1  # of the part that grows
        self._writer: Writer | None = None

    def write(self, table: pa.Table) -> None:
        """Add `table` to the part that grows."""
        with self._writing():
            if self._writer is None:
                self._writer = self._begin(str(self._growing))
            self._writer.write_table(table)

    def end(self, step: int) -> None:
        """The part that grows ends with `step`; it is safe on the disk, under its name, when this returns."""
        with self._writing():
            if self._writer is not None:
                self._writer.close()
                self._writer = None
                settle(self._growing, self._folder / f"part-{self._first_step:09d}.{self._suffix}")
        self._first_step = step + 1

    def go_back(self, step: int) -> None:
        """Forget what came after `step`, which is one that ended a part, or 0."""
        with self._writing():
            self._give_up()
            for first_step, part in _found(self._folder, self._suffix):
                if first_step > step:
                    part.unlink()
        self._first_step = step + 1

    def give_up(self) -> None:
        """Remove the part that grows."""
        with self._writing():
            self._give_up()

    def paths(self) -> list[Path]:
        """The parts that have ended, in order."""
        return part_paths(self._folder, self._suffix)

    @property
    def _growing(self) -> Path:
        return self._folder / "growing.part"

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Where the system refuses, no part that is not whole stays behind."""
        with writing(self._named):
            try:
                yield
            except OSError:
                self._give_up()
                raise

    def _give_up(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):  # it writes its end first, and the disk may be full
                writer.close()
        self._growing.unlink(missing_ok=True)


def part_paths(folder: Path, suffix: str) -> list[Path]:
    """The parts in `folder` that have ended, in order."""
    return [path for _, path in _found(folder, suffix)]


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write what becomes the file `path`: it has that name, safely on the disk, when the context ends.

    Raises:
        StorageError: the disk is full or refuses; nothing stays behind.
    """
    whole = path.with_suffix(".whole")
    with writing(path):
        try:
            yield whole
            settle(whole, path)
        except BaseException:
            whole.unlink(missing_ok=True)
            raise


def settle(path: Path, name: Path) -> None:
    """Give a finished file its name; both are safe on the disk when this returns."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    path.rename(name)
    sync_folder(name.parent)


def _found(folder: Path, suffix: str) -> list[tuple[int, Path]]:
    name = re.compile(rf"part-(\d+)\.{suffix}")
    found = ((name.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match.group(1)), path) for match, path in found if match)
