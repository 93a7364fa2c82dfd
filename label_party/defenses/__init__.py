"""Defenses of the label party, one method a file."""

from cutlayer.label_party.defenses.base import Defense, Perturbed, Search, defenses
from cutlayer.label_party.defenses.gafm import Gafm
from cutlayer.label_party.defenses.iso import IsotropicNoise
from cutlayer.label_party.defenses.marvell import Marvell
from cutlayer.label_party.defenses.max_norm import MaxNorm
from cutlayer.label_party.defenses.none import NoDefense

__all__ = ["Defense", "Gafm", "IsotropicNoise", "Marvell", "MaxNorm", "NoDefense", "Perturbed", "Search", "defenses"]
