"""What the label party's messages say, checked before anything is done with it: it is a peer like any other."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from cutlayer.common import alignment
from cutlayer.common.errors import FrameError
from cutlayer.common.wire import form_of
from cutlayer.nonlabel_party.view import CleanPositive
from cutlayer.v1 import training_pb2

MAX_METRICS = 64
_METRIC = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OWN_FIGURES = frozenset({"step", "epoch"})


def read_held(
    receive: Callable[[], training_pb2.AlignRowsResponse], count: int, durable_steps: tuple[int, ...]
) -> tuple[npt.NDArray[np.bool_], alignment.IdForm, int]:
    """Which of `count` ids all parties hold, (count,); how the label party's are written; the step to go on after.

    Args:
        receive: gives the next message.
        durable_steps: the checkpoints of this party, one of which that step must be, or 0.

    Raises:
        FrameError: the answer does not fit what this party has sent.
    """
    packed, size = bytearray(), (count + 7) // 8
    while True:
        response = receive()
        if not 0 < len(response.held_by_all) <= size - len(packed):
            raise FrameError("the label party's answer to the id digests has the wrong length")
        packed += response.held_by_all
        if len(packed) == size:
            break
    step = response.resume_step
    if step and step not in durable_steps:
        raise FrameError(f"the label party wants to go on after step {step}, of which this party holds no checkpoint")
    return alignment.unpack_mask(bytes(packed), count), form_of(response.form), step


def shared_metrics(answer: training_pb2.Answer) -> dict[str, float]:
    """The figures in an answer, by name.

    Raises:
        FrameError: too many of them, one without a value, or a name that is none.
    """
    if len(answer.metrics) > MAX_METRICS:
        raise FrameError(f"the label party's answer has {len(answer.metrics)} figures, expected at most {MAX_METRICS}")
    for metric in answer.metrics:
        if not _METRIC.fullmatch(metric.name) or metric.name in _OWN_FIGURES or not metric.HasField("value"):
            raise FrameError("a figure in the label party's answer has no proper name or no value")
    return {metric.name: metric.value for metric in answer.metrics}


def clean_positive(knowledge: training_pb2.Knowledge | None, rows: int, width: int) -> CleanPositive | None:
    """The knowledge in the answer to a batch of `rows`; None where it names no row.

    Raises:
        FrameError: it does not fit the batch, or a number is not finite.
    """
    if knowledge is None or not knowledge.HasField("positive_row"):
        return None
    if knowledge.positive_row >= rows or len(knowledge.clean_gradient) != 4 * width:
        raise FrameError("the knowledge in the label party's answer does not fit the batch")
    g_d = np.frombuffer(knowledge.clean_gradient, dtype="<f4").astype(np.float32)
    if not np.isfinite(g_d).all():
        raise FrameError("the knowledge in the label party's answer has a number that is not finite")
    return CleanPositive(knowledge.positive_row, torch.from_numpy(g_d))
