"""What a party takes from the label party's answer to its ids: only granted labels, of rows that there are."""

from __future__ import annotations

import numpy as np
import pytest

from cutlayer.common.alignment import IdForm, pack_mask
from cutlayer.common.channel import ALIGN_CHUNK_BYTES
from cutlayer.common.errors import FrameError
from cutlayer.label_party.row_messages import HeldRows, held_frames
from cutlayer.nonlabel_party.answers import GrantedLabels, Held, read_held
from cutlayer.v1 import training_pb2

MASK = np.array([True, False, True, True, True, False, False, True, True])


def held(granted: int, rows: list[int], labels: list[int]) -> Held:
    packed = pack_mask(MASK)
    answers = iter(
        [
            training_pb2.AlignRowsResponse(labelled_rows=rows[:1], labels=labels[:1], held_by_all=packed[:1]),
            training_pb2.AlignRowsResponse(labelled_rows=rows[1:], labels=labels[1:], held_by_all=packed[1:]),
        ]
    )
    return read_held(answers.__next__, len(MASK), (), GrantedLabels(granted))


def test_labels_that_are_granted_are_taken() -> None:
    assert held(2, [0, 3, 5], [1, 1, 0]).labels == {0: 1, 3: 1, 5: 0}
    assert held(0, [], []).labels == {}


def test_what_the_label_party_writes_is_read_whatever_its_length() -> None:
    classes, per_class = 40, 1000
    labels = {7 * place: place % classes for place in range(classes * per_class)}
    mask = np.ones(7 * len(labels), dtype=np.bool_)
    frames = list(held_frames(HeldRows(mask, IdForm.TEXT, 4, labels)))
    assert all(frame.ByteSize() < ALIGN_CHUNK_BYTES for frame in frames)
    assert len(frames) > 2
    found = read_held(iter(frames).__next__, len(mask), (4,), GrantedLabels(per_class, classes))
    assert (found.labels, found.resume_step, bool(found.mask.all())) == (labels, 4, True)


@pytest.mark.parametrize(
    ("granted", "rows", "labels"),
    [(0, [1], [1]), (1, [1, 2], [1, 1]), (2, [1, 2], [1]), (2, [1], [1, 0]), (2, [1, 1], [1, 0]), (2, [1], [2])],
    ids=["none is granted", "more than granted", "no label", "no row", "a row twice", "no class"],
)
def test_P14_other_labels_are_refused(granted: int, rows: list[int], labels: list[int]) -> None:
    with pytest.raises(FrameError, match="are not those that the job grants"):
        held(granted, rows, labels)


@pytest.mark.parametrize("row", [6, 1 << 63])
def test_P14_a_row_that_is_not_aligned_is_refused(row: int) -> None:
    with pytest.raises(FrameError, match="a label of a row that is not aligned"):
        held(1, [row], [1])


def test_P14_a_message_that_brings_nothing_is_refused() -> None:
    with pytest.raises(FrameError, match="has the wrong length"):
        read_held(training_pb2.AlignRowsResponse, len(MASK), (), GrantedLabels(2))
