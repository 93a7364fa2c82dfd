"""GAFM: Han and Guan, "GAN-based Vertical Federated Learning for Label Protection in Binary Classification", 2023."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutlayer.label_party.defenses.base import Defense, Search, defenses
from cutlayer.label_party.objectives import Objective, ObjectiveSetting
from cutlayer.label_party.objectives.gafm import Gafm as GafmObjective
from cutlayer.label_party.objectives.gafm_options import GafmOptions


@defenses.register("gafm")
@dataclass(kw_only=True)
class Gafm(GafmOptions, Defense):
    """Trains a generator against a discriminator, and so that the gradient that leaves tells little of the labels.

    The objective is the defense: what it gives leaves as it is. It states no bound.
    """

    paper: ClassVar[str] = "Han and Guan, 2023"
    tasks: ClassVar[frozenset[str]] = frozenset({"binary"})
    passes_unchanged: ClassVar[bool] = True

    def takes_probabilities(self) -> bool:
        """With `activations: probabilities`, unless a transformation of the user's own makes them such."""
        return self.activations == "probabilities" and ":" not in self.transformation

    def search(self) -> Search | None:
        """`delta`, where that is auto."""
        return Search("delta", self.delta_values, self.delta_rows) if self.delta == "auto" else None

    def objective(self, setting: ObjectiveSetting) -> Objective:
        """Generator and discriminator, in place of the top model and the cross-entropy."""
        return GafmObjective(self, setting)
