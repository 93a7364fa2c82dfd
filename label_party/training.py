"""One step of the label party: aggregate, objective, gradient, defense; then update and audit.

Shape suffixes: B rows of the batch, N aligned rows, F features, d cut-layer width, K logits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import NamedTuple

import torch
from torch import Tensor, nn

from cutlayer.common.alignment import keyed_digest
from cutlayer.common.checkpoints import Tensors, below, optimizer_tensors, prefixed, restore_optimizer
from cutlayer.common.config import LabelPartySection
from cutlayer.common.errors import TrainingError
from cutlayer.common.job import LABEL_PARTY, Job
from cutlayer.common.models import build_bottom, build_optimizer
from cutlayer.common.randomness import Noise, public_key, public_seed
from cutlayer.common.schedule import Schedule, Step
from cutlayer.common.tables import Features
from cutlayer.common.tensors import all_finite
from cutlayer.label_party.aggregation import aggregate
from cutlayer.label_party.audit import Audit, BatchLeak, Reference, batch_leaks, draw_reference
from cutlayer.label_party.bound import RunBound
from cutlayer.label_party.chosen import make_defense, make_objective
from cutlayer.label_party.defenses import Defense, Perturbed
from cutlayer.label_party.knowledge import draw_labelled
from cutlayer.label_party.objectives import Learned, Objective
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


_OBJECTIVE = "label_party/objective"  # whose noise it is: no party can have this name


class StepResult(NamedTuple):
    """What a training step makes: mean loss, what may leave for each party, and party -> part of its exact gradient."""

    loss: float
    releases: dict[str, Release]
    parts: Mapping[str, Mapping[str, Tensor]]


class LabelTraining:
    """The label party's objective, bottom model, optimizer, defenses and audit.

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
        self.audit = Audit(multiclass=job.task == "multiclass", parties=len(job.parties))
        self._features = features
        self.labels = y_N
        self.bound = RunBound(len(y_N))
        self.unprotected = Unprotected()
        self.samples = Samples(schedule, section.samples, len(job.parties))
        self._secret = secret
        self.secret_check = keyed_digest(secret, b"which noise secret").hex()  # tells it from another one, and no more
        self._seed = job.seed if section.seed is None else section.seed
        self._evaluated: list[Tensor] = []
        self.defenses: dict[str, Defense] = {party: make_defense(job, section.defense) for party in job.parties}
        self.objective: Objective = make_objective(
            job,
            section,
            self.defenses[job.parties[0]],
            own_features=features is not None,
            train_rows=len(schedule.train_rows),
        )
        self.models = self._build_models(section)
        own = self.models["bottom"].parameters() if "bottom" in self.models else ()
        self._optimizer = build_optimizer(section.optimizer, [*self.objective.parameters(), *own])

    def step(self, step: Step, received: Mapping[str, Received]) -> StepResult:
        """Learn from one batch: all that the parties wait for. `conclude` must follow, before the next step.

        Raises:
            TrainingError: the loss or a gradient is not finite. DefenseError: a defense failed.
        """
        self.models.train()
        y_B = self.labels[step.rows]
        z = {party: r.z_Bd.requires_grad_() for party, r in received.items()}
        torch.default_generator.manual_seed(public_seed("dropout", self.job.seed, LABEL_PARTY, step.number))
        aggregate_Bd = self._aggregate(step, z)
        if self._optimizer:
            self._optimizer.zero_grad()
        learned = self._learn(step, received, aggregate_Bd, y_B)
        parts = self._parts(step, learned, aggregate_Bd, z)
        if learned.gradient_Bd is not None:
            aggregate_Bd.backward(learned.gradient_Bd)  # type: ignore[no-untyped-call]
        self._require_finite(step, learned.loss, z)
        return StepResult(learned.loss, self._releases(step, received, y_B), parts)

    def conclude(self, step: Step, received: Mapping[str, Received], result: StepResult) -> dict[str, BatchLeak]:
        """What can wait until the answers have left: update the models, audit and count what the parties get.

        Returns:
            the largest leak of each attack.
        """
        if self._optimizer:
            self._optimizer.step()
        y_B, multiclass, of_objective = self.labels[step.rows], self.audit.multiclass, self.objective.telemetry()
        leaks = {}
        for party, r in received.items():
            g_Bd, sent = r.z_Bd.grad, result.releases[party].gradient
            assert g_Bd is not None
            assert sent is not None
            reference = self._reference(step, party, g_Bd, y_B)
            leaks[party] = batch_leaks(sent.g_Bd, r.z_Bd, y_B, reference, multiclass=multiclass)
            telemetry = self.defenses[party].telemetry()
            self.bound.add(party, step.rows, telemetry)
            gradients = {"exact": g_Bd, "perturbed": sent.g_Bd, **result.parts.get(party, {})}
            self.samples.add(step, party, y_B, gradients, {**telemetry, **of_objective})
            self.unprotected.add(party, g_Bd if self.objective.shows_labels else None, sent.g_Bd)
        return self.audit.record(step.number, step.epoch, leaks)

    @torch.no_grad()
    def evaluate(self, step: Step, received: Mapping[str, Received]) -> dict[str, float | None]:
        """Take in one batch of test rows; returns the figures where this completes the test rows, else nothing."""
        self.models.eval()
        aggregate_Bd = self._aggregate(step, {party: r.z_Bd for party, r in received.items()})
        self._evaluated.append(self.objective.predict(aggregate_Bd))
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
            party: {**asdict(self.unprotected.parties[party]), **defense.counts()}
            for party, defense in self.defenses.items()
            if party in self.unprotected.parties
        }

    def telemetry(self) -> dict[str, float]:
        """What the defense of each party and the objective state of the training step that was taken last."""
        found = {
            f"defense_{party}_{name}": value
            for party, defense in self.defenses.items()
            for name, value in defense.telemetry().items()
        }
        return found | {f"objective_{name}": value for name, value in self.objective.telemetry().items()}

    def tensors(self) -> Tensors:
        """What a checkpoint must hold of models, optimizers, defenses and an evaluation that is under way."""
        found = prefixed("model", self.models.state_dict()) | prefixed("optimizer", optimizer_tensors(self._optimizer))
        found |= prefixed("objective", self.objective.tensors())
        for party, defense in self.defenses.items():
            found |= prefixed(f"defense/{party}", defense.state())
        return found | {f"evaluated/{number:06d}": logits for number, logits in enumerate(self._evaluated)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self.models.load_state_dict(below("model", tensors))
        restore_optimizer(self._optimizer, below("optimizer", tensors))
        self.objective.restore(below("objective", tensors))
        for party, defense in self.defenses.items():
            defense.restore(below(f"defense/{party}", tensors))
        self._evaluated = [logits for _, logits in sorted(below("evaluated", tensors).items())]

    def _build_models(self, section: LabelPartySection) -> nn.ModuleDict:
        models = {"top": self.objective.model}
        if self._features is not None and section.bottom_model is not None:
            seed, width = public_seed(LABEL_PARTY, self._seed), self.job.cut_layer.width_of(LABEL_PARTY)
            models["bottom"] = build_bottom(section.bottom_model, self._features.spec, width, seed)
        return nn.ModuleDict(models)

    def _aggregate(self, step: Step, z: Mapping[str, Tensor]) -> Tensor:
        parts = [z[party] for party in self.job.parties]
        if self._features is not None:
            parts.append(self.models["bottom"](self._features.x_NF[step.rows]))
        return aggregate(parts, self.job.cut_layer.aggregation)

    def _learn(self, step: Step, received: Mapping[str, Received], aggregate_Bd: Tensor, y_B: Tensor) -> Learned:
        digest = sha256(b"".join(received[party].z_digest for party in self.job.parties)).digest()
        noise = Noise.keyed(self._secret, _OBJECTIVE, step.number, digest)
        encoded_B = self.defenses[self.job.parties[0]].encode_labels(y_B)
        return self.objective.learn(aggregate_Bd.detach().requires_grad_(), encoded_B, noise=noise)

    def _parts(
        self, step: Step, learned: Learned, aggregate_Bd: Tensor, z: Mapping[str, Tensor]
    ) -> dict[str, dict[str, Tensor]]:
        """party -> part -> gradient (B, d), where a report will show them."""
        if not self.samples.keeps(step):
            return {}
        found: dict[str, dict[str, Tensor]] = {party: {} for party in z}
        for name, part_Bd in learned.parts.items():
            gradients = torch.autograd.grad(aggregate_Bd, list(z.values()), part_Bd, retain_graph=True)
            for party, gradient_Bd in zip(z, gradients, strict=True):
                found[party][name] = gradient_Bd
        return found

    def _releases(self, step: Step, received: Mapping[str, Received], y_B: Tensor) -> dict[str, Release]:
        releases = {}
        for party, r in received.items():
            g_Bd = r.z_Bd.grad
            assert g_Bd is not None
            noise = Noise.keyed(self._secret, party, step.number, r.z_digest)
            perturbed = self.defenses[party].defend(g_Bd, y_B, noise=noise)
            granted = self.job.granted(party).clean_positive_gradient
            releases[party] = Release(perturbed, self._reference(step, party, g_Bd, y_B) if granted else None)
        return releases

    def _reference(self, step: Step, party: str, g_Bd: Tensor, y_B: Tensor) -> Reference | None:
        """The same one whenever it is asked for."""
        draw = Noise(public_key("audit", self._seed, party, step.number))
        return draw_reference(g_Bd, y_B, multiclass=self.audit.multiclass, noise=draw)

    def _require_finite(self, step: Step, loss: float, z: Mapping[str, Tensor]) -> None:
        gradients = [t.grad for t in z.values() if t.grad is not None]
        if len(gradients) < len(z):
            raise TrainingError(
                f"step {step.number}: the top model's output does not depend on every party's activations"
            )
        if not math.isfinite(loss) or not all(map(all_finite, gradients)):
            raise TrainingError(
                f"step {step.number}: the loss or a gradient is not finite; nothing was sent or saved. "
                "Lower the learning rates, or standardise the features"
            )
