"""Bottom and top models: the built-in ones, the user's own, and the checks that each passes before it trains."""

from cutlayer.common.models.base import BottomModel, TopModel, bottom_models, top_models
from cutlayer.common.models.bottom import Cnn, LinearBottom, MlpBottom, WideDeep
from cutlayer.common.models.build import build_bottom, build_top, gives_probabilities
from cutlayer.common.models.checks import refuse_row_mixing
from cutlayer.common.models.eager import eager
from cutlayer.common.models.layers import first_layer
from cutlayer.common.models.optimizer import build_optimizer
from cutlayer.common.models.store import save_model
from cutlayer.common.models.top import LinearTop, MlpTop, Sum

__all__ = [
    "BottomModel",
    "Cnn",
    "LinearBottom",
    "LinearTop",
    "MlpBottom",
    "MlpTop",
    "Sum",
    "TopModel",
    "WideDeep",
    "bottom_models",
    "build_bottom",
    "build_optimizer",
    "build_top",
    "eager",
    "first_layer",
    "gives_probabilities",
    "refuse_row_mixing",
    "save_model",
    "top_models",
]
