"""Peers that connect to a label party and behave badly, many at a time."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

import grpc

from cutlayer.v1 import training_pb2

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(40)  # announces more than comes
SERVICE = "/cutlayer.v1.LabelPartyService/"
ANY_METHOD = (
    SERVICE + "Train",
    SERVICE + "AlignRows",
    SERVICE + "Leave",
    "/grpc.health.v1.Health/Check",
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
)


class Strangers:
    """Sockets and calls that stay open until the context ends, or the other side ends them."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.refused = 0
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._sockets: list[socket.socket] = []
        self._channels: list[grpc.Channel] = []
        self._requests: list[SimpleQueue[bytes | None]] = []
        self._ended = threading.Event()

    def __enter__(self) -> Strangers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for requests in self._requests:
            requests.put(None)
        for channel in self._channels:
            channel.close()
        for one in self._sockets:
            one.close()

    def sockets(self, count: int, first: bytes = b"", drip: bytes = b"") -> list[socket.socket]:
        """Connections that send `first`, then a byte of `drip` each second."""
        opened = []
        for _ in range(count):
            try:
                one = socket.create_connection((self._host, self._port), timeout=10)
                one.sendall(first)
                opened.append(one)
            except OSError:
                self.refused += 1
        self._sockets += opened
        if drip:
            threading.Thread(target=self._drip, args=(opened, drip), daemon=True).start()
        return opened

    def channel(self) -> grpc.Channel:
        """A connection of its own."""
        channel = grpc.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._channels.append(channel)
        return channel

    def calls(self, method: str, count: int, *first: bytes, channel: grpc.Channel | None = None) -> list[Any]:
        """Calls that send `first` and then nothing; never half-closed."""
        line = channel or self.channel()
        return [line.stream_stream(method, None, None)(self._then_silence(first)) for _ in range(count)]

    def await_sent(self, timeout: float) -> None:
        """Wait until all that was to be sent is on its way: the other side has taken it, but for the last of it."""
        deadline = time.monotonic() + timeout
        while not all(requests.empty() for requests in self._requests):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def _then_silence(self, first: Iterable[bytes]) -> Iterator[bytes]:
        requests: SimpleQueue[bytes | None] = SimpleQueue()
        for message in first:
            requests.put(message)
        self._requests.append(requests)
        return iter(requests.get, None)

    def _drip(self, sockets: list[socket.socket], drip: bytes) -> None:
        for byte in drip:
            if self._ended.wait(1):
                return
            for one in sockets:
                with suppress(OSError):
                    one.send(bytes([byte]))


def await_end(calls: Iterable[Any], timeout: float) -> list[grpc.StatusCode]:
    """How the calls ended."""
    codes: SimpleQueue[grpc.StatusCode] = SimpleQueue()
    expected = 0
    for call in calls:
        expected += 1
        threading.Thread(target=lambda call=call: codes.put(call.code()), daemon=True).start()
    try:
        return [codes.get(timeout=timeout) for _ in range(expected)]
    except Empty:
        raise AssertionError(f"some of {expected} calls did not end within {timeout} s") from None


def closed_by_peer(sockets: Iterable[socket.socket], timeout: float) -> bool:
    """Whether the other side closes all of them in time."""
    for one in sockets:
        one.settimeout(timeout)
        try:
            while one.recv(1 << 12):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
    return True


def aligning(hello: training_pb2.TrainRequest, **ids: Any) -> list[bytes]:
    """The frames of an AlignRows call."""
    frames = (
        training_pb2.AlignRowsRequest(hello=hello.hello),
        training_pb2.AlignRowsRequest(ids=training_pb2.IdDigests(**ids)),
    )
    return [frame.SerializeToString() for frame in frames]
