"""Objectives of the label party: what is trained above the parties' activations, and the gradient that follows."""

from cutlayer.label_party.objectives.base import Learned, Objective, ObjectiveSetting
from cutlayer.label_party.objectives.cross_entropy import CrossEntropy
from cutlayer.label_party.objectives.utility import cross_entropy, utility_figures

__all__ = ["CrossEntropy", "Learned", "Objective", "ObjectiveSetting", "cross_entropy", "utility_figures"]
