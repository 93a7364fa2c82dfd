"""The messages of Train, as the label party reads and writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cutlayer import __version__
from cutlayer.common.errors import FrameError
from cutlayer.common.handshake import PROTOCOL
from cutlayer.label_party.exchange import Closed
from cutlayer.label_party.links import Frames
from cutlayer.label_party.training import Release
from cutlayer.v1 import matrix_pb2, session_pb2, training_pb2


def hello_from(requests: Iterator[Any]) -> session_pb2.Hello:
    """The first message of a stream; FrameError unless it is Hello."""
    first = next(requests, None)
    if first is None or first.WhichOneof("message") != "hello":
        raise FrameError("the first message of a stream must be Hello")
    hello: session_pb2.Hello = first.hello
    return hello


def activation_of(frame: training_pb2.TrainRequest) -> training_pb2.Activation:
    """The activation in a frame; FrameError where it has none."""
    if frame.WhichOneof("message") != "activation":
        raise FrameError(f"expected an activation, got {frame.WhichOneof('message') or 'nothing'}")
    return frame.activation


def answer_frames(
    step: int, history: bytes, matrices: list[matrix_pb2.Matrix], release: Release, *, checkpoint: bool
) -> Frames:
    answers = [training_pb2.Answer(step=step, history=history, gradient=m) for m in matrices]
    answers = answers or [training_pb2.Answer(step=step, history=history)]
    answers[0].checkpoint = checkpoint
    if (reference := release.clean_positive) is not None:
        answers[0].knowledge.positive_row = reference.row
        answers[0].knowledge.clean_gradient = reference.g_d.numpy().astype("<f4").tobytes()
    for name, value in (release.metrics or {}).items():
        answers[0].metrics.add(name=name, value=value)
    return [training_pb2.TrainResponse(answer=answer) for answer in answers]


def welcome(next_step: int) -> session_pb2.Welcome:
    return session_pb2.Welcome(
        protocol_major=PROTOCOL[0], protocol_minor=PROTOCOL[1], package_version=__version__, next_step=next_step
    )


def goodbye(closed: Closed) -> session_pb2.Goodbye:
    return session_pb2.Goodbye(reason=f"REASON_{closed.reason}", party=closed.party)
