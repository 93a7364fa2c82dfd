"""No defense: the exact gradient leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutlayer.label_party.defenses.base import Defense, defenses


@defenses.register("none")
@dataclass(kw_only=True)
class NoDefense(Defense):
    """Sends the exact gradient, which gives the labels away; for comparison."""

    paper: ClassVar[str] = "the baseline of Li et al., ICLR 2022"
    passes_unchanged: ClassVar[bool] = True
