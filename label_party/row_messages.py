"""The messages of AlignRows, as the label party reads and writes them."""

from __future__ import annotations

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


@dataclass(frozen=True)
class HeldRows:
    """The answer to a party's id digests.

    Attributes:
        mask: which of them all parties hold.
        resume_step: the step after which all go on.
        labels: what the job grants: aligned row -> label.
    """

    mask: npt.NDArray[np.bool_]
    form: alignment.IdForm
    resume_step: int = 0
    labels: Mapping[int, int] = field(default_factory=dict)


def read_ids(
    requests: Iterator[training_pb2.AlignRowsRequest], secret: bytes, durable_steps: tuple[int, ...]
) -> PartyIds:
    """A party's sorted id digests, checked before memory is committed to them."""
    data, total, form = bytearray(), None, alignment.IdForm.TEXT
    while total is None or len(data) < total * alignment.DIGEST_BYTES:
        request = next(requests, None)
        if request is None or request.WhichOneof("message") != "ids":
            raise FrameError("expected id digests")
        if total is None:
            total, form = request.ids.total, form_of(request.ids.form)
            if not 1 <= total <= MAX_ROWS:
                raise FrameError(f"{total} rows announced, expected 1 to {MAX_ROWS}")
            if request.ids.secret_check != alignment.secret_check(secret):
                raise SkewError(
                    "the parties' shared secrets for row ids differ: set the same `id_secret` on both sides"
                )
        elif not request.ids.digests:
            raise FrameError("an empty chunk of id digests")
        data += request.ids.digests
        if len(data) > total * alignment.DIGEST_BYTES:
            raise FrameError("more id digests than announced")
    return PartyIds(alignment.digests_from_wire(bytes(data)), form, durable_steps)


def held_frames(held: HeldRows) -> Iterator[training_pb2.AlignRowsResponse]:
    packed = alignment.pack_mask(held.mask)
    for start in range(0, max(len(packed), 1), ALIGN_CHUNK_BYTES):
        yield training_pb2.AlignRowsResponse(
            matched=int(held.mask.sum()),
            held_by_all=packed[start : start + ALIGN_CHUNK_BYTES],
            form=form_name(held.form),
            resume_step=held.resume_step,
            labelled_rows=list(held.labels) if start == 0 else [],
            labels=list(held.labels.values()) if start == 0 else [],
        )
