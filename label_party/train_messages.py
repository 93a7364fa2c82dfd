"""The messages of Train, as the label party writes them."""

from __future__ import annotations

from cutlayer import __version__
from cutlayer.common.session import PROTOCOL
from cutlayer.label_party.exchange import Closed
from cutlayer.label_party.links import Frames
from cutlayer.label_party.training import Release
from cutlayer.v1 import matrix_pb2, session_pb2, training_pb2


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
