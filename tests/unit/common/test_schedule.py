"""The schedule: every epoch sees every training row once, and every party computes the same one."""

from __future__ import annotations

import hashlib
import itertools
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlayer.common.errors import DataError
from cutlayer.common.schedule import Schedule

schedules = st.builds(
    Schedule,
    seed=st.integers(0, 2**40),
    rows=st.integers(4, 60),
    test_fraction=st.sampled_from([0.0, 0.2, 0.5]),
    batch_size=st.integers(1, 64),
    epochs=st.integers(1, 3),
)


@given(schedules)
def test_each_epoch_trains_on_every_training_row_once_then_evaluates_on_the_test_rows_in_order(s: Schedule) -> None:
    assert sorted([*s.train_rows, *s.test_rows]) == list(range(len(s.train_rows) + len(s.test_rows)))
    steps = [s.at(number) for number in range(1, s.steps + 1)]
    assert [step.number for step in steps] == list(range(1, s.steps + 1))
    assert s.train_steps == sum(step.kind == "train" for step in steps)
    for epoch, of_epoch in itertools.groupby(steps, key=lambda step: step.epoch):
        group = list(of_epoch)
        assert len(group) == s.steps_per_epoch, epoch
        train = [step for step in group if step.kind == "train"]
        evaluate = group[len(train) :]
        assert sorted(np.concatenate([step.rows for step in train])) == list(s.train_rows)
        assert [row for step in evaluate for row in step.rows] == list(s.test_rows)
        assert [step.completes_evaluation for step in evaluate] == [False] * (len(evaluate) - 1) + [True] * bool(
            evaluate
        )
        assert not any(step.completes_evaluation for step in train)


@given(schedules, st.data())
def test_a_step_is_the_same_whatever_was_asked_before(s: Schedule, data: st.DataObject) -> None:
    numbers = st.integers(1, s.steps)
    step = data.draw(numbers)
    before = s.rows_of(step)
    for other in data.draw(st.lists(numbers, max_size=4)):
        s.at(other)
    np.testing.assert_array_equal(s.rows_of(step), before)


def test_the_batches_of_a_small_run_do_not_change_between_versions() -> None:
    s = Schedule(seed=7, rows=10, test_fraction=0.3, batch_size=4, epochs=2)
    assert s.test_rows.tolist() == [3, 6, 9]
    batches = [s.rows_of(step).tolist() for step in range(1, s.steps + 1)]
    assert batches == [[4, 5, 8, 0], [1, 7, 2], [3, 6, 9], [2, 1, 0, 7], [8, 5, 4], [3, 6, 9]]


def test_epochs_and_seeds_shuffle_differently() -> None:
    s, other = (Schedule(seed, rows=100, test_fraction=0, batch_size=100, epochs=2) for seed in (1, 2))
    assert s.rows_of(1).tolist() != s.rows_of(2).tolist()
    assert s.rows_of(1).tolist() != other.rows_of(1).tolist()


def test_the_last_batch_of_one_row_is_kept() -> None:
    s = Schedule(seed=0, rows=129, test_fraction=0, batch_size=64, epochs=1)
    assert [len(s.rows_of(step)) for step in range(1, s.steps + 1)] == [64, 64, 1]


def test_no_test_rows_no_evaluation() -> None:
    s = Schedule(seed=0, rows=10, test_fraction=0, batch_size=5, epochs=3)
    assert (s.steps, s.train_steps, s.steps_per_epoch, len(s.test_rows)) == (6, 6, 2, 0)


@pytest.mark.parametrize(("rows", "fraction"), [(0, 0.0), (1, 0.0), (3, 0.6)])
def test_fewer_than_two_training_rows_are_refused(rows: int, fraction: float) -> None:
    with pytest.raises(DataError, match=rf"{rows} rows with test_fraction {fraction} leave \d to train on"):
        Schedule(seed=0, rows=rows, test_fraction=fraction, batch_size=1, epochs=1)


@pytest.mark.parametrize("step", [0, -1, 11])
def test_a_step_that_does_not_exist_is_an_error(step: int) -> None:
    with pytest.raises(ValueError, match="expected 1 to 10"):
        Schedule(seed=0, rows=10, test_fraction=0.5, batch_size=1, epochs=1).at(step)


def test_the_digest_is_over_little_endian_64_bit_indices() -> None:
    s = Schedule(seed=0, rows=9, test_fraction=0, batch_size=4, epochs=1)
    rows = s.rows_of(2).tolist()
    assert s.rows_digest(2) == hashlib.sha256(struct.pack(f"<{len(rows)}q", *rows)).digest()
