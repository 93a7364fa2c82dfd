"""A party as an operating-system process: how signals and errors become an exit status and a readable line."""

from __future__ import annotations

import atexit
import gc
import os
import re
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ClassVar, TextIO

from cutlayer.common.errors import CutlayerError, Interrupted, out_of_memory

INTERNAL_ERROR = "internal error, please report"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PACKAGE = Path(__file__).parents[1]
_lost: list[str] = []  # what was written for a person and did not get there
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


@contextmanager
def loading() -> Iterator[None]:
    """Import what a command needs in the block: no garbage is looked for meanwhile, nor in what is there then ever.

    Modules stay to the end, and to go through all objects of torch takes longer than many a training step.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def print_error(text: str) -> None:
    """Show `text` on stderr as this program's."""
    write_out(sys.stderr, f"cutlayer: {text}\n")


def write_out(stream: TextIO, text: str = "") -> None:
    """Write `text` and all that `stream` still holds.

    Where its reader has gone or its disk is full it leads to nowhere from now on: the work goes on, and in the latter
    case `run_party` says at the end what was lost.
    """
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            _lost.append(f"{stream.name} could not be written: {error.strerror}")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def run_party(
    name: str,
    body: Callable[[], int | None],
    telemetry_error: Callable[[str], None] = print_error,
    *,
    verbose: bool = False,
) -> int:
    """Run `body` as the work of this process, and return the exit status that tells how it ended.

    SIGINT and SIGTERM raise `Interrupted` in `body`, once; a second signal of either kind ends the process
    at once. Must be called from the main thread.

    Args:
        name: what runs, for the messages.
        body: the work; what it returns is the status, None meaning 0.
        telemetry_error: shows the message of what ended `body`.
        verbose: also show the traceback of an internal error.
    """
    _lost.clear()
    atexit.register(gc.freeze)  # with torch loaded, the last collection at exit would take a second or more
    with _Signals() as signals:
        try:
            status = _status_of(name, body, signals, telemetry_error, verbose=verbose)
            write_out(sys.stdout)
            if _lost and status == 0:
                print_error(f"{name} is done, but {_lost[0]}")
                status = 1
        except Interrupted as stop:  # the signal came while another end was being reported
            return stop.status
    return status


def peak_rss_bytes() -> int:
    """The most memory that this process has held at a time, in bytes.

    From /proc where there is one: getrusage counts what the parent held when it forked.
    """
    try:
        found = _PEAK.search(Path("/proc/self/status").read_text(encoding="ascii", errors="replace"))
    except OSError:
        found = None
    return 1024 * (int(found.group(1)) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


@contextmanager
def whole_step() -> Iterator[None]:
    """SIGINT and SIGTERM wait until the block has ended, so that a step is done or not begun, never half done."""
    _Signals.holding = True
    try:
        yield
    finally:
        _Signals.holding = False
    if _Signals.held is not None:
        number, _Signals.held = _Signals.held, None
        raise Interrupted(number)


def end_requested() -> bool:
    """Whether a signal waits for the end of a `whole_step`."""
    return _Signals.held is not None


class _Signals:
    """Raises the first SIGINT or SIGTERM as `Interrupted`; ends the process at the second."""

    holding: ClassVar[bool] = False  # handlers are the process's, and so is what they note
    held: ClassVar[int | None] = None

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            os._exit(128 + number)
        self.received = number
        if _Signals.holding:
            _Signals.held = number
            return
        raise Interrupted(number)


def _status_of(
    name: str, body: Callable[[], int | None], signals: _Signals, show: Callable[[str], None], *, verbose: bool
) -> int:
    try:
        return body() or 0
    except Interrupted as stop:
        show(f"{name} {stop}")
        return stop.status
    except BrokenPipeError:  # the reader of our output has gone, as in `cutlayer ... | head`
        return 1
    except Exception as error:
        return _report(name, error, signals.received, show, verbose=verbose)


def _report(name: str, error: Exception, received: int | None, show: Callable[[str], None], *, verbose: bool) -> int:
    """Show how `body` ended; returns the exit status."""
    if received is not None:  # code between here and the signal may have turned Interrupted into its own error
        stop = Interrupted(received)
        show(f"{name} {stop}")
        return stop.status
    if isinstance(error, CutlayerError):
        show(str(error))
        return error.exit_code
    if verbose:
        traceback.print_exception(error)
    show(_describe(name, error))
    return 1


def _describe(name: str, error: Exception) -> str:
    """An unexpected error in one line. Only the system's own messages are repeated: others may quote a value."""
    if isinstance(error, OSError):
        return f"{name}: the system refused: {error}"
    if out_of_memory(error):
        return (
            f"{name} has no memory left; free some, allow it more, or make the batches or models smaller, "
            "then start again with the same --out DIR"
        )
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames[1:] if Path(frame.filename).is_relative_to(_PACKAGE)]  # the first is run_party's
    last = (ours or frames)[-1]
    where = f"{Path(last.filename).name}, line {last.lineno}, in {last.name}"
    return f"{INTERNAL_ERROR}: {name}: {type(error).__name__} at {where}; --verbose shows all of it"
