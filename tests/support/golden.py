"""Tiny runs whose frames and checkpoints are kept, so that tomorrow's code is held to what today's has written.

golden/runs/v1/NAME.yaml              the run file, with labels.csv and features.csv
golden/histories/v1/NAME.jsonl        every frame between lab and the label party, in the order in which lab saw it
golden/checkpoints/v1/NAME/PARTY/     step-..., a checkpoint of each party
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cutlayer.common import run_files
from cutlayer.common.config import RunFile
from cutlayer.nonlabel_party.stream import Stream
from cutlayer.v1 import training_pb2
from support.runs import Run
from support.threads import Parties

GOLDEN = Path(__file__).parents[1] / "golden"
VERSION = "v1"
NAMES = ("plain", "everything")
PARTIES = ("label_party", "lab")
STEP = 4  # of the checkpoints


@dataclass(frozen=True)
class Frame:
    """A message of cutlayer.v1 by its name, and its bytes."""

    message: str
    data: bytes

    def parse(self) -> Any:
        """The message."""
        return getattr(training_pb2, self.message).FromString(self.data)


def run_of(name: str) -> Run:
    """The run file as a mapping."""
    run: Run = yaml.safe_load(_run_path(name).read_text())
    return run


def run_file_of(name: str) -> RunFile:
    """The run file as today's code reads it."""
    return run_files.load(_run_path(name))


def history_of(name: str) -> list[Frame]:
    """The recorded frames."""
    lines = map(json.loads, (GOLDEN / "histories" / VERSION / f"{name}.jsonl").read_text().splitlines())
    return [Frame(line["message"], base64.b64decode(line["frame"])) for line in lines]


def begin_from_checkpoints(name: str, folder: Path) -> Parties:
    """Start the run in `folder`, where every party finds its recorded checkpoint."""
    for party in PARTIES:
        target = folder / "out" / party / "checkpoints"
        shutil.copytree(GOLDEN / "checkpoints" / VERSION / name / party, target)
    return _start(name, folder)


def record(name: str, folder: Path) -> None:
    """Run it in `folder`, and keep what it sent and saved."""
    frames: list[Frame] = []
    with pytest.MonkeyPatch.context() as patch:
        _listen(patch, frames)
        outcome = _start(name, folder).wait().require_success()
    history = GOLDEN / "histories" / VERSION / f"{name}.jsonl"
    history.write_text("".join(f"{line}\n" for line in map(_line, frames)))
    for party in PARTIES:
        kept = GOLDEN / "checkpoints" / VERSION / name / party
        shutil.rmtree(kept, ignore_errors=True)
        step = f"step-{STEP:09d}"
        shutil.copytree(outcome.out / party / "checkpoints" / step, kept / step)


def _run_path(name: str) -> Path:
    return GOLDEN / "runs" / VERSION / f"{name}.yaml"


def _start(name: str, folder: Path) -> Parties:
    for table in ("labels.csv", "features.csv"):
        shutil.copy(_run_path(name).with_name(table), folder)
    return Parties(folder, run_of(name))


def _line(frame: Frame) -> str:
    return json.dumps({"message": frame.message, "frame": base64.b64encode(frame.data).decode()})


def _listen(patch: pytest.MonkeyPatch, frames: list[Frame]) -> None:
    send, receive = Stream.send, Stream.receive

    def keep(message: Any) -> None:
        frames.append(Frame(type(message).__name__, message.SerializeToString(deterministic=True)))

    def sending(self: Stream, *messages: Any) -> None:
        for message in messages:
            keep(message)
        send(self, *messages)

    def receiving(self: Stream) -> Any:
        message = receive(self)
        keep(message)
        return message

    patch.setattr(Stream, "send", sending)
    patch.setattr(Stream, "receive", receiving)


def of_kind(frames: list[Frame], message: str) -> Iterator[Any]:
    """The parsed frames of one message."""
    return (frame.parse() for frame in frames if frame.message == message)
