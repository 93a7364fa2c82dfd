"""One step of a non-label party: bottom model forward, and backward with what came back.

Shape suffixes: B rows of the batch, N aligned rows, F features, d cut-layer width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cutlayer.common.checkpoints import Tensors, below, optimizer_tensors, prefixed, restore_optimizer
from cutlayer.common.config import NonlabelPartySection
from cutlayer.common.errors import TrainingError
from cutlayer.common.job import Job
from cutlayer.common.models import build_bottom, build_optimizer
from cutlayer.common.randomness import public_seed
from cutlayer.common.schedule import Step
from cutlayer.common.tables import Features
from cutlayer.common.tensors import all_finite


class BottomTraining:
    """A non-label party's bottom model and optimizer.

    Args:
        party: its name.
        features: its features in aligned order.
    """

    def __init__(self, job: Job, party: str, section: NonlabelPartySection, features: Features) -> None:
        self._job = job
        self._party = party
        self._x_NF = features.x_NF
        seed = public_seed(party, job.seed if section.seed is None else section.seed)
        self.model = build_bottom(section.bottom_model, features.spec, job.cut_layer.width_of(party), seed)
        self._optimizer = build_optimizer(section.optimizer, self.model.parameters())

    def tensors(self) -> Tensors:
        """What a checkpoint must hold of model and optimizer."""
        return prefixed("model", self.model.state_dict()) | prefixed("optimizer", optimizer_tensors(self._optimizer))

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self.model.load_state_dict(below("model", tensors))
        restore_optimizer(self._optimizer, below("optimizer", tensors))

    @property
    def features(self) -> Tensor:
        """x_NF of all aligned rows."""
        return self._x_NF

    def features_of(self, step: Step) -> Tensor:
        """x_BF of the step's rows."""
        return self._x_NF[step.rows]

    def forward(self, step: Step) -> Tensor:
        """Activations z_Bd of the step's rows; with a graph on training steps.

        Raises:
            TrainingError: an activation is not finite.
        """
        training = step.kind == "train"
        self.model.train(training)
        torch.default_generator.manual_seed(public_seed("dropout", self._job.seed, self._party, step.number))
        with torch.set_grad_enabled(training):
            z_Bd: Tensor = self.model(self.features_of(step))
        if not all_finite(z_Bd.detach()):
            raise TrainingError(
                f"step {step.number}: an activation is not finite; lower this party's learning rate, "
                "or standardise its features"
            )
        return z_Bd

    def backward(self, z_Bd: Tensor, g_Bd: Tensor) -> None:
        """Back-propagate what came back from the label party, and take the optimizer step."""
        if self._optimizer is None:
            return
        self._optimizer.zero_grad()
        z_Bd.backward(g_Bd)  # type: ignore[no-untyped-call]
        self._optimizer.step()
