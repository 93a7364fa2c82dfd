"""A call to the label party in both directions, and the messages of AlignRows on it."""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from cutlayer.common import alignment
from cutlayer.common.channel import ALIGN_CHUNK_BYTES
from cutlayer.common.errors import FrameError, PeerError
from cutlayer.common.wire import form_name, form_of
from cutlayer.nonlabel_party.watchdog import Watchdog
from cutlayer.v1 import training_pb2


class Stream:
    """One open call in both directions; requests go out as they are sent."""

    def __init__(self, method: Callable[..., Any], watchdog: Watchdog, patience_s: float) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = method(iter(self._requests.get, None))
        self._watchdog = watchdog
        self._patience_s = patience_s

    def send(self, *messages: Any) -> None:
        for message in messages:
            self._requests.put(message)

    def receive(self) -> Any:
        """The next message.

        Raises:
            grpc.RpcError: the stream broke, or the label party refused. PeerError: none came in time, or no more come.
        """
        with self._watchdog.over(self._call, self._patience_s):
            try:
                return next(self._call)
            except StopIteration:
                raise PeerError("the label party closed the stream") from None
            except grpc.RpcError:
                if self._watchdog.expired:
                    raise PeerError(f"the label party answered nothing for {self._patience_s:g} s") from None
                raise

    def end(self) -> None:
        """Half-close, and let go."""
        self._requests.put(None)


def id_frames(own: alignment.OwnIds) -> Iterator[training_pb2.AlignRowsRequest]:
    data, total = alignment.digests_to_wire(own.digests), len(own.digests)
    for start in range(0, len(data), ALIGN_CHUNK_BYTES):
        ids = training_pb2.IdDigests(total=total, digests=data[start : start + ALIGN_CHUNK_BYTES])
        if start == 0:
            ids.MergeFrom(training_pb2.IdDigests(secret_check=own.check, form=form_name(own.form)))
        yield training_pb2.AlignRowsRequest(ids=ids)


@dataclass(frozen=True)
class Held:
    """The label party's answer to this party's sorted id digests.

    Attributes:
        mask: which of them all parties hold, (N,).
        form: how the label party's ids are written.
        resume_step: the step after which all go on.
        labels: granted knowledge: aligned row -> label.
    """

    mask: npt.NDArray[np.bool_]
    form: alignment.IdForm
    resume_step: int
    labels: Mapping[int, int]


def read_held(stream: Stream, count: int, granted: int) -> Held:
    """The answer to `count` digests, checked; `granted` labels of each class are expected at most."""
    packed, size = bytearray(), (count + 7) // 8
    form, resume_step, labels = alignment.IdForm.TEXT, 0, dict[int, int]()
    while len(packed) < size:
        response = stream.receive()
        labels |= _labels(response, granted)
        packed += response.held_by_all
        form, resume_step = form_of(response.form), response.resume_step
        if not response.held_by_all or len(packed) > size:
            raise FrameError("the label party's answer to the id digests has the wrong length")
    mask = alignment.unpack_mask(bytes(packed), count)
    if any(row >= np.count_nonzero(mask) for row in labels):
        raise FrameError("the label party names a label of a row that is not aligned")
    return Held(mask, form, resume_step, labels)


def _labels(response: training_pb2.AlignRowsResponse, granted: int) -> dict[int, int]:
    rows, labels = response.labelled_rows, response.labels
    if len(rows) != len(labels) or any(count > granted for count in Counter(labels).values()):
        raise FrameError("the labels in the label party's answer are not those that the job grants")
    return dict(zip(rows, labels, strict=True))
