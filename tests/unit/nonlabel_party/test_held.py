"""What a party takes from the label party's answer to its ids: only granted labels, of rows that there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cutlayer.common.alignment import pack_mask
from cutlayer.common.errors import FrameError
from cutlayer.nonlabel_party.stream import Held, Stream, read_held
from cutlayer.v1 import training_pb2


class Spoken(Stream):
    """A stream on which these answers come."""

    def __init__(self, *answers: Any) -> None:
        self._answers = iter(answers)

    def receive(self) -> Any:
        return next(self._answers)


def held(granted: int, rows: list[int], labels: list[int]) -> Held:
    mask = [True, False, True, True, True, False, False, True, True]
    packed = pack_mask(np.array(mask))
    first = training_pb2.AlignRowsResponse(held_by_all=packed[:1], labelled_rows=rows, labels=labels)
    last = training_pb2.AlignRowsResponse(held_by_all=packed[1:], resume_step=4)
    return read_held(Spoken(first, last), len(mask), granted)


def test_labels_that_are_granted_are_taken() -> None:
    found = held(2, [0, 3, 5], [1, 1, 0])
    assert found.labels == {0: 1, 3: 1, 5: 0}
    assert found.resume_step == 4
    assert held(0, [], []).labels == {}


@pytest.mark.parametrize(
    ("granted", "rows", "labels"),
    [(0, [1], [1]), (1, [1, 2], [1, 1]), (2, [1, 2], [1]), (2, [1], [1, 0])],
    ids=["none is granted", "more than granted", "a row without label", "a label without row"],
)
def test_other_labels_are_refused(granted: int, rows: list[int], labels: list[int]) -> None:
    with pytest.raises(FrameError, match="are not those that the job grants"):
        held(granted, rows, labels)


def test_a_row_that_is_not_aligned_is_refused() -> None:
    with pytest.raises(FrameError, match="a label of a row that is not aligned"):
        held(1, [6], [1])
