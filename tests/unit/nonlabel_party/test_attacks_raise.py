"""What attacks refuse."""

from __future__ import annotations

import pytest
import torch

from cutlayer.common.errors import PluginError
from cutlayer.nonlabel_party.attacks import attacks
from cutlayer.nonlabel_party.view import StepView


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nrm", {}, "unknown attack 'nrm'; there are: clusters, cosine, hint_cosine, "),
        ("norm", {"layer": "cut"}, "attack 'norm' has no option 'layer'; it has: layers"),
        ("cosine", {"layers": ["last"]}, "attack 'cosine', option layers.0: expected 'cut' or 'first'"),
        ("hint_norm", {"hints": 0}, "attack 'hint_norm': hints is a whole number from 1"),
        ("history", {"rows": 0}, "attack 'history': rows and max_mb are whole numbers from 1"),
        ("collections:Counter", {}, "expected a dataclass"),
    ],
)
def test_names_and_options(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        attacks.create(name, options)


def test_the_first_layer_needs_a_bottom_model() -> None:
    view = StepView(1, ("a",), torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1, 1))
    with pytest.raises(ValueError, match="no bottom model"):
        attacks.create("norm", {"layers": ["first"]}).observe(view)
