"""TensorBoard event files, written at once: no queue, no thread, and neither torch nor TensorFlow imported."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from cutlayer.common.progress import Record


class ScalarWriter:
    """Appends scalars to one new event file in `folder`, which is made if missing."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{_wall_time():.0f}.{socket.gethostname()}.{os.getpid()}"
        self._records = RecordWriter(open(folder / name, "ab", buffering=0))  # noqa: SIM115 - closed by close()
        self._write(Event(wall_time=_wall_time(), file_version="brain.Event:2"))

    def add(self, step: int, record: Record) -> None:
        """Write every figure of `record` that is not None, under its key, at `step`."""
        values = [Summary.Value(tag=key, simple_value=value) for key, value in record.items() if value is not None]
        self._write(Event(wall_time=_wall_time(), step=step, summary=Summary(value=values)))

    def close(self) -> None:
        """Close the file."""
        self._records.close()

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
        self._records.flush()


def _wall_time() -> float:
    """Seconds since 1970: TensorBoard's axis; nothing is decided by it."""
    return datetime.now(UTC).timestamp()  # noqa: TID251 - for people
