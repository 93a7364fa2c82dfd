"""GAFM: Han and Guan, "GAN-based Vertical Federated Learning for Label Protection in Binary Classification", 2023.

The generator learns to predict from a discriminator that tells predictions from labels with noise. What the other
parties get is the gradient of that game plus the gradient of a cross-entropy with randomised labels, each brought to
length 1 first: the centres of the classes point in opposite directions in the two, and cancel.
Equation numbers are the paper's. Shape suffixes: B rows of the batch, d width of the aggregated activations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cutlayer.common.checkpoints import Tensors, below, prefixed
from cutlayer.common.errors import ConfigError
from cutlayer.common.randomness import Noise, public_seed
from cutlayer.common.tensors import all_finite
from cutlayer.label_party.objectives.balance import Balance
from cutlayer.label_party.objectives.base import Learned, Objective, ObjectiveSetting
from cutlayer.label_party.objectives.critic import Critic, Descent
from cutlayer.label_party.objectives.gafm_options import GafmOptions
from cutlayer.label_party.objectives.generator import Generator, build_generator
from cutlayer.label_party.objectives.orientation import RecentScores

_LIMITS = (
    "gafm hides labels from attackers that look at gradients alone. A party that compares those of rows with like "
    "activations can tell many labels: the figures of `neighbours` show how many"
)
_SURE = 2.0  # deviations from what scores that know nothing reach


class Gafm(Objective):
    """A generator in place of the top model, trained against a discriminator; both in the label party.

    Raises:
        UserError: the top model or the transformation does not fit.
    """

    model: Generator

    def __init__(self, options: GafmOptions, setting: ObjectiveSetting) -> None:
        if options.delta == "auto":
            raise ConfigError("defense gafm: delta: auto must be found before training")
        self._options = options
        self._delta = options.delta
        self._units = setting.width * setting.addends
        self._addends = setting.addends
        self.shows_labels = options.rests_on_labels
        seed, rates = setting.seed, options.rates
        monotone = options.generator == "monotone"
        top_seed = public_seed("top", seed)
        self.model = build_generator(
            setting.top_model, setting.width, options.transformation, monotone=monotone, seed=top_seed
        )
        self._descent = Descent(self.model.net, rates.generator or setting.rate)
        self._critic = Critic(
            options.discriminator.hidden,
            clip=options.clip,
            rate=rates.discriminator or setting.rate,
            seed=public_seed("discriminator", seed),
        )
        self._balance = Balance(None if options.gamma == "auto" else options.gamma, options.gamma_batches)
        self._recent = RecentScores(setting.train_rows)
        self._settled = True  # whether the orientation follows from the newest scores
        self._auc: float | None = None
        self._flat_steps = 0  # in which the game moved no row
        self._last: dict[str, float] = {}

    def learn(self, aggregate_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Learned:
        """Discriminator, then generator, then the gradient for the parties, in this order."""
        target_B = y_B.to(aggregate_Bd.dtype)
        real_B1 = (target_B + self._options.sigma * noise.normal((len(y_B),)))[:, None]
        f_Bd = self.model.transform(aggregate_Bd)
        logits_B1 = self.model.logits(f_Bd)
        gap = self._critic.ascend(real_B1, logits_B1.detach().sigmoid()) if all_finite(logits_B1.detach()) else math.nan
        if not math.isfinite(gap):  # nothing has changed yet; the caller says what is wrong
            return Learned(gap, torch.full_like(aggregate_Bd, math.nan))
        gan_Bd, loss_gan, logits_B1 = self._generate(aggregate_Bd, f_Bd, logits_B1)
        self._recent.add(logits_B1.detach().squeeze(1), y_B)
        self._settled = False
        loss_ce = self._cross_entropy(f_Bd, self._soft_labels(target_B, noise))
        (ce_Bd,) = torch.autograd.grad(loss_ce, [aggregate_Bd], materialize_grads=True)
        return self._combined(gan_Bd, ce_Bd, y_B, (gap, loss_gan, float(loss_ce.detach())))

    def predict(self, aggregate_Bd: Tensor) -> Tensor:
        """Logits of the generator's output, turned round where it is upside down."""
        self._orient()
        return super().predict(aggregate_Bd)

    def parameters(self) -> Iterable[nn.Parameter]:
        """None: generator and discriminator have optimizers of their own."""
        return ()

    def end_epoch(self) -> Mapping[str, float]:
        """Look whether the model is upside down; the AUC on the training rows seen last, and whether it is turned."""
        self._orient()
        return self._ranking()

    def telemetry(self) -> Mapping[str, float]:
        """Losses, gamma, and the cosine between the class centres' differences in the two parts, of the last step; the
        AUC on the training rows seen last, before predictions are turned round, and whether they are."""
        return self._last | self._ranking()

    def notes(self) -> Mapping[str, str]:
        """What gafm does not do, that labels show, what gamma is, that the generator is flat or upside down."""
        found = {"limits": _LIMITS}
        if self.shows_labels:
            found["labels"] = (
                f"gafm {'with losses: ce' if self._options.randomised_response else 'without randomised response'}: a "
                "row's gradient tells its label to a party that knows the row's activations, so every row counts as "
                "sent exactly"
            )
        if self._balance.found and self._balance.settled and self._options.losses == "both":
            found["gamma"] = (
                f"gamma: auto has come to {self._balance.gamma:.4g}: with it the two parts of the gradient were as "
                f"long in the mean of the first {self._options.gamma_batches} batches"
            )
        if self._flat_steps:
            found["flat"] = (
                "the game's part of the gradient is 0: the generator says the same of every row. The parties get the "
                "cross-entropy's part alone until that ends; summary.json counts such steps as `flat_steps`. Smaller "
                "learning rates, or another seed, may keep it from that"
            )
        if self._turned:
            found["turned"] = (
                f"the model is upside down: AUC {self._auc or 0:.3f} on the training rows. For as long as it is, its "
                "predictions are turned round, 1 - G, in the figures and in the saved model; summary.json says how it "
                "ended. Smaller learning rates, a larger delta and `generator: monotone` keep it from that"
            )
        return found

    def summary(self) -> Mapping[str, Any]:
        """gamma, the AUC on training rows before predictions are turned round, whether they are, and flat steps."""
        found = {"name": "gafm", "gamma": self._balance.gamma, "train_auc": self._auc, "turned": self._turned}
        return found | {"flat_steps": self._flat_steps}

    def tensors(self) -> Tensors:
        """Discriminator, both optimizers, gamma and recent scores."""
        found = prefixed("discriminator", self._critic.tensors()) | prefixed("generator", self._descent.tensors())
        found |= prefixed("balance", self._balance.tensors()) | prefixed("recent", self._recent.tensors())
        auc = math.nan if self._auc is None else self._auc
        return found | {"state": torch.tensor([auc, self._settled, self._flat_steps], dtype=torch.float64)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        self._critic.restore(below("discriminator", tensors))
        self._descent.restore(below("generator", tensors))
        self._balance.restore(below("balance", tensors))
        self._recent.restore(below("recent", tensors))
        auc, settled, flat_steps = tensors["state"].tolist()
        self._auc, self._settled = None if math.isnan(auc) else auc, bool(settled)
        self._flat_steps = int(flat_steps)

    def _ranking(self) -> dict[str, float]:
        return {} if self._auc is None else {"train_auc": self._auc, "turned": float(self._turned)}

    @property
    def _turned(self) -> bool:
        return float(self.model.orientation) < 0

    def _orient(self) -> None:
        """As the newest scores say; where these may be chance, as it was."""
        if self._settled:
            return
        ranking, self._settled = self._recent.ranking(), True
        self._auc = ranking.auc if ranking else None
        if ranking and abs(ranking.auc - 0.5) > _SURE * ranking.deviation:
            self.model.orientation.fill_(math.copysign(1.0, ranking.auc - 0.5))

    def _soft_labels(self, target_B: Tensor, noise: Noise) -> Tensor:
        """1/2 + u for a 1, 1/2 - u for a 0, u uniform in (0, delta) [4]; as they are without randomised response."""
        if not self._options.randomised_response:
            return target_B
        u_B = (self._delta * noise.uniform((len(target_B),))).to(target_B.dtype)
        return (target_B - 0.5 + u_B).abs()

    def _generate(self, aggregate_Bd: Tensor, f_Bd: Tensor, logits_B1: Tensor) -> tuple[Tensor, float, Tensor]:
        """Train the generator; the GAN part of the gradient, its loss, and the logits that it is taken from."""
        loss = self._critic.loss(logits_B1.sigmoid())
        of = [*self._descent.parameters, aggregate_Bd]
        *gradients, gan_Bd = torch.autograd.grad(loss, of, retain_graph=True, materialize_grads=True)
        self._descent.step(gradients)
        self.model.constrain()
        if self._options.client_gradient == "new_generator":
            logits_B1 = self.model.logits(f_Bd)
            loss = self._critic.loss(logits_B1.sigmoid())
            (gan_Bd,) = torch.autograd.grad(loss, [aggregate_Bd], retain_graph=True, materialize_grads=True)
        return gan_Bd, float(loss.detach()), logits_B1

    def _cross_entropy(self, f_Bd: Tensor, soft_B: Tensor) -> Tensor:
        """With sigmoid of a row's sum [5], or where activations are probabilities, with their mean; a scalar."""
        if self._options.activations == "logits":
            return functional.binary_cross_entropy_with_logits(f_Bd.sum(dim=1), soft_B)
        low, high = f_Bd.detach().aminmax()
        if low < 0 or high > self._addends:
            raise ConfigError(
                "defense gafm, activations: probabilities: an activation is not between 0 and 1; let every bottom "
                "model end in a sigmoid, as mlp does with `output: sigmoid`, or write `activations: logits`"
            )
        return functional.binary_cross_entropy(f_Bd.sum(dim=1) / self._units, soft_B)

    def _combined(self, gan_Bd: Tensor, ce_Bd: Tensor, y_B: Tensor, losses: tuple[float, float, float]) -> Learned:
        """The sum of the two parts [6], each brought to Frobenius norm 1 before it is weighed."""
        options = self._options
        self._flat_steps += not bool(gan_Bd.any())
        if options.normalise:
            gan_Bd, ce_Bd = unit(gan_Bd), unit(ce_Bd)
        gan_Bd = options.gamma_gan * gan_Bd
        gamma = self._balance.weigh(gan_Bd, ce_Bd)
        used = {"gan": gan_Bd, "ce": gamma * ce_Bd}
        parts = {name: part_Bd for name, part_Bd in used.items() if options.losses in ("both", name)}
        gap, loss_gan, loss_ce = losses
        self._last = {"loss_d": gap, "loss_gan": loss_gan, "loss_ce": loss_ce, "gamma": gamma}
        self._last |= centre_cosine(gan_Bd, ce_Bd, y_B)
        loss = sum({"gan": gap, "ce": gamma * loss_ce}[name] for name in parts)
        return Learned(loss, torch.stack(list(parts.values())).sum(dim=0), parts)


def unit(g_Bd: Tensor) -> Tensor:
    """`g_Bd` over its Frobenius norm; zeros stay zeros."""
    exact_Bd = g_Bd.double()  # squares of small or large float32 numbers are 0 or infinite
    norm = float(exact_Bd.norm())
    return (exact_Bd / norm).to(g_Bd.dtype) if norm > 0 else torch.zeros_like(g_Bd)


def centre_cosine(one_Bd: Tensor, other_Bd: Tensor, y_B: Tensor) -> dict[str, float]:
    """The cosine between what leads from the centre of class 0 to that of class 1 in each, under that name.

    Nothing where there is one class alone, or its centres coincide.
    """
    positive_B = y_B == 1
    count = int(positive_B.sum())
    if not 0 < count < len(y_B):
        return {}
    weights_B = torch.where(positive_B, 1.0 / count, -1.0 / (len(y_B) - count)).double()
    one_d, other_d = weights_B @ one_Bd.double(), weights_B @ other_Bd.double()
    lengths = float(one_d.norm() * other_d.norm())
    return {"centre_cosine": float(one_d @ other_d) / lengths} if lengths > 0 else {}
