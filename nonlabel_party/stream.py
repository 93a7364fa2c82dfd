"""A call to the label party in both directions, and the messages of AlignRows on it."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
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


def read_held(stream: Stream, count: int) -> tuple[npt.NDArray[np.bool_], alignment.IdForm, int]:
    packed, size = bytearray(), (count + 7) // 8
    form, resume_step = alignment.IdForm.TEXT, 0
    while len(packed) < size:
        response = stream.receive()
        packed += response.held_by_all
        form, resume_step = form_of(response.form), response.resume_step
        if not response.held_by_all or len(packed) > size:
            raise FrameError("the label party's answer to the id digests has the wrong length")
    return alignment.unpack_mask(bytes(packed), count), form, resume_step
