"""The messages of AlignRows, as the label party reads and writes them."""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cutlayer.common import alignment
from cutlayer.common.channel import ALIGN_CHUNK_BYTES
from cutlayer.common.errors import FrameError, SkewError
from cutlayer.common.limits import MAX_ROWS
from cutlayer.common.wire import form_name, form_of
from cutlayer.label_party.rows import PartyIds
from cutlayer.v1 import training_pb2

_LABELS_A_FRAME = 1 << 14  # at most 4 bytes a row and 3 a label, so that a frame is smaller than one of digests


@dataclass(frozen=True)
class HeldRows:
    """The answer to a party's id digests.

    Attributes:
        mask: which of them all parties hold.
        resume_step: the step after which all go on.
        labels: what the job grants: aligned row -> label.
        run: the name of the run.
    """

    mask: npt.NDArray[np.bool_]
    form: alignment.IdForm
    resume_step: int = 0
    labels: Mapping[int, int] = field(default_factory=dict)
    run: bytes = b""


def read_announcement(requests: Iterator[training_pb2.AlignRowsRequest], secret: bytes) -> training_pb2.IdDigests:
    """The first chunk of a party's id digests: it says how many there are, and that the party has the secret.

    Raises:
        FrameError: it is malformed. SkewError: another secret.
    """
    first = _next_chunk(requests)
    if not 1 <= first.total <= MAX_ROWS:
        raise FrameError(f"{first.total} rows announced, expected 1 to {MAX_ROWS}")
    if not hmac.compare_digest(first.secret_check, alignment.secret_check(secret)):
        raise SkewError("the parties' shared secrets for row ids differ: set the same `id_secret` on both sides")
    return first


def read_ids(
    first: training_pb2.IdDigests,
    requests: Iterator[training_pb2.AlignRowsRequest],
    durable_steps: tuple[int, ...],
) -> PartyIds:
    """A party's sorted id digests; they take the memory that has come, not what is announced.

    Args:
        first: what `read_announcement` gave.

    Raises:
        FrameError: more or less than announced, or not in ascending order without repetition.
    """
    size = first.total * alignment.DIGEST_BYTES
    data = bytearray(_fitting(first.digests, size))
    while len(data) < size:
        chunk = _next_chunk(requests).digests
        if not chunk:
            raise FrameError("an empty chunk of id digests")
        data += _fitting(chunk, size - len(data))
    return PartyIds(alignment.digests_from_wire(data), form_of(first.form), durable_steps)


def _next_chunk(requests: Iterator[training_pb2.AlignRowsRequest]) -> training_pb2.IdDigests:
    request = next(requests, None)
    if request is None or request.WhichOneof("message") != "ids":
        raise FrameError("expected id digests")
    return request.ids


def _fitting(chunk: bytes, size: int) -> bytes:
    if len(chunk) > size:
        raise FrameError("more id digests than announced")
    return chunk


def held_frames(held: HeldRows) -> Iterator[training_pb2.AlignRowsResponse]:
    """The answer to a party: labels that it is granted, and then which of its ids are held, which ends the answer."""
    yield from _label_frames(held.labels)
    packed = alignment.pack_mask(held.mask)
    for start in range(0, max(len(packed), 1), ALIGN_CHUNK_BYTES):
        yield training_pb2.AlignRowsResponse(
            matched=int(held.mask.sum()),
            held_by_all=packed[start : start + ALIGN_CHUNK_BYTES],
            form=form_name(held.form),
            resume_step=held.resume_step,
            run=held.run,
        )


def _label_frames(labels: Mapping[int, int]) -> Iterator[training_pb2.AlignRowsResponse]:
    rows = list(labels)
    for start in range(0, len(rows), _LABELS_A_FRAME):
        some = rows[start : start + _LABELS_A_FRAME]
        yield training_pb2.AlignRowsResponse(labelled_rows=some, labels=[labels[row] for row in some])
