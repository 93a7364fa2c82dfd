"""Which rows a step works on: pure arithmetic from the job's seed, the same at every party.

An epoch is its shuffled training batches, the last of which may be smaller, and then the test rows in order.
Steps are counted from 1 through all epochs, training and evaluation together.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from cutlayer.common.errors import DataError
from cutlayer.common.job import Job
from cutlayer.common.randomness import permutation

MIN_TRAIN_ROWS = 2

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a run.

    Attributes:
        number: counted from 1.
        kind: whether the step changes the models.
        epoch: counted from 1.
        rows: the batch, (B,), as indices into the aligned rows.
        completes_evaluation: whether all test rows have been seen in this epoch after this step.
    """

    number: int
    kind: Literal["train", "evaluate"]
    epoch: int
    rows: Rows
    completes_evaluation: bool


class Schedule:
    """The steps of a run; any of them in the time of one batch.

    Args:
        seed: `job.seed`.
        rows: number of aligned rows.
        test_fraction: share of the rows that is kept for evaluation, rounded to whole rows.
        batch_size: rows of a batch.
        epochs: passes over the training rows.
        fraction: below 1, a share of all rows is taken from the training rows, and divided anew: the test rows of the
            whole are in neither part.

    Attributes:
        train_rows: rows to train on, ascending.
        test_rows: rows to evaluate on, ascending.

    Raises:
        DataError: fewer than two rows are left to train on.
    """

    def __init__(
        self, seed: int, rows: int, test_fraction: float, batch_size: int, epochs: int, fraction: float = 1.0
    ) -> None:
        shuffled, test_count = permutation(rows, "split", seed), round(rows * test_fraction)
        if fraction < 1:
            shuffled = shuffled[test_count:][: round(rows * fraction)]
            test_count = round(len(shuffled) * test_fraction)
        if len(shuffled) - test_count < MIN_TRAIN_ROWS:
            raise DataError(
                f"{len(shuffled)} rows with test_fraction {test_fraction} leave {len(shuffled) - test_count} to train "
                f"on, expected at least {MIN_TRAIN_ROWS}; bring more common rows or lower job.test_fraction"
            )
        self.test_rows: Rows = np.sort(shuffled[:test_count])
        self.train_rows: Rows = np.sort(shuffled[test_count:])
        self._seed, self._batch_size, self._epochs = seed, batch_size, epochs
        self._train_batches = -(-len(self.train_rows) // batch_size)
        self._shuffled = lru_cache(maxsize=2)(self._shuffle)

    @classmethod
    def of(cls, job: Job, rows: int) -> Schedule:
        """That of a job with so many aligned rows."""
        return cls(job.seed, rows, job.test_fraction, job.batch_size, job.epochs, job.row_fraction)

    @property
    def steps_per_epoch(self) -> int:
        """Training and evaluation steps of one epoch."""
        return self._train_batches + -(-len(self.test_rows) // self._batch_size)

    @property
    def steps(self) -> int:
        """Training and evaluation steps of the whole run."""
        return self._epochs * self.steps_per_epoch

    @property
    def train_steps(self) -> int:
        """Training steps of the whole run."""
        return self._epochs * self._train_batches

    def at(self, step: int) -> Step:
        """Step number `step`.

        Raises:
            ValueError: the run has no such step.
        """
        if not 1 <= step <= self.steps:
            raise ValueError(f"step {step} does not exist, expected 1 to {self.steps}")
        epoch, batch = divmod(step - 1, self.steps_per_epoch)
        if batch < self._train_batches:
            return Step(step, "train", epoch + 1, self._cut(self._shuffled(epoch + 1), batch), False)
        rows = self._cut(self.test_rows, batch - self._train_batches)
        return Step(step, "evaluate", epoch + 1, rows, batch == self.steps_per_epoch - 1)

    def rows_of(self, step: int) -> Rows:
        """The batch of step number `step`, (B,), as indices into the aligned rows."""
        return self.at(step).rows

    def rows_digest(self, step: int) -> bytes:
        """SHA-256 over the batch's row indices as little-endian 64-bit integers, 32 bytes."""
        return hashlib.sha256(self.rows_of(step).astype("<i8").tobytes()).digest()

    def _shuffle(self, epoch: int) -> Rows:
        return self.train_rows[permutation(len(self.train_rows), "epoch", self._seed, epoch)]

    def _cut(self, rows: Rows, batch: int) -> Rows:
        return rows[batch * self._batch_size : (batch + 1) * self._batch_size]
