"""What the label party's messages say, checked before anything is done with it: it is a peer like any other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from cutlayer.common import alignment
from cutlayer.common.errors import FrameError
from cutlayer.common.limits import RUN_BYTES
from cutlayer.common.wire import form_of
from cutlayer.nonlabel_party.view import CleanPositive
from cutlayer.v1 import training_pb2

MAX_METRICS = 64
_METRIC = re.compile(r"[a-z][a-z0-9_]{0,63}")
_OWN_FIGURES = frozenset({"step", "epoch"})


@dataclass(frozen=True)
class GrantedLabels:
    """How many labels of each class the job grants this party, and how many classes there are."""

    per_class: int = 0
    classes: int = 2


NO_LABELS = GrantedLabels()


@dataclass(frozen=True)
class Held:
    """The label party's answer to this party's sorted id digests.

    Attributes:
        mask: which of them all parties hold, (N,).
        form: how the label party's ids are written.
        resume_step: the step after which all go on.
        labels: granted knowledge: aligned row -> label.
        run: the name of the run; None where it has none.
    """

    mask: npt.NDArray[np.bool_]
    form: alignment.IdForm
    resume_step: int
    labels: Mapping[int, int]
    run: bytes | None = None


def read_held(
    receive: Callable[[], training_pb2.AlignRowsResponse],
    count: int,
    durable_steps: tuple[int, ...],
    granted: GrantedLabels = NO_LABELS,
) -> Held:
    """The answer to `count` id digests.

    Args:
        receive: gives the next message.
        durable_steps: the checkpoints of this party, one of which the step to go on after must be, if not 0.
        granted: labels that may come; others are refused.

    Raises:
        FrameError: the answer does not fit what this party has sent.
    """
    packed, size, labels = bytearray(), (count + 7) // 8, _LabelReader(granted)
    while True:
        response = receive()
        only_labels = labels.add(response) and not response.held_by_all
        if not only_labels and not 0 < len(response.held_by_all) <= size - len(packed):
            raise FrameError("the label party's answer to the id digests has the wrong length")
        packed += response.held_by_all
        if len(packed) == size:
            break
    step = response.resume_step
    if step and step not in durable_steps:
        raise FrameError(f"the label party wants to go on after step {step}, of which this party holds no checkpoint")
    if len(response.run) not in (0, RUN_BYTES):
        raise FrameError(f"the label party names the run in {len(response.run)} bytes, expected {RUN_BYTES}")
    mask = alignment.unpack_mask(bytes(packed), count)
    labels.require_below(int(np.count_nonzero(mask)))
    return Held(mask, form_of(response.form), step, labels.found, response.run or None)


class _LabelReader:
    """The labels in the messages of an answer; holds no more than are granted."""

    def __init__(self, granted: GrantedLabels) -> None:
        self.found: dict[int, int] = {}
        self._granted = granted
        self._of_class: Counter[int] = Counter()

    def add(self, response: training_pb2.AlignRowsResponse) -> bool:
        """Take those of the next message; whether any is new."""
        rows, labels = response.labelled_rows, response.labels
        if len(rows) != len(labels):
            raise _other_labels()
        known = len(self.found)
        for row, label in zip(rows, labels, strict=True):
            if row not in self.found:
                self._of_class[label] += 1
                self.found[row] = label
            too_many = self._of_class[label] > self._granted.per_class
            if self.found[row] != label or label >= self._granted.classes or too_many:
                raise _other_labels()
        return len(self.found) > known

    def require_below(self, aligned: int) -> None:
        """Each is of one of the `aligned` rows."""
        if any(row >= aligned for row in self.found):
            raise FrameError("the label party names a label of a row that is not aligned")


def _other_labels() -> FrameError:
    return FrameError("the labels in the label party's answer are not those that the job grants")


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
