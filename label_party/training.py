"""One step of the label party: aggregate, top model, loss, gradient, defense, audit, update.

Shape suffixes: B rows of the batch, N aligned rows, F features, d cut-layer width, K logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cutlayer.common.checkpoints import Tensors, below, optimizer_tensors, prefixed, restore_optimizer
from cutlayer.common.config import LABEL_PARTY, Choice, Job, LabelPartySection
from cutlayer.common.errors import PluginError, TrainingError
from cutlayer.common.models import build_bottom, build_optimizer, build_top
from cutlayer.common.randomness import Noise, public_key, public_seed
from cutlayer.common.schedule import Schedule, Step
from cutlayer.common.tables import Features
from cutlayer.common.tensors import all_finite
from cutlayer.label_party.aggregation import aggregate, aggregate_width
from cutlayer.label_party.audit import Audit, BatchLeak, Reference, batch_leaks, draw_reference
from cutlayer.label_party.bound import RunBound
from cutlayer.label_party.defenses import Defense, Perturbed, defenses
from cutlayer.label_party.knowledge import draw_labelled
from cutlayer.label_party.objectives import CrossEntropy
from cutlayer.label_party.samples import Samples
from cutlayer.label_party.unprotected import Unprotected


@dataclass(frozen=True)
class Received:
    """One party's activations of a step, and the SHA-256 of the bytes they came as."""

    z_Bd: Tensor
    z_digest: bytes


@dataclass(frozen=True)
class Release:
    """What may leave for one party after a step; `gradient` is None after an evaluation step."""

    gradient: Perturbed | None = None
    clean_positive: Reference | None = None
    metrics: Mapping[str, float] | None = None


def make_defense(job: Job, choice: Choice) -> Defense:
    """The defense of a run file, for one party.

    Raises:
        PluginError: there is none of that name or option, or it does not fit the task.
    """
    defense = defenses.create(choice.name, choice.options)
    if job.task not in defense.tasks:
        raise PluginError(f"defense {choice.name!r} is for task {', '.join(sorted(defense.tasks))}, not {job.task}")
    return defense


class StepResult(NamedTuple):
    """What a training step makes: mean loss, what may leave for each party, largest leak of each attack."""

    loss: float
    releases: dict[str, Release]
    leak: dict[str, BatchLeak]


