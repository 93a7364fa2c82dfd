"""What an attack has guessed, in Parquet files: one part for each stretch between two checkpoints, then all as one."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cutlayer.common.files import private_folder, sync_folder, writing
from cutlayer.nonlabel_party.view import LabelGuess

_ROWS_PER_GROUP = 1 << 18
_SCHEMA = pa.schema([("step", pa.int64()), ("layer", pa.string()), ("row_id", pa.string()), ("score", pa.float64())])
_PART = re.compile(r"part-(\d+)\.parquet")


class Guesses:
    """`path`, which gets its name when all is in it; until then `path` without suffix is a folder of parts.

    Raises:
        StorageError: the disk is full or refuses. What no `end_part` has made safe is given up.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.with_suffix("")
        private_folder(self._folder)
        self._first_step = 1  # of the part that grows
        self._writer: pq.ParquetWriter | None = None
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, step: int, guesses: Sequence[LabelGuess]) -> None:
        """Guesses made at `step`."""
        for guess in guesses:
            count = len(guess.row_ids)
            columns = [
                pa.array([step] * count, pa.int64()),
                pa.array([guess.layer] * count, pa.string()),
                pa.array(guess.row_ids, pa.string()),
                pa.array(guess.score_B.detach().double().numpy(), pa.float64()),
            ]
            self._batches.append(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
            self._rows += count
        if self._rows > _ROWS_PER_GROUP:
            self._flush()

    def end_part(self, step: int) -> None:
        """All guesses up to `step` are safe on the disk, under their names, when this returns."""
        self._flush()
        with self._writing():
            if self._writer is not None:
                self._writer.close()
                self._writer = None
                _settle(self._growing, self._folder / f"part-{self._first_step:09d}.parquet")
        self._first_step = step + 1

    def go_back(self, step: int) -> None:
        """Forget what was guessed after `step`, which is one that ended a part, or 0."""
        self._batches, self._rows = [], 0
        with self._writing():
            self._give_up()
            for first_step, part in self._parts():
                if first_step > step:
                    part.unlink()
        self._first_step = step + 1

    def merge(self, step: int) -> None:
        """Make one file of all parts, the last of which ends with `step`. The parts stay until `drop_parts`."""
        self.end_part(step)
        whole = self._path.with_suffix(".whole")
        with writing(self._path):
            try:
                self._copy_parts(whole)
                _settle(whole, self._path)
            except BaseException:
                whole.unlink(missing_ok=True)
                raise

    def drop_parts(self) -> None:
        """Remove the parts, which are in the whole file."""
        with self._writing():
            self._give_up()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _growing(self) -> Path:
        return self._folder / "growing.part"

    def _parts(self) -> list[tuple[int, Path]]:
        found = ((_PART.fullmatch(path.name), path) for path in self._folder.iterdir())
        return sorted((int(name.group(1)), path) for name, path in found if name)

    def _flush(self) -> None:
        with self._writing():
            if self._batches:
                if self._writer is None:
                    self._writer = pq.ParquetWriter(self._growing, _SCHEMA)
                self._writer.write_table(pa.Table.from_batches(self._batches, schema=_SCHEMA))
        self._batches, self._rows = [], 0

    def _copy_parts(self, path: Path) -> None:
        with pq.ParquetWriter(path, _SCHEMA) as writer:
            for _, part in self._parts():
                with pq.ParquetFile(part) as guesses:
                    for group in range(guesses.num_row_groups):
                        writer.write_table(guesses.read_row_group(group).cast(_SCHEMA))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Where the system refuses, no part that is not whole stays behind."""
        with writing(self._path):
            try:
                yield
            except OSError:
                self._give_up()
                raise

    def _give_up(self) -> None:
        """Remove the part that grows."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(OSError):  # it writes its end first, and the disk may be full
                writer.close()
        self._growing.unlink(missing_ok=True)


def _settle(path: Path, name: Path) -> None:
    """Give a finished file its name; both are safe on the disk when this returns."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    path.rename(name)
    sync_folder(name.parent)
