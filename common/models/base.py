"""The contracts of bottom and top models. Subclasses are dataclasses; their fields are the options of the run file.

A user's own model is one of these, or any class or function that takes `(input_width, output_width, **options)`
and makes an nn.Module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import nn

from cutlayer.common.registry import Registry
from cutlayer.common.tables import InputSpec


class BottomModel(ABC):
    """A party's network from its features to the cut layer.

    Attributes:
        probabilities: whether each of its activations is between 0 and 1; None where that is not known.
    """

    @property
    def probabilities(self) -> bool | None:
        return None

    @abstractmethod
    def build(self, inputs: InputSpec, width: int) -> nn.Module:
        """A module that maps x (B, F) to z (B, width), row by row, both float32.

        The first `inputs.numeric` columns of x are numbers; the others are category codes as whole numbers,
        0 for unknown and each below its entry in `inputs.cardinalities`.

        Raises:
            ConfigError: the model cannot take such features or give such a width.
        """


class TopModel(ABC):
    """The label party's network from the aggregated activations to the logits."""

    @abstractmethod
    def build(self, width: int, outputs: int) -> nn.Module:
        """A module that maps activations (B, width) to logits (B, outputs), row by row, both float32.

        Raises:
            ConfigError: the model cannot take such a width or give so many logits.
        """


bottom_models: Registry[BottomModel] = Registry("bottom model", "cutlayer.bottom_models")
top_models: Registry[TopModel] = Registry("top model", "cutlayer.top_models")
