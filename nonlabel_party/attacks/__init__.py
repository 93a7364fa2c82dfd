"""Attacks: one method a file. Importing this package registers the built-in ones."""

from cutlayer.nonlabel_party.attacks.base import Attack, ScoringAttack, attacks
from cutlayer.nonlabel_party.attacks.clusters import ClustersAttack
from cutlayer.nonlabel_party.attacks.cosine import CosineAttack
from cutlayer.nonlabel_party.attacks.hint_cosine import HintCosineAttack
from cutlayer.nonlabel_party.attacks.hint_distance import HintDistanceAttack
from cutlayer.nonlabel_party.attacks.hint_inner import HintInnerAttack
from cutlayer.nonlabel_party.attacks.hint_norm import HintNormAttack
from cutlayer.nonlabel_party.attacks.history import HistoryAttack
from cutlayer.nonlabel_party.attacks.mean import MeanAttack
from cutlayer.nonlabel_party.attacks.median import MedianAttack
from cutlayer.nonlabel_party.attacks.neighbours import NeighboursAttack
from cutlayer.nonlabel_party.attacks.norm import NormAttack
from cutlayer.nonlabel_party.attacks.spectral import SpectralAttack

__all__ = [
    "Attack",
    "ClustersAttack",
    "CosineAttack",
    "HintCosineAttack",
    "HintDistanceAttack",
    "HintInnerAttack",
    "HintNormAttack",
    "HistoryAttack",
    "MeanAttack",
    "MedianAttack",
    "NormAttack",
    "NeighboursAttack",
    "ScoringAttack",
    "SpectralAttack",
    "attacks",
]
