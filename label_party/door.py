"""Who is inside: a call is a stranger's until its greeting is accepted, and strangers get little time and room.

A thread serves one call, and waits with it for the peer's next message. So whoever opens calls and stays silent could
take all threads, and lock out the true parties. Here the newcomer always gets in: where there are too many
strangers, the one that came first is sent away, and so is the oldest of too many calls of one party.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from cutlayer.common.errors import FrameError

STRANGERS = 16  # calls at a time
STRANGER_S = 10.0  # for a stranger to say who it is
CALLS_OF_A_PARTY = 3  # a stream, its successor, Leave
_SPARE = 8  # threads for calls that are just being sent away
_BACKLOG = 64  # calls that may wait for a thread
_LOOK_EVERY_S = 0.5

_Handler = Any  # grpc.RpcMethodHandler; its stubs lack most fields
_Behaviour = Callable[[Iterator[Any], grpc.ServicerContext], Iterator[Any]]


@dataclass(eq=False)
class _Call:
    context: grpc.ServicerContext
    party: str | None = None  # of a stranger: none
    reading_rows: bool = False
    came_at: float = field(default_factory=time.monotonic)


class Door(grpc.ServerInterceptor):
    """Through which every call of every service comes.

    Args:
        stranger_s: seconds after which a stranger is sent away.
    """

    def __init__(self, stranger_s: float = STRANGER_S) -> None:
        self._stranger_s = stranger_s
        self._lock = threading.Lock()
        self._calls: dict[grpc.ServicerContext, _Call] = {}  # in the order in which they came
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="door", daemon=True).start()

    @staticmethod
    def threads(parties: int) -> int:
        """How many calls must be able to run at once, so that one more always can."""
        return CALLS_OF_A_PARTY * parties + STRANGERS + _SPARE

    @staticmethod
    def backlog(parties: int) -> int:
        """How many calls may be there at once, with those that wait for a thread."""
        return Door.threads(parties) + _BACKLOG

    def admit(self, context: grpc.ServicerContext, party: str) -> None:
        """The peer of this call is `party`, as far as can be told."""
        with self._lock:
            call = self._calls[context]
            call.party = party
            of_party = [one for one in self._calls.values() if one.party == party]
        _send_away(of_party[:-CALLS_OF_A_PARTY])

    @contextmanager
    def reading_rows(self, context: grpc.ServicerContext) -> Iterator[None]:
        """The call reads all rows of its party: only the newest one does, as that takes memory."""
        with self._lock:
            call = self._calls[context]
            older = [one for one in self._calls.values() if one.reading_rows and one.party == call.party]
            call.reading_rows = True
        _send_away(older)
        try:
            yield
        finally:
            call.reading_rows = False

    def close(self) -> None:
        """No call comes any more."""
        self._closed.set()

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], _Handler | None], details: grpc.HandlerCallDetails
    ) -> _Handler | None:
        """Asked by gRPC for what serves a call; parsing the messages is done here, so that bad ones end like others."""
        handler = continuation(details)
        if handler is None:
            return None
        serve = partial(self._serve, _as_stream(handler), handler.request_deserializer)
        return grpc.stream_stream_rpc_method_handler(serve, None, handler.response_serializer)

    def _serve(
        self, behaviour: _Behaviour, parse: Callable[[bytes], Any], raw: Iterator[bytes], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        self._enter(context)
        try:
            yield from behaviour(_parsed(raw, parse), context)
        except FrameError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except grpc.RpcError as error:  # the call has ended
            traceback.clear_frames(error.__traceback__)  # gRPC keeps it in a cycle, and with it all that came so far
            raise
        finally:
            with self._lock:
                del self._calls[context]

    def _enter(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._calls[context] = _Call(context)
            strangers = self._strangers()
        _send_away(strangers[:-STRANGERS])

    def _strangers(self) -> list[_Call]:
        return [call for call in self._calls.values() if call.party is None]

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_EVERY_S):
            latest = time.monotonic() - self._stranger_s
            with self._lock:
                late = [call for call in self._strangers() if call.came_at < latest]
            _send_away(late)


def _send_away(calls: list[_Call]) -> None:
    for call in calls:
        call.context.cancel()


def _parsed(raw: Iterator[bytes], parse: Callable[[bytes], Any]) -> Iterator[Any]:
    for data in raw:
        try:
            message = parse(data)
        except DecodeError:
            raise FrameError("the bytes are no message of this protocol") from None
        yield message


def _as_stream(handler: _Handler) -> _Behaviour:
    """What serves a method of any kind, as one that takes and gives streams: on the wire they are the same.

    gRPC runs a unary method only when its request has come, and until then the thread belongs to nobody.
    """
    if handler.request_streaming and handler.response_streaming:
        stream: _Behaviour = handler.stream_stream
        return stream
    if handler.request_streaming:
        return lambda requests, context: iter([handler.stream_unary(requests, context)])
    if handler.response_streaming:
        return lambda requests, context: handler.unary_stream(_only(requests), context)
    return lambda requests, context: iter([handler.unary_unary(_only(requests), context)])


def _only(requests: Iterator[Any]) -> Any:
    request = next(requests, None)
    if request is None:
        raise FrameError("the request is missing")
    return request
