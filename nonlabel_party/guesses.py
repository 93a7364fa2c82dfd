"""What an attack has guessed, in Parquet files: one part for each stretch between two checkpoints, then all as one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cutlayer.nonlabel_party.parts import Parts
from cutlayer.nonlabel_party.view import LabelGuess

_ROWS_PER_GROUP = 1 << 18
_SCHEMA = pa.schema([("step", pa.int64()), ("layer", pa.string()), ("row_id", pa.string()), ("score", pa.float64())])


class Guesses:
    """`path`, which gets its name when all is in it; until then `path` without suffix is a folder of parts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.with_suffix("")
        self._parts = Parts(self._folder, "parquet")
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
        wrote = self._close()
        self._parts.end(step, wrote=wrote)

    def go_back(self, step: int) -> None:
        """Forget what was guessed after `step`, which is one that ended a part, or 0."""
        self._batches, self._rows = [], 0
        self._close()
        self._parts.go_back(step)

    def merge(self, step: int) -> None:
        """Make one file of all parts, the last of which ends with `step`. The parts stay until `drop_parts`."""
        self.end_part(step)
        whole = self._path.with_suffix(".whole")
        with pq.ParquetWriter(whole, _SCHEMA) as writer:
            for part in self._parts.paths():
                with pq.ParquetFile(part) as guesses:
                    for group in range(guesses.num_row_groups):
                        writer.write_table(guesses.read_row_group(group).cast(_SCHEMA))
        whole.rename(self._path)

    def drop_parts(self) -> None:
        """Remove the parts, which are in the whole file."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _close(self) -> bool:
        """Close the file that grows; whether there was one."""
        if self._writer is None:
            return False
        self._writer.close()
        self._writer = None
        return True

    def _flush(self) -> None:
        if self._batches:
            if self._writer is None:
                self._writer = pq.ParquetWriter(self._parts.growing, _SCHEMA)
            self._writer.write_table(pa.Table.from_batches(self._batches, schema=_SCHEMA))
        self._batches, self._rows = [], 0
