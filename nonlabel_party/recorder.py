"""Records what a curious party saw, step by step, so that attacks can look at it after training.

    <party>/capture/capture.json              whose it is: job, party, known labels, threads; checksums; the end
    <party>/capture/rows.arrow                row_id, x: the aligned rows and their features
    <party>/capture/part-000000001.arrow      one record batch a training step, from that step on

Parts end where checkpoints are, so that a run that goes back loses none of them and has no step twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from torch import Tensor

from cutlayer.common.config import Capture
from cutlayer.common.files import write_atomically
from cutlayer.common.job import Job
from cutlayer.nonlabel_party.capture_files import HEADER, PART_SUFFIX, ROWS, SCHEMA, STEP_SCHEMA, checksum, opened
from cutlayer.nonlabel_party.parts import Parts, whole_file
from cutlayer.nonlabel_party.view import StepView

_BYTES_PER_MB = 1_000_000


class Recorder:
    """The capture of one party.

    Args:
        folder: made if missing.
        warn: told in words when no more is recorded; training goes on.

    Raises:
        StorageError: the disk is full or refuses. What no `end_part` has made safe is given up.
    """

    def __init__(self, job: Job, party: str, options: Capture, threads: int, folder: Path, warn: Callable[[str], None]):
        self._options = options
        self._folder = folder
        self._warn = warn
        self._parts = Parts(folder, PART_SUFFIX, lambda file: pa.ipc.new_file(file, STEP_SCHEMA), folder)
        self._header = {"schema": SCHEMA, "job": job.model_dump(mode="json"), "party": party, "threads": threads}
        self._bytes = self._steps = 0
        self._full_at: int | None = None
        self._row_of: dict[str, int] = {}
        self._checksums: dict[str, str] = {}  # by the file's name

    @property
    def looks_at_first_layer(self) -> bool:
        """Whether the gradient at the first layer is recorded too."""
        return self._options.first_layer

    def begin(self, row_ids: npt.NDArray[np.object_], x_NF: Tensor, known_labels: Mapping[str, int]) -> None:
        """The rows are known: ids (N,), features (N, F), and labels that the job grants. After `go_back`."""
        self._row_of = {row_id: row for row, row_id in enumerate(row_ids)}
        self._header |= {"known_labels": dict(known_labels), "first_layer": self._options.first_layer}
        columns = {"row_id": pa.array(row_ids, pa.string())}
        if self._options.features:
            columns["x"] = pa.FixedSizeListArray.from_arrays(pa.array(x_NF.flatten().numpy()), x_NF.shape[1])
        table = pa.table(columns)
        with whole_file(self._folder / ROWS) as path, pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
        self._checksums[ROWS] = checksum(self._folder / ROWS)
        self._write_header(None)

    def add(self, view: StepView) -> None:
        """Record one training step, if it is one of those to record and there is room."""
        if self._full_at is not None or not self._wanted(view.step):
            return
        batch = self._batch(view)
        size = pa.ipc.get_record_batch_size(batch)
        if self._bytes + size > self._options.max_mb * _BYTES_PER_MB:
            self._full_at = view.step
            self._warn(
                f"step {view.step}: the capture is full ({self._options.max_mb} MB); this and later steps are not "
                "recorded. For more: `capture: {max_mb: ...}`, or `every: n` for each n-th step"
            )
            self._write_header(None)
            return
        self._parts.write(pa.Table.from_batches([batch]))
        self._bytes += size
        self._steps += 1

    def end_part(self, step: int) -> None:
        """All up to `step` is safe on the disk when this returns."""
        self._parts.end(step)
        if self._sum_up():
            self._write_header(None)

    def go_back(self, step: int) -> None:
        """Forget what was recorded after `step`, which is one that ended a part, or 0."""
        self._parts.go_back(step)
        before = self._header_before()
        full_at: int | None = before.get("full_at")
        self._full_at = full_at if full_at is not None and full_at <= step else None
        left = {part.name for part in self._parts.paths()}
        self._checksums = {name: sum_ for name, sum_ in before.get("sha256", {}).items() if name in left}
        self._sum_up()  # of a part that ended just before the process did, or that an older release wrote
        sizes = [size for part in self._parts.paths() for size in _sizes(part)]
        self._bytes, self._steps = sum(sizes), len(sizes)

    def finish(self, step: int) -> None:
        """`step` was the last one."""
        self.end_part(step)
        self._write_header(step)

    def _header_before(self) -> dict[str, Any]:
        """The header on the disk."""
        path = self._folder / HEADER
        found: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        return found

    def _sum_up(self) -> bool:
        """Take the checksums of parts that have none yet; whether there were any."""
        new = [part for part in self._parts.paths() if part.name not in self._checksums]
        self._checksums |= {part.name: checksum(part) for part in new}
        return bool(new)

    def _wanted(self, step: int) -> bool:
        first, last = self._options.from_step, self._options.to_step
        return first <= step and (last is None or step <= last) and (step - first) % self._options.every == 0

    def _batch(self, view: StepView) -> pa.RecordBatch:
        rows = [self._row_of[row_id] for row_id in view.row_ids]
        first, positive = self._options.first_layer, view.clean_positive
        values: dict[str, Any] = {
            "step": view.step,
            "rows": np.array(rows, dtype=np.int64),
            "z": view.z_Bd,
            "g": view.g_Bd,
            "g_first": view.gradient("first") if first else None,
            "positive_row": positive.row if positive else None,
            "positive_g": positive.g_d if positive else None,
            "positive_g_first": view.clean_positive_gradient("first") if first else None,
        }
        return pa.record_batch([_one(value, STEP_SCHEMA.field(key).type) for key, value in values.items()], STEP_SCHEMA)

    def _write_header(self, last_step: int | None) -> None:
        state: dict[str, Any] = {"finished": last_step is not None, "last_step": last_step, "full_at": self._full_at}
        state["sha256"] = self._checksums
        if last_step is not None:
            state["steps"] = self._steps
        header = json.dumps(self._header | state, indent=2, allow_nan=False)
        write_atomically(self._folder / HEADER, header + "\n", 0o600)


def _one(value: Any, kind: pa.DataType) -> pa.Array:
    """An array with one value: a number, the numbers of a tensor, or null."""
    if value is None or isinstance(value, int):
        return pa.array([value], kind)
    flat = value.detach().contiguous().flatten().numpy() if isinstance(value, Tensor) else value
    return pa.ListArray.from_arrays(pa.array([0, len(flat)], pa.int32()), pa.array(flat), type=kind)


def _sizes(part: Path) -> list[int]:
    """Bytes of each step in a part, without those of the file itself."""
    with opened(part) as reader:
        batches = map(reader.get_batch, range(reader.num_record_batches))
        return list(map(pa.ipc.get_record_batch_size, batches))
