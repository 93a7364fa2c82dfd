"""A TCP proxy that does on the way what networks do: delay, cut, swallow, flip."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

Direction = Literal["up", "down"]  # to the label party, or from it
Edit = Callable[[bytes, int], bytes | None]  # a chunk and its offset in the connection -> what goes on; None cuts it


class Proxy:
    """Forwards connections to `target`, host:port. A test changes what happens to data through the attributes.

    Attributes:
        delay_s: how long each chunk is held.
        blackhole: swallow all data, both ways, and keep connections open.
        edits: what becomes of the data of a direction.
        connections: how many have come so far.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.delay_s = 0.0
        self.blackhole = False
        self.edits: dict[Direction, Edit] = {}
        self.connections = 0
        self.bytes: dict[Direction, int] = {"up": 0, "down": 0}
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Reset all connections; new ones are accepted."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening and cut what there is."""
        self._listener.close()
        self.cut()

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
            self._sockets += [client, server]
            for source, sink, direction in ((client, server, "up"), (server, client, "down")):
                threading.Thread(target=self._pump, args=(source, sink, direction), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        offset = 0
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                time.sleep(self.delay_s)
                if self.blackhole:
                    continue
                passed = self._edited(chunk, offset, direction)
                if passed is None:
                    break
                offset += len(chunk)
                self.bytes[direction] += len(chunk)
                sink.sendall(passed)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _edited(self, chunk: bytes, offset: int, direction: Direction) -> bytes | None:
        edit = self.edits.get(direction)
        return edit(chunk, offset) if edit else chunk


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
