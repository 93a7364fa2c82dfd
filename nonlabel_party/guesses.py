"""What an attack has guessed, in Parquet files: one part for each stretch between two checkpoints, then all as one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cutlayer.nonlabel_party.parts import Parts, whole_file
from cutlayer.nonlabel_party.view import LabelGuess

_ROWS_PER_GROUP = 1 << 18
_SCHEMA = pa.schema([("step", pa.int64()), ("layer", pa.string()), ("row_id", pa.string()), ("score", pa.float64())])


class Guesses:
    """`path`, which gets its name when all is in it; until then `path` without suffix is a folder of parts.

    What is not yet written is kept in a few blocks that grow: a small array for each step, which stays, would keep the
    large ones that come and go around it from being used again (see the tests of memory).

    Raises:
        StorageError: the disk is full or refuses. What no `end_part` has made safe is given up.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.with_suffix("")
        self._parts = Parts(self._folder, "parquet", lambda file: pq.ParquetWriter(file, _SCHEMA), path)
        self._forget()

    def add(self, step: int, guesses: Sequence[LabelGuess]) -> None:
        """Guesses made at `step`."""
        for guess in guesses:
            # First, as an attack's scores may be anything: what fails must leave nothing behind.
            self._scores += guess.score_B.detach().double().numpy().tobytes()
            self._row_ids += guess.row_ids
            self._batches.append((step, guess.layer, len(guess.row_ids)))
        if len(self._row_ids) > _ROWS_PER_GROUP:
            self._flush()

    def end_part(self, step: int) -> None:
        """All guesses up to `step` are safe on the disk, under their names, when this returns."""
        self._flush()
        self._parts.end(step)

    def go_back(self, step: int) -> None:
        """Forget what was guessed after `step`, which is one that ended a part, or 0."""
        self._forget()
        self._parts.go_back(step)

    def merge(self, step: int) -> None:
        """Make one file of all parts, the last of which ends with `step`. The parts stay until `drop_parts`."""
        self.end_part(step)
        with whole_file(self._path) as whole, pq.ParquetWriter(whole, _SCHEMA) as writer:
            for part in self._parts.paths():
                with pq.ParquetFile(part) as guesses:
                    for group in range(guesses.num_row_groups):
                        writer.write_table(guesses.read_row_group(group).cast(_SCHEMA))

    def drop_parts(self) -> None:
        """Remove the parts, which are in the whole file."""
        self._parts.give_up()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _flush(self) -> None:
        if self._batches:
            steps, layers, counts = zip(*self._batches, strict=True)
            columns = [np.repeat(steps, counts), np.repeat(layers, counts), self._row_ids, np.frombuffer(self._scores)]
            arrays = [pa.array(column, kind) for column, kind in zip(columns, _SCHEMA.types, strict=True)]
            self._parts.write(pa.Table.from_arrays(arrays, schema=_SCHEMA))
        self._forget()

    def _forget(self) -> None:
        self._batches: list[tuple[int, str, int]] = []  # step, layer and number of rows
        self._row_ids: list[str] = []
        self._scores = bytearray()  # float64