class LabelTraining:
    """The label party's models, optimizer, defenses and audit.

    Args:
        features: the label party's own features in aligned order, where it has a bottom model.
        y_N: labels in aligned order, 0/1 or 0..k-1.
        secret: 32 bytes that key the defense noise.
    """

    def __init__(
        self,
        job: Job,
        section: LabelPartySection,
        schedule: Schedule,
        features: Features | None,
        y_N: Tensor,
        secret: bytes,
    ) -> None:
        self.job = job
        self.schedule = schedule
        self.objective = CrossEntropy.of(job)
        self.audit = Audit(multiclass=job.task == "multiclass", parties=len(job.parties))
        self._features = features
        self.labels = y_N
        self.bound = RunBound(len(y_N))
        self.unprotected = Unprotected()
        self.samples = Samples(schedule, section.samples, len(job.parties))
        self._secret = secret
        self._seed = job.seed if section.seed is None else section.seed
        self._evaluated: list[Tensor] = []
        self.defenses: dict[str, Defense] = {party: make_defense(job, section.defense) for party in job.parties}
        self.models = self._build_models(section)
        self._optimizer = build_optimizer(section.optimizer, self.models.parameters())

    def step(self, step: Step, received: Mapping[str, Received]) -> StepResult:
        """Train on one batch.

        Raises:
            TrainingError: the loss or a gradient is not finite. DefenseError: a defense failed.
        """
        self.models.train()
        y_B = self.labels[step.rows]
        z = {party: r.z_Bd.requires_grad_() for party, r in received.items()}
        torch.default_generator.manual_seed(public_seed("dropout", self.job.seed, LABEL_PARTY, step.number))
        logits_BK = self._logits(step, z)
        loss = self.objective.loss(logits_BK, self._training_labels(y_B))
        if self._optimizer:
            self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._require_finite(step, loss, z)
        releases, leak = self._release(step, received, y_B)
        if self._optimizer:
            self._optimizer.step()
        return StepResult(float(loss.detach()), releases, leak)

    @torch.no_grad()
    def evaluate(self, step: Step, received: Mapping[str, Received]) -> dict[str, float | None]:
        """Take in one batch of test rows; returns the figures where this completes the test rows, else nothing."""
        self.models.eval()
        self._evaluated.append(self._logits(step, {party: r.z_Bd for party, r in received.items()}))
        if not step.completes_evaluation:
            return {}
        logits_NK, self._evaluated = torch.cat(self._evaluated), []
        return self.objective.figures(logits_NK, self.labels[self.schedule.test_rows])

    def labels_for(self, party: str) -> dict[int, int]:
        """Aligned rows whose labels the job grants to `party`."""
        return draw_labelled(self.labels, self.schedule, self.job.granted(party).labelled_rows, self._seed, party)

    def releases(self) -> dict[str, dict[str, int]]:
        """party -> rows and steps that left, how many of each as they were, and what the defense counts."""
        return {
            party: {**asdict(counts), **self.defenses[party].counts()}
            for party, counts in self.unprotected.parties.items()
        }

    def tensors(self) -> Tensors:
        """What a checkpoint must hold of models, optimizer, defenses and an evaluation that is under way."""
        found = prefixed("model", self.models.state_dict()) | prefixed("optimizer", optimizer_tensors(self._optimizer))
        for party, defense in self.defenses.items():
            found |= prefixed(f"defense/{party}", defense.state())
        return found | {f"evaluated/{number:06d}": logits for number, logits in enumerate(self._evaluated)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self.models.load_state_dict(below("model", tensors))
        restore_optimizer(self._optimizer, below("optimizer", tensors))
        for party, defense in self.defenses.items():
            defense.restore(below(f"defense/{party}", tensors))
        self._evaluated = [logits for _, logits in sorted(below("evaluated", tensors).items())]

    def _build_models(self, section: LabelPartySection) -> nn.ModuleDict:
        seed, cut = self._seed, self.job.cut_layer
        width = aggregate_width(cut, self.job.parties, own_features=self._features is not None)
        models = {"top": build_top(section.top_model, width, self.objective.outputs, public_seed("top", seed))}
        if self._features is not None and section.bottom_model is not None:
            models["bottom"] = build_bottom(
                section.bottom_model, self._features.spec, cut.width_of(LABEL_PARTY), public_seed(LABEL_PARTY, seed)
            )
        return nn.ModuleDict(models)

    def _logits(self, step: Step, z: Mapping[str, Tensor]) -> Tensor:
        parts = [z[party] for party in self.job.parties]
        if self._features is not None:
            parts.append(self.models["bottom"](self._features.x_NF[step.rows]))
        logits_BK: Tensor = self.models["top"](aggregate(parts, self.job.cut_layer.aggregation))
        return logits_BK

    def _training_labels(self, y_B: Tensor) -> Tensor:
        return self.defenses[self.job.parties[0]].encode_labels(y_B)

    def _release(
        self, step: Step, received: Mapping[str, Received], y_B: Tensor
    ) -> tuple[dict[str, Release], dict[str, BatchLeak]]:
        multiclass = self.audit.multiclass
        releases, leaks = {}, {}
        for party, r in received.items():
            g_Bd = r.z_Bd.grad
            assert g_Bd is not None
            noise = Noise.keyed(self._secret, party, step.number, r.z_digest)
            perturbed = self.defenses[party].defend(g_Bd, y_B, noise=noise)
            draw = Noise(public_key("audit", self._seed, party, step.number))
            reference = draw_reference(g_Bd, y_B, multiclass=multiclass, noise=draw)
            leaks[party] = batch_leaks(perturbed.g_Bd, y_B, reference, multiclass=multiclass)
            telemetry = self.defenses[party].telemetry()
            self.bound.add(party, step.rows, telemetry)
            self.samples.add(step, party, y_B, g_Bd, perturbed.g_Bd, telemetry)
            self.unprotected.add(party, g_Bd, perturbed.g_Bd)
            granted = self.job.granted(party).clean_positive_gradient
            releases[party] = Release(perturbed, reference if granted else None)
        return releases, self.audit.record(step.number, step.epoch, leaks)

    def _require_finite(self, step: Step, loss: Tensor, z: Mapping[str, Tensor]) -> None:
        gradients = [t.grad for t in z.values() if t.grad is not None]
        if len(gradients) < len(z):
            raise TrainingError(
                f"step {step.number}: the top model's output does not depend on every party's activations"
            )
        if not all(map(all_finite, [loss.detach(), *gradients])):
            raise TrainingError(
                f"step {step.number}: the loss or a gradient is not finite; nothing was sent and no weight changed. "
                "Lower the learning rates, or standardise the features"
            )
