"""A call to the label party in both directions, and the messages of AlignRows on it."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from cutlayer.common import alignment
from cutlayer.common.channel import ALIGN_CHUNK_BYTES
from cutlayer.common.errors import PeerError
from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.metrics import Metrics
from cutlayer.common.wire import form_name
from cutlayer.nonlabel_party.watchdog import Watchdog
from cutlayer.v1 import training_pb2


class Stream:
    """One open call in both directions; requests go out as they are sent.

    Args:
        patience_s: how long to wait for an answer.
        when: in words, where in the run this party is; may be changed.

    Attributes:
        opened: when the other side answered first, by the monotonic clock; None before.
    """

    def __init__(
        self, method: Callable[..., Any], watchdog: Watchdog, patience_s: float, metrics: Metrics, when: str
    ) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = method(metrics.sent_to(LABEL_PARTY, iter(self._requests.get, None)))
        self._answers = metrics.received_from(LABEL_PARTY, self._call)
        self._watchdog = watchdog
        self._patience_s = patience_s
        self.when = when
        self.opened: float | None = None

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
                answer = next(self._answers)
            except StopIteration:
                raise PeerError(f"the label party closed the stream {self.when}") from None
            except grpc.RpcError:
                if self._watchdog.expired:
                    silent = f"the label party is connected but answered nothing {self.when}"
                    raise PeerError(f"{silent} for {self._patience_s:g} s") from None
                raise
        self.opened = self.opened or time.monotonic()
        return answer

    def end(self) -> None:
        """Half-close, and let go. Without it a thread of the call would wait for requests for ever."""
        self._requests.put(None)


def id_frames(own: alignment.OwnIds) -> Iterator[training_pb2.AlignRowsRequest]:
    """What this party says about its ids, which is short, and then their digests."""
    data, total = alignment.digests_to_wire(own.digests), len(own.digests)
    yield _ids(total=total, secret_check=own.check, form=form_name(own.form))
    for start in range(0, len(data), ALIGN_CHUNK_BYTES):
        yield _ids(total=total, digests=data[start : start + ALIGN_CHUNK_BYTES])


def _ids(**fields: Any) -> training_pb2.AlignRowsRequest:
    return training_pb2.AlignRowsRequest(ids=training_pb2.IdDigests(**fields))
