"""What a defense refuses: options, labels, states; and what `defend` refuses to let out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from cutlayer.common.errors import DefenseError, PluginError
from cutlayer.common.randomness import Noise
from cutlayer.label_party.defenses import Defense, defenses

G_BD, Y_B = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 1, 0, 1])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("marvel", {}, "unknown defense 'marvel'; there are: gafm, iso, marvell, max_norm, none"),
        ("none", {"t": 1}, "defense 'none' has no option 't'; it has: none"),
        ("max_norm", {"scale": 1}, "defense 'max_norm' has no option 'scale'; it has: none"),
        ("iso", {"sigma": 1}, "defense 'iso' has no option 'sigma'; it has: ratio, t"),
        ("iso", {"t": "much"}, "option t: expected a number"),
        ("iso", {"t": 1.0, "ratio": 1.0}, "give t or ratio"),
        ("iso", {"t": 0.0}, "t and ratio are numbers above 0"),
        ("iso", {"ratio": -1.0}, "t and ratio are numbers above 0"),
        ("iso", {"t": float("nan")}, "t and ratio are numbers above 0"),
        ("iso", {"t": float("inf")}, "t and ratio are numbers above 0"),
        ("marvell", {"s": 1}, "defense 'marvell' has no option 's'; it has: max_leak_auc, model, power, scale"),
        ("marvell", {"max_leak_auc": 0.6, "model": "same"}, "max_leak_auc would not be held with model: same"),
        ("marvell", {"max_leak_auc": 0.6, "model": "zero"}, "give scale or power, or model: uv"),
        ("marvell", {"model": "vu"}, "option model: expected 'uv', 'same' or 'zero'"),
        ("marvell", {"scale": 1.0, "power": 1.0}, "give one of scale, power and max_leak_auc"),
        ("marvell", {"scale": 1.0, "max_leak_auc": 0.6}, "give one of scale, power and max_leak_auc"),
        ("marvell", {"scale": 0.0}, "scale and power are numbers above 0"),
        ("marvell", {"power": float("nan")}, "scale and power are numbers above 0"),
        ("marvell", {"max_leak_auc": 0.5}, "max_leak_auc lies between 0.5 and 1"),
        ("marvell", {"max_leak_auc": 1.0}, "max_leak_auc lies between 0.5 and 1"),
    ],
)
def test_a_wrong_option_is_refused_by_name(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PluginError, match=message):
        defenses.create(name, options)


@pytest.mark.parametrize("labels", [[0, 1, 2, 1], [0, 1, -1, 1]])
def test_marvell_takes_labels_0_and_1_only(labels: list[int]) -> None:
    with pytest.raises(DefenseError, match="a label is neither 0 nor 1"):
        defenses.create("marvell", {}).defend(G_BD, torch.tensor(labels), noise=Noise(bytes(32)))


@pytest.mark.parametrize("name", ["none", "iso", "max_norm"])
def test_a_defense_without_state_takes_none(name: str) -> None:
    with pytest.raises(ValueError, match="keeps no state, got \\['mean'\\]"):
        defenses.create(name, {}).restore({"mean": torch.zeros(1)})


@dataclass(kw_only=True)
class Planted(Defense):
    """Returns what `method` makes of the gradient."""

    paper: ClassVar[str] = "none"
    method: Callable[[Tensor], Any]

    def perturb(self, g_Bd: Tensor, y_B: Tensor, *, noise: Noise) -> Tensor:
        return self.method(g_Bd)  # type: ignore[no-any-return]


def fail(g_Bd: Tensor) -> Tensor:
    raise RuntimeError("it broke")


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (fail, "failed: it broke"),
        (lambda g: None, "returned a NoneType, expected a tensor"),
        (lambda g: g.numpy(), "returned a ndarray, expected a tensor"),
        (lambda g: g[:3] + 1, r"returned \(3, 3\) torch.float32, expected \(4, 3\)"),
        (lambda g: g.T + 1, r"returned \(3, 4\) torch.float32, expected \(4, 3\)"),
        (lambda g: g.double(), "torch.float64, expected .* torch.float32"),
        (lambda g: g * float("nan"), "numbers that are not finite"),
        (lambda g: g / 0, "numbers that are not finite"),
        (lambda g: g, "returned the gradient it was given"),
        (lambda g: g.view_as(g), "returned the gradient it was given"),
        (lambda g: g.add_(1), "returned the gradient it was given"),
    ],
)
def test_P18_what_must_not_leave_does_not(method: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(DefenseError, match=message):
        Planted(method=method).defend(G_BD.clone(), Y_B, noise=Noise(bytes(32)))


def test_what_may_leave_does() -> None:
    assert torch.equal(Planted(method=lambda g: g + 1).defend(G_BD, Y_B, noise=Noise(bytes(32))).g_Bd, G_BD + 1)


@pytest.mark.parametrize("name", ["iso", "max_norm", "marvell"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_P18_a_gradient_that_is_not_finite_is_not_sent(name: str, value: float) -> None:
    g_Bd = G_BD.clone()
    g_Bd[2, 1] = value
    with pytest.raises(DefenseError, match="not finite"):
        defenses.create(name, {}).defend(g_Bd, Y_B, noise=Noise(bytes(32)))
