"""Plugins by name: options are dataclass fields, and every mistake says what to write instead."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from torch import Tensor

from cutlayer.common.errors import PluginError
from cutlayer.common.registry import Registry


class Spice:
    """A kind of plugin."""


@dataclass(kw_only=True)
class Pepper(Spice):
    """With options, a check, and state that is no option."""

    heat: float = 1.0
    colours: tuple[str, ...] = ("black",)
    _seen: Tensor | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.heat < 0:
            raise ValueError("heat is a number from 0 up")


@pytest.fixture
def spices() -> Registry[Spice]:
    registry: Registry[Spice] = Registry("spice", "cutlayer.tests.spices")
    registry.register("pepper")(Pepper)
    return registry


def test_options_become_fields(spices: Registry[Spice]) -> None:
    assert spices.create("pepper", {"heat": 2, "colours": ["red"]}) == Pepper(heat=2.0, colours=("red",))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("peper", {}, "unknown spice 'peper'; there are: pepper"),
        ("pepper", {"hot": 1}, "spice 'pepper' has no option 'hot'; it has: colours, heat"),
        ("pepper", {"_seen": 1}, "has no option '_seen'"),
        ("pepper", {"heat": "very"}, "option heat: .*got 'very'"),
        ("pepper", {"heat": True}, "option heat: expected a number, got true"),
        ("pepper", {"colours": [1]}, r"option colours\.0: "),
        ("pepper", {"heat": -1}, "spice 'pepper': heat is a number from 0 up"),
        ("no_such_module:Thing", {}, "cannot load 'no_such_module:Thing'"),
        ("support.runs:NoSuchThing", {}, "cannot load 'support.runs:NoSuchThing'"),
        ("support.runs:changed", {}, "expected a dataclass"),
    ],
)
def test_a_mistake_says_what_there_is(
    spices: Registry[Spice], name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(PluginError, match=message):
        spices.create(name, options)


def test_a_name_belongs_to_one_class(spices: Registry[Spice]) -> None:
    spices.register("pepper")(Pepper)  # the same again is fine
    with pytest.raises(PluginError, match="'pepper' is registered twice"):
        spices.register("pepper")(Spice)
