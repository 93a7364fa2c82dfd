"""What the author of a plugin imports; nothing else of Cutlayer is public.

A plugin is a dataclass that derives from one of the bases here. A run file names it as `package.module:Class`,
or by a short name that its package registers as an entry point of `cutlayer.defenses`, `cutlayer.attacks`,
`cutlayer.bottom_models`, `cutlayer.top_models` or `cutlayer.datasets`.
"""

from cutlayer.common.datasets import Dataset
from cutlayer.common.models import BottomModel, TopModel
from cutlayer.common.randomness import Noise
from cutlayer.common.tables import InputSpec, Table
from cutlayer.label_party.defenses import Defense, Search
from cutlayer.label_party.objectives import Learned, Objective, ObjectiveSetting
from cutlayer.nonlabel_party.attacks import Attack, ScoringAttack
from cutlayer.nonlabel_party.view import CleanPositive, LabelGuess, Layer, StepView

__all__ = [
    "Attack",
    "BottomModel",
    "CleanPositive",
    "Dataset",
    "Defense",
    "InputSpec",
    "LabelGuess",
    "Layer",
    "Learned",
    "Noise",
    "Objective",
    "ObjectiveSetting",
    "ScoringAttack",
    "Search",
    "StepView",
    "Table",
    "TopModel",
]
