"""What every registered defense must hold to, whatever its method."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from cutlayer.common.errors import PluginError
from cutlayer.common.randomness import Noise
from cutlayer.label_party.defenses import Defense, defenses

B, d = 16, 6
KEY, OTHER_KEY = bytes(32), bytes(31) + b"\1"

every_defense = pytest.mark.parametrize("name", defenses.names())


def make(name: str) -> Defense:
    return defenses.create(name, {})


def gradients(rows: int = B, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gradients (rows, d) of two classes that differ, and their labels; a quarter of the rows is positive."""
    generator = torch.Generator().manual_seed(seed)
    y_B = (torch.arange(rows) % 4 == 0).long()
    g_Bd = torch.randn(rows, d, generator=generator) + 3.0 * y_B[:, None]
    return g_Bd / rows, y_B


def with_zero_rows() -> Tensor:
    g_Bd = gradients()[0]
    g_Bd[[0, 3]] = 0.0
    return g_Bd


ORDINARY, LABELS = gradients()
ONE_OF = [(name, defenses.get(name).one_of) for name in defenses.names() if defenses.get(name).one_of]
CASES = {
    "ordinary": (ORDINARY, LABELS),
    "float64": (ORDINARY.double(), LABELS),
    "one row": (ORDINARY[:1], LABELS[:1]),
    "one positive": (ORDINARY[:3], LABELS[:3]),
    "no positive": (ORDINARY, torch.zeros_like(LABELS)),
    "no negative": (ORDINARY, torch.ones_like(LABELS)),
    "all zero": (torch.zeros(B, d), LABELS),
    "some zero": (with_zero_rows(), LABELS),
    "all equal": (torch.full((B, d), 0.25), LABELS),
    "one column": (ORDINARY[:, :1], LABELS),
    "huge": (ORDINARY * 1e30, LABELS),
    "tiny": (ORDINARY * 1e-30, LABELS),
    "subnormal": (ORDINARY * 1e-40, LABELS),
    "huge beside tiny": (ORDINARY * torch.tensor([1e30, 1e-30]).repeat(B // 2)[:, None], LABELS),
}

every_case = pytest.mark.parametrize(("g_Bd", "y_B"), CASES.values(), ids=CASES)


@every_defense
@every_case
def test_shape_and_dtype_stay_and_all_is_finite(name: str, g_Bd: Tensor, y_B: Tensor) -> None:
    out_Bd = make(name).defend(g_Bd, y_B, noise=Noise(KEY)).g_Bd
    assert (out_Bd.shape, out_Bd.dtype) == (g_Bd.shape, g_Bd.dtype)
    assert out_Bd.isfinite().all()


@every_defense
@every_case
def test_the_arguments_are_not_modified(name: str, g_Bd: Tensor, y_B: Tensor) -> None:
    g_before, y_before = g_Bd.clone(), y_B.clone()
    make(name).defend(g_Bd, y_B, noise=Noise(KEY))
    assert torch.equal(g_Bd, g_before)
    assert torch.equal(y_B, y_before)


@every_defense
@every_case
def test_the_same_noise_gives_the_same_bits(name: str, g_Bd: Tensor, y_B: Tensor) -> None:
    first, second = (make(name).defend(g_Bd, y_B, noise=Noise(KEY)).g_Bd for _ in range(2))
    assert torch.equal(first, second)


@every_defense
def test_other_noise_gives_other_bits_unless_declared(name: str) -> None:
    defense = make(name)
    first, second = (defense.defend(ORDINARY, LABELS, noise=Noise(key)).g_Bd for key in (KEY, OTHER_KEY))
    assert torch.equal(first, second) == defense.passes_unchanged
    assert torch.equal(first, ORDINARY) == defense.passes_unchanged


@every_defense
def test_a_defense_reads_the_noise_it_is_given_and_no_global_generator(name: str) -> None:
    outputs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        outputs.append(make(name).defend(ORDINARY, LABELS, noise=Noise(KEY)).g_Bd)
    assert torch.equal(*outputs)


@every_defense
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_a_restored_defense_goes_on_with_the_same_bits(name: str, steps: int) -> None:
    running = make(name)
    for step in range(steps):
        running.defend(*gradients(seed=step), noise=Noise(KEY))
    restored = make(name)
    restored.restore(load(save(dict(running.state()))))
    for y_B in (LABELS, torch.zeros_like(LABELS)):  # one class only: the method may fall back on what it keeps
        outputs = [each.defend(ORDINARY, y_B, noise=Noise(KEY)).g_Bd for each in (running, restored)]
        assert torch.equal(*outputs)
    assert running.telemetry() == restored.telemetry()


@every_defense
def test_a_state_is_a_copy(name: str) -> None:
    defense = make(name)
    defense.defend(*gradients(seed=1), noise=Noise(KEY))
    kept = defense.state()
    before = {key: value.clone() for key, value in kept.items()}
    defense.defend(*gradients(seed=2), noise=Noise(KEY))
    assert all(torch.equal(kept[key], before[key]) for key in before)


@every_defense
def test_telemetry_is_numbers(name: str) -> None:
    defense = make(name)
    defense.defend(ORDINARY, LABELS, noise=Noise(KEY))
    assert all(isinstance(value, (int, float)) for value in defense.telemetry().values())


@pytest.mark.parametrize("name", [name for name in defenses.names() if "multiclass" in defenses.get(name).tasks])
def test_a_multiclass_defense_takes_many_classes(name: str) -> None:
    out_Bd = make(name).defend(ORDINARY, torch.arange(B) % 5, noise=Noise(KEY)).g_Bd
    assert out_Bd.isfinite().all()


@every_defense
def test_a_defense_says_what_it_is(name: str) -> None:
    defense = make(name)
    assert defense.paper
    assert defense.tasks
    assert defense.tasks <= {"binary", "multiclass"}
    assert type(defense).__name__ in repr(defense)


@every_defense
def test_labels_are_those_given_unless_a_method_encodes_them(name: str) -> None:
    assert make(name).encode_labels(LABELS).shape == LABELS.shape


@pytest.mark.parametrize(("name", "one_of"), ONE_OF)
def test_options_that_exclude_each_other_are_as_they_are_listed(name: str, one_of: Mapping[str, float | None]) -> None:
    listed = {option: value for option, value in one_of.items() if value is not None}
    outputs = [defenses.create(name, o).defend(ORDINARY, LABELS, noise=Noise(KEY)).g_Bd for o in (listed, {})]
    assert torch.equal(*outputs)
    with pytest.raises(PluginError, match="give"):
        defenses.create(name, dict.fromkeys(one_of, 0.75))


FOLDER = Path(__file__).parents[3] / "label_party" / "defenses"
BANNED = {"rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "randperm", "normal_", "uniform_"}
BANNED |= {"bernoulli", "bernoulli_", "multinomial", "exponential_", "random_", "distributions", "dropout"}
BANNED |= {"random", "secrets", "urandom", "default_rng", "RandomState", "manual_seed", "seed", "Generator"}


def names_in(file: Path) -> Iterator[str]:
    """Every name that a module uses, imports or takes from something else, in parts: `a.b` is a and b."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name) | ast.ImportFrom(module=str(name)):
                yield from name.split(".")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.name)
def test_defenses_draw_from_noise_alone(file: Path) -> None:
    assert not BANNED & set(names_in(file))


@pytest.mark.parametrize(
    "line",
    [
        "torch.randn(3)",
        "from torch import randn as draw",
        "import numpy.random as r",
        "from random import gauss",
        "from numpy import random",
        "g.normal_()",
    ],
)
def test_other_sources_would_be_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text(line)
    assert BANNED & set(names_in(tmp_path / "planted.py"))
