"""A capture as it is read: what a party recorded, as the views that its attacks had beside training.

Shape suffixes: B rows of the batch, N aligned rows, F features, d cut-layer width, D width of the first layer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from cutlayer.common.errors import UserError
from cutlayer.common.job import Job
from cutlayer.nonlabel_party.capture_files import (
    HEADER,
    PART_SUFFIX,
    ROWS,
    SCHEMA,
    opened,
    require_unchanged,
    whole_batch,
)
from cutlayer.nonlabel_party.parts import part_paths
from cutlayer.nonlabel_party.view import CleanPositive, FirstLayer, StepView


@dataclass(frozen=True)
class Captured:
    """A capture.

    Attributes:
        row_ids, x_NF: the aligned rows; F is 0 where features were not recorded.
        first_layer: whether the gradients at the first layer are there.
        threads: torch threads of the party; other numbers may change the last bits.
        last_step: of the run; None where it did not finish.
        full_at: the step from which on there was no room; None where there was.
    """

    job: Job
    party: str
    row_ids: npt.NDArray[np.object_]
    x_NF: Tensor
    known_labels: Mapping[str, int]
    first_layer: bool
    threads: int
    last_step: int | None
    full_at: int | None
    parts: tuple[Path, ...]

    @classmethod
    def open(cls, folder: Path) -> Captured:
        """The capture in `folder`.

        Raises:
            UserError: there is none, or it is not whole, or a file has another checksum than when it was written.
        """
        if not (folder / HEADER).is_file():
            raise UserError(
                f"{folder}: no capture; one is the folder <results>/<party>/capture of a run with capture: true"
            )
        try:
            return cls._read(folder, json.loads((folder / HEADER).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise UserError(f"{folder}: this capture cannot be read: {error}") from error

    @classmethod
    def _read(cls, folder: Path, header: Mapping[str, Any]) -> Captured:
        if not isinstance(header, dict):
            raise ValueError(f"{HEADER} is damaged")
        if header["schema"] != SCHEMA:
            raise ValueError(f"its schema is {header['schema']}, expected {SCHEMA}")
        for name, expected in dict(header.get("sha256", {})).items():  # older captures have none
            require_unchanged(folder / name, expected)
        with opened(folder / ROWS) as reader:
            table = reader.read_all()
            row_ids = np.array(table["row_id"].to_pylist(), dtype=object)
            x = table["x"].combine_chunks().flatten() if "x" in table.column_names else pa.array([], pa.float32())
            x_NF = _tensor(x, len(row_ids))
        parts = part_paths(folder, PART_SUFFIX)
        steps = sum(map(_steps_in, parts))
        if not steps or header.get("steps", steps) != steps:
            raise ValueError(f"it has {steps} steps in its part-*{PART_SUFFIX} files; some were lost, or none recorded")
        return cls(
            job=Job.model_validate(header["job"]),
            party=header["party"],
            row_ids=row_ids,
            x_NF=x_NF,
            known_labels=header["known_labels"],
            first_layer=header["first_layer"],
            threads=header["threads"],
            last_step=header["last_step"],
            full_at=header["full_at"],
            parts=tuple(parts),
        )

    def views(self) -> Iterator[StepView]:
        """What the party's attacks saw at each recorded step, to the last bit."""
        for part in self.parts:
            with opened(part) as reader:
                for number in range(reader.num_record_batches):
                    yield self._view(whole_batch(reader, number))

    def _view(self, batch: pa.RecordBatch) -> StepView:
        rows = batch["rows"].flatten().to_numpy()
        count = len(rows)
        positive_row = batch["positive_row"][0].as_py()
        positive = None if positive_row is None else CleanPositive(positive_row, _tensor(batch["positive_g"].flatten()))
        return StepView(
            step=batch["step"][0].as_py(),
            row_ids=tuple(self.row_ids[rows]),
            x_BF=self.x_NF[torch.from_numpy(rows.copy())],
            z_Bd=_tensor(batch["z"].flatten(), count),
            g_Bd=_tensor(batch["g"].flatten(), count),
            clean_positive=positive,
            granted=self.job.granted(self.party).kinds(),
            known_labels=self.known_labels,
            first=_first(batch, count) if self.first_layer else None,
        )


def _steps_in(part: Path) -> int:
    with opened(part) as reader:
        steps: int = reader.num_record_batches
        return steps


def _first(batch: pa.RecordBatch, count: int) -> FirstLayer:
    clean = batch["positive_g_first"]
    return FirstLayer(
        _tensor(batch["g_first"].flatten(), count), None if clean.null_count else _tensor(clean.flatten())
    )


def _tensor(numbers: pa.Array, rows: int | None = None) -> Tensor:
    """A copy in memory of torch's own: its alignment, and with it every last bit, is what it was in training."""
    tensor = torch.tensor(numbers.to_numpy(zero_copy_only=False), dtype=torch.float32)
    return tensor if rows is None else tensor.reshape(rows, len(tensor) // max(rows, 1))
