"""Attacks: one method a file. Importing this package registers the built-in ones."""

from cutlayer.nonlabel_party.attacks.base import Attack, ScoringAttack, attacks
from cutlayer.nonlabel_party.attacks.cosine import CosineAttack
from cutlayer.nonlabel_party.attacks.norm import NormAttack

__all__ = ["Attack", "CosineAttack", "NormAttack", "ScoringAttack", "attacks"]
