"""Commands that run beside a test, with their output in a file that the test can look into meanwhile."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import psutil

from support.runs import command, environment


class Background:
    """A command that runs while the context lasts; at the end it and all its children are killed.

    Args:
        args: of `cutlayer`, or a whole command line where `whole` is true.
        variables: what its environment has beside that of tests.
    """

    def __init__(
        self,
        *args: str | Path,
        cwd: Path | None = None,
        whole: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed by __exit__
        self.process = subprocess.Popen(
            list(map(str, args)) if whole else command(*args),
            cwd=cwd,
            env=environment(**(variables or {})),
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
        )
        self._children: list[psutil.Process] = []

    def __enter__(self) -> Background:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(psutil.NoSuchProcess):  # it has ended, and been waited for
            self.children()
        for one in self._children:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.kill()
        self.process.wait()
        self._file.close()

    @property
    def output(self) -> str:
        """All that it has written so far."""
        return Path(self._file.name).read_text(errors="replace")

    def await_words(self, *words: str, timeout: float = 60) -> str:
        """Wait until the output has all `words`; returns it."""
        deadline = time.monotonic() + timeout
        while not all(word in self.output for word in words):
            assert self.process.poll() is None, f"ended before it said {words}:\n{self.output}"
            assert time.monotonic() < deadline, f"did not say {words}:\n{self.output}"
            time.sleep(0.02)
        return self.output

    def children(self) -> list[psutil.Process]:
        """Its parties, as processes."""
        self._children = psutil.Process(self.process.pid).children(recursive=True)
        return self._children

    def finish(self, timeout: float = 60) -> tuple[int, str]:
        """Wait for its end; exit status and output."""
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"did not end within {timeout} s:\n{self.output}") from None
        return status, self.output


def await_gone(processes: Sequence[psutil.Process], timeout: float = 15) -> None:
    """Wait until none of `processes` is left."""
    _, alive = psutil.wait_procs(processes, timeout=timeout)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
