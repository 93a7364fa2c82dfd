"""The walk of one mini-batch as a non-label party sees it: forward, exchange, a curious look, backward.

Shape suffixes: B rows of the batch, N aligned rows, d cut-layer width.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from torch import Tensor

from cutlayer.common.checkpoints import Tensors, prefixed
from cutlayer.common.errors import FrameError
from cutlayer.common.job import Job
from cutlayer.common.schedule import Schedule, Step
from cutlayer.common.tensors import to_matrices
from cutlayer.nonlabel_party.answers import clean_positive
from cutlayer.nonlabel_party.client import Answer, LabelPartyClient
from cutlayer.nonlabel_party.curiosity import Curiosity
from cutlayer.nonlabel_party.probe import FirstLayerProbe
from cutlayer.nonlabel_party.training import BottomTraining
from cutlayer.nonlabel_party.view import StepView


class Walk:
    """The walk of one mini-batch as a non-label party sees it."""

    def __init__(
        self,
        training: BottomTraining,
        client: LabelPartyClient,
        schedule: Schedule,
        curiosity: Curiosity,
        party: str,
        row_ids: npt.NDArray[np.object_],
        job: Job,
        known_labels: Mapping[str, int],
    ) -> None:
        self.training = training
        self._client = client
        self.schedule = schedule
        self.curiosity = curiosity
        self._row_ids = row_ids
        self._encoding = job.cut_layer.encoding
        self._granted = job.granted(party).kinds()
        self._known_labels = known_labels
        self.inside_step = False  # between the two updates of a step: not a state to save
        self._probe = FirstLayerProbe(training.model) if curiosity.looks_at_first_layer else None

    def step(self, step: Step) -> Answer:
        """Forward, exchange, backward."""
        z_Bd = self.training.forward(step)
        matrices = to_matrices(z_Bd.detach(), self._encoding)
        answer = self._client.exchange(step.number, self.schedule.rows_digest(step.number), matrices, len(step.rows))
        self.inside_step = True
        if step.kind == "train":
            self._learn(step, z_Bd, answer)
        self._client.applied(step.number)
        self.inside_step = False
        return answer

    def tensors(self) -> tuple[Tensors, list[str]]:
        """What a checkpoint must hold of training and attacks after the last step, and which attacks still look."""
        attacks, looking = self.curiosity.save(self._client.link_state().step)
        return prefixed("training", self.training.tensors()) | prefixed("attacks", attacks), looking

    def _learn(self, step: Step, z_Bd: Tensor, answer: Answer) -> None:
        if answer.gradient is None:
            raise FrameError(f"the answer to training step {step.number} has no gradient")
        g_Bd = answer.gradient.tensor()
        if self.curiosity.awake:
            self.curiosity.observe(self._view(step, z_Bd, g_Bd, answer))
        self.training.backward(z_Bd, g_Bd)

    def _view(self, step: Step, z_Bd: Tensor, g_Bd: Tensor, answer: Answer) -> StepView:
        probe = self._probe
        return StepView(
            step=step.number,
            row_ids=tuple(self._row_ids[step.rows]),
            x_BF=self.training.features_of(step),
            z_Bd=z_Bd.detach().clone(),
            g_Bd=g_Bd.clone(),
            granted=self._granted,
            clean_positive=clean_positive(answer.knowledge, *g_Bd.shape),
            known_labels=self._known_labels,
            pull_back=(lambda g: probe.pull_back(z_Bd, g)) if probe else None,
        )
