"""A party as a child process that does not outlive this one."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO

_STDERR_LINES = 200  # kept of each child
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


class Child:
    """One party, started in a session of its own, so that a terminal's Ctrl-C does not reach it.

    It is sent SIGTERM when the thread that made it dies, so make it in the main thread.
    """

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self.words: deque[str] = deque(maxlen=_STDERR_LINES)
        self.stopped_by_us = False
        self._process = subprocess.Popen(  # noqa: S603 - the command is ours
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=_end_with(os.getpid()),
        )
        self.exit_descriptor = os.pidfd_open(self._process.pid)  # ready to read once the child has ended
        self.stdout, self.stderr = Lines(self._process.stdout), Lines(self._process.stderr)

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.stopped_by_us = True
        self._process.send_signal(number)

    def reap(self) -> int:
        """The exit status of the child, which has ended; negative: killed by that signal."""
        os.close(self.exit_descriptor)
        return self._process.wait()


class Lines:
    """The lines that have come through a pipe, read without waiting."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        assert pipe is not None
        self._pipe = pipe
        self._rest = b""
        self._end_when_empty = False
        self.descriptor = pipe.fileno()
        self.ended = False
        os.set_blocking(self.descriptor, False)

    def end_when_empty(self) -> None:
        """Take an empty pipe as its end from now on."""
        self._end_when_empty = True

    def read(self) -> list[str]:
        """Whole lines; at the end also what came without a newline."""
        chunks = [self._rest, *iter(self._chunk, b"")]
        lines = b"".join(chunks).split(b"\n")
        self._rest = b"" if self.ended else lines.pop()
        return [line.decode(errors="replace") for line in lines if line]

    def close(self) -> None:
        """Close the pipe."""
        self._pipe.close()

    def _chunk(self) -> bytes:
        """What there is now; empty where there is nothing, and then `ended` says whether for good."""
        try:
            data = os.read(self.descriptor, 1 << 16)
        except BlockingIOError:
            self.ended = self._end_when_empty
            return b""
        self.ended = not data
        return data


def _end_with(parent: int) -> Callable[[], None]:
    """What a new child does first: ask for SIGTERM when its parent dies, however that dies."""

    def ask() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:  # it died before the request
            os._exit(1)

    return ask
