"""What a peer is told when its call ends with an error, and what the log keeps of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote

import grpc

from cutlayer.common.errors import CutlayerError
from cutlayer.common.telemetry import Telemetry
from cutlayer.label_party.exchange import Closed, StreamGone

_ENDED = "the label party ended the session; its own log says why"
_WINDOW_S = 60.0
_LINES = 20  # a window; a million refusals must not fill the disk
_AGAIN_AFTER_S = 600.0  # a line that was written before


class Boundary:
    """Lets errors cross the wire only if their class says so; the rest is for the label party's log."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._refused = Sparingly(telemetry.warning)
        self._failed = Sparingly(telemetry.error)

    @contextmanager
    def around(self, context: grpc.ServicerContext) -> Iterator[None]:
        """End the call of `context` with the status and text that its peer may see."""
        try:
            yield
        except StreamGone:
            context.abort(grpc.StatusCode.ABORTED, "a newer stream of this party has taken over")
        except Closed as closed:
            lost = f"the label party ended the session: it lost party {closed.party!r}"
            context.abort(grpc.StatusCode.NOT_FOUND, lost if closed.reason == "PARTY_LOST" else _ENDED)
        except grpc.RpcError:  # the call has ended; there is nobody to answer
            raise
        except Exception as error:
            status = error.wire_status if isinstance(error, CutlayerError) else None
            if status is None:
                self._failed.write(f"a stream failed: {type(error).__name__}: {error}")
                context.abort(grpc.StatusCode.INTERNAL, "see the label party's log")
            self._telemetry.prometheus.refused(error)
            self._refused.write(f"refused a call from {_host(context.peer())}: {error}")
            context.abort(grpc.StatusCode[status], str(error))


class Sparingly:
    """Writes each line once in ten minutes, no more than some lines a minute, and how many it left out.

    Args:
        write: takes one line.
        now: seconds of a clock that never goes back.
    """

    def __init__(self, write: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._now = now
        self._lock = threading.Lock()
        self._written: dict[str, float] = {}
        self._left_out = 0
        self._began = float("-inf")
        self._count = 0

    def write(self, line: str) -> None:
        """Write `line`, or count it."""
        with self._lock:
            now, news = self._now(), []
            if now - self._began > _WINDOW_S:
                self._begin_window(now)
                if self._left_out:
                    news, self._left_out = [f"{self._left_out} more like the last ones were left out"], 0
            if line in self._written or self._count >= _LINES:
                self._left_out += 1
            else:
                self._written[line] = now
                self._count += 1
                news.append(line)
        for one in news:
            self._write(one)

    def _begin_window(self, now: float) -> None:
        self._began, self._count = now, 0
        self._written = {line: at for line, at in self._written.items() if now - at < _AGAIN_AFTER_S}


def _host(peer: str) -> str:
    """Where a call comes from, without its port, which is another one for each connection."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]") or peer
