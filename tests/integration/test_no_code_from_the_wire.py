"""While parties train and save, nothing is unpickled, and nothing is compiled where peers' bytes are read."""

from __future__ import annotations

import pickle  # noqa: TID251 - to see that it would be noticed
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.runs import BREAST_CANCER, changed
from support.threads import train

RUN = changed(BREAST_CANCER, {"job.epochs": 1, "job.checkpoint": {"every_steps": 3}})
NEVER = frozenset({"pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen"})
NOT_WITH_THEIR_BYTES = frozenset({"compile", "exec", "code.__new__", "marshal.loads"})
OURS = ("tensors", "wire", "session", "handshake", "row_messages", "answers", "stream", "exchange", "door")
READERS = (
    *(f"/{folder}/{name}.py" for folder in ("common", "label_party", "nonlabel_party") for name in OURS),
    *("/grpc/_server.py", "/grpc/_channel.py", "/grpc/_common.py"),
)


class Watch:
    """What happened while it was on; a hook of Python's can never be taken off."""

    on = False
    seen: list[str] = []

    @classmethod
    def hook(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls.on and (event in NEVER or (event in NOT_WITH_THEIR_BYTES and _reads_bytes(sys._getframe(1)))):
            cls.seen.append(f"{event} {arguments!r:.200}")


def _reads_bytes(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.endswith(READERS):
            return True
        frame = frame.f_back
    return False


@pytest.fixture
def watch() -> Iterator[type[Watch]]:
    """The hook, on."""
    sys.addaudithook(Watch.hook)
    Watch.on, Watch.seen = True, []
    yield Watch
    Watch.on = False


def test_P14_peers_bytes_are_never_code(tmp_path: Path, watch: type[Watch]) -> None:
    watch.on = False
    train(tmp_path / "first", RUN).require_success()  # what is imported late is imported now
    watch.on = True
    train(tmp_path / "second", RUN).require_success()
    assert watch.seen == []


def test_P14_the_watch_is_awake(watch: type[Watch]) -> None:
    pickle.loads(pickle.dumps(Fraction(1, 2)))
    exec(compile("compile('1', '', 'eval')", "cutlayer/common/wire.py", "exec"))
    assert {event.split()[0] for event in watch.seen} == {"pickle.find_class", "compile"}
