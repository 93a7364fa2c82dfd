"""A TCP proxy that does on the way what networks do: delay, slow down, stall, swallow, cut, reset, strand, flip.

A line in one direction: bytes are read, edited, wait until they are due, and go on as fast as the rate allows. What
the line holds meanwhile is bounded, so that whoever sends too much is slowed down as by a full router.
"""

from __future__ import annotations

import queue
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

Direction = Literal["up", "down"]  # to the label party, or from it
Edit = Callable[[bytes, int], bytes | None]  # a chunk and its offset in the connection -> what goes on; None cuts it

_CHUNK = 1 << 16
_BUFFERED_CHUNKS = 32
_SLICE_S = 0.02  # a slow line sends so much at a time
_RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: closing resets


class Proxy:
    """Forwards connections to `target`, host:port. A test changes what happens to data through the attributes.

    Attributes:
        delay_s: how long each chunk is held.
        jitter_s: how much longer at most, by chance.
        bytes_per_s: how fast data goes on, each way and connection; None for as fast as it comes.
        blackhole: swallow all data, both ways, and keep connections open.
        stalled: hold all data, both ways, until it is false again: what TCP makes of packets that get lost.
        edits: what becomes of the data of a direction.
        connections: how many have come so far.
        bytes: that went through, by direction.
    """

    def __init__(self, target: str, draw: random.Random | None = None) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._draw = draw or random.Random(0)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.delay_s = 0.0
        self.jitter_s = 0.0
        self.bytes_per_s: float | None = None
        self.blackhole = False
        self.stalled = False
        self.edits: dict[Direction, Edit] = {}
        self.connections = 0
        self.bytes: dict[Direction, int] = {"up": 0, "down": 0}
        self._pairs: list[_Pair] = []
        self._half_open: list[_Pair] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def cut(self) -> None:
        """End all connections in good order; new ones are accepted."""
        for pair in self._take_pairs():
            pair.end()

    def reset(self) -> None:
        """Reset all connections on both sides; new ones are accepted."""
        for pair in self._take_pairs():
            pair.reset("up", "down")

    def half_open(self, lost: Direction) -> None:
        """Reset the side that sends in the direction `lost`; the other one hears nothing of it, ever."""
        for pair in self._take_pairs():
            pair.muted = True
            pair.reset(lost)
            self._half_open.append(pair)

    def strand(self, seconds: float) -> None:
        """Reset the non-label party's side; what it sent before arrives `seconds` later, and its end never."""
        for pair in self._take_pairs():
            pair.strand(seconds)
            self._half_open.append(pair)

    def close(self) -> None:
        """Stop listening and cut what there is."""
        self._listener.shutdown(socket.SHUT_RDWR)  # closing alone would let it accept one more
        self._listener.close()
        self._acceptor.join()
        self.stalled = False
        self.cut()
        for pair in self._half_open:
            pair.reset("up", "down")

    def _take_pairs(self) -> list[_Pair]:
        pairs, self._pairs = self._pairs, []
        return pairs

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                server = socket.create_connection(self._target)
            except OSError:  # the label party is not there yet
                client.close()
                continue
            self.connections += 1
            self._pairs.append(_Pair(self, client, server))

    def edited(self, chunk: bytes, offset: int, direction: Direction) -> bytes | None:
        """What goes on of a chunk that is at `offset` of its connection; None where it cuts it."""
        edit = self.edits.get(direction)
        return edit(chunk, offset) if edit else chunk

    def due(self) -> float:
        """When a chunk that comes now goes on."""
        return time.monotonic() + self.delay_s + self.jitter_s * self._draw.random()


class _Pair:
    """A connection from a party, and the one to the label party that belongs to it."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._sides: dict[Direction, socket.socket] = {"up": client, "down": server}  # by what each sends
        self.muted = False  # nobody hears of an end any more
        self._stranded_until: float | None = None
        self._open = 2
        for side in self._sides.values():
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for direction in self._sides:
            line: queue.Queue[tuple[float, bytes] | None] = queue.Queue(_BUFFERED_CHUNKS)
            threading.Thread(target=self._read, args=(direction, line), daemon=True).start()
            threading.Thread(target=self._write, args=(direction, line), daemon=True).start()

    def end(self) -> None:
        for side in self._sides.values():
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def reset(self, *directions: Direction) -> None:
        for direction in directions:
            side = self._sides[direction]
            with suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                side.shutdown(socket.SHUT_RD)  # wakes the thread that reads
            with suppress(OSError):
                side.close()

    def strand(self, seconds: float) -> None:
        self.muted = True
        self._stranded_until = time.monotonic() + seconds
        self.reset("up")

    def _read(self, direction: Direction, line: queue.Queue[tuple[float, bytes] | None]) -> None:
        offset, source = 0, self._sides[direction]
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if self._proxy.blackhole:
                    continue
                passed = self._proxy.edited(chunk, offset, direction)
                if passed is None:
                    break
                offset += len(chunk)
                self._proxy.bytes[direction] += len(chunk)
                line.put((self._proxy.due(), passed))
        line.put(None)

    def _write(self, direction: Direction, line: queue.Queue[tuple[float, bytes] | None]) -> None:
        sink = self._sides["down" if direction == "up" else "up"]
        while (item := line.get()) is not None:
            self._wait_until(item[0], direction)
            with suppress(OSError):
                self._send(sink, item[1])
        self._wait_until(0.0, direction)
        if not self.muted:
            self.end()
        self._close()

    def _wait_until(self, due: float, direction: Direction) -> None:
        while (
            self._proxy.stalled
            or time.monotonic() < due
            or (direction == "up" and self._stranded_until is not None and time.monotonic() < self._stranded_until)
        ):
            time.sleep(0.002)

    def _send(self, sink: socket.socket, data: bytes) -> None:
        while data and (rate := self._proxy.bytes_per_s):
            part = data[: max(int(rate * _SLICE_S), 1)]
            sink.sendall(part)
            time.sleep(len(part) / rate)
            data = data[len(part) :]
        sink.sendall(data)

    def _close(self) -> None:
        self._open -= 1
        if self._open == 0 and not self.muted:
            for side in self._sides.values():
                side.close()


class CutAt:
    """Cuts the connection at the n-th byte of a direction, once."""

    def __init__(self, byte: int) -> None:
        self._byte = byte
        self.done = False

    def __call__(self, chunk: bytes, offset: int) -> bytes | None:
        if self.done or offset + len(chunk) <= self._byte:
            return chunk
        self.done = True
        return None


class FlipAt:
    """Flips a bit of the byte `inside` bytes after the first place where `marker` is found, once."""

    def __init__(self, marker: bytes, inside: int) -> None:
        self._marker = marker
        self._inside = inside
        self.done = False

    def __call__(self, chunk: bytes, offset: int) -> bytes:
        place = chunk.find(self._marker)
        if self.done or place < 0 or place + self._inside >= len(chunk):
            return chunk
        self.done = True
        changed = bytearray(chunk)
        changed[place + self._inside] ^= 0x10
        return bytes(changed)
