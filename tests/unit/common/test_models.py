"""Bottom and top models: what they compute, that weights follow from the seed, and that rows stay apart."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cutlayer.common import config
from cutlayer.common.config import Choice
from cutlayer.common.errors import ConfigError, PluginError
from cutlayer.common.models import (
    bottom_models,
    build_bottom,
    build_optimizer,
    build_top,
    first_layer,
    refuse_row_mixing,
    top_models,
)
from cutlayer.common.tables import InputSpec

MIXED = InputSpec(numeric=2, cardinalities=(3, 4))
IMAGE = InputSpec(numeric=2 * 6 * 5, image=(2, 6, 5))
BOTTOMS = [
    Choice(name="mlp"),
    Choice(name="mlp", hidden=[], activation="tanh"),
    Choice(name="mlp", hidden=[8, 4], activation="leaky_relu", dropout=0.5),
    Choice(name="mlp", output="sigmoid"),
    Choice(name="linear"),
    Choice(name="linear", bias=False),
    Choice(name="wide_deep"),
    Choice(name="wide_deep", wide=True, sparse=True, embedding_dim=2, hidden=[5]),
]
TOPS = [Choice(name="mlp"), Choice(name="mlp", hidden=[4, 4], dropout=0.1), Choice(name="linear", bias=False)]


def test_an_mlp_may_end_in_a_sigmoid() -> None:
    plain = build_bottom(Choice(name="mlp"), InputSpec(4), 3, seed=1)
    squashed = build_bottom(Choice(name="mlp", output="sigmoid"), InputSpec(4), 3, seed=1)
    x_BF = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(squashed(x_BF), plain(x_BF).sigmoid())


@pytest.mark.parametrize(
    "choice",
    [
        Choice(name="mlp", hidden=[10**9]),
        Choice(name="mlp", hidden=[10**6, 10**6]),
        Choice(name="wide_deep", embedding_dim=10**12),
        Choice(name="cnn", channels=[10**12]),
    ],
    ids=str,
)
def test_a_model_that_memory_cannot_hold_is_refused(choice: Choice) -> None:
    inputs = IMAGE if choice.name == "cnn" else MIXED
    with pytest.raises(ConfigError, match="weights takes .* make its layers smaller"):
        build_bottom(choice, inputs, 3, seed=1)
    if choice.name == "mlp":
        with pytest.raises(ConfigError, match="make its layers smaller"):
            build_top(choice, 3, 1, seed=1)


def linear_of(model: nn.Module) -> nn.Linear:
    (layer,) = [m for m in model.modules() if isinstance(m, nn.Linear)]
    return layer


def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> str:
    """A module of the user's own with `code`; returns its name."""
    name = f"own_{tmp_path.name}"
    lines = ["import dataclasses", "import random", "import torch", "from torch import nn", code]
    (tmp_path / f"{name}.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    return name


class TestBottomModels:
    def test_every_registered_one_is_tried(self) -> None:
        assert {choice.name for choice in BOTTOMS} | {"cnn"} == set(bottom_models.names())

    @pytest.mark.parametrize("choice", BOTTOMS, ids=repr)
    def test_rows_do_not_depend_on_each_other(self, choice: Choice) -> None:
        model = build_bottom(choice, MIXED, 6, seed=1).eval()
        x_BF = torch.tensor([[0.5, -1, 0, 3], [2, 0, 2, 1], [-3, 1, 1, 0]])
        assert torch.allclose(model(x_BF), torch.cat([model(x_BF[[row]]) for row in range(3)]), atol=1e-6)

    @pytest.mark.parametrize("choice", BOTTOMS, ids=repr)
    def test_every_parameter_learns(self, choice: Choice) -> None:
        model = build_bottom(choice, MIXED, 6, seed=1)
        assert model.training
        model(torch.rand(64, 4)).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())

    def test_linear_takes_categories_one_hot(self) -> None:
        model = build_bottom(Choice(name="linear"), MIXED, 5, seed=1)
        layer = linear_of(model)
        one_hot = torch.tensor([[0.5, -1, 0, 1, 0, 0, 0, 0, 1], [7, 8, 1, 0, 0, 1, 0, 0, 0]])
        codes = torch.tensor([[0.5, -1, 1, 3], [7, 8, 0, 0]])
        assert torch.equal(model(codes), layer(one_hot))

    def test_mlp_is_linear_at_the_cut(self) -> None:
        model = build_bottom(Choice(name="mlp", hidden=[3], dropout=0.2), InputSpec(4), 5, seed=1)
        assert [type(m) for m in model.children()][1:] == [nn.Linear, nn.ReLU, nn.Dropout, nn.Linear]
        assert model(torch.randn(100, 4)).min() < 0

    def test_one_hot_has_a_limit(self) -> None:
        with pytest.raises(ConfigError, match=r"20,001 categories.*wide_deep"):
            build_bottom(Choice(name="mlp"), InputSpec(1, (20_001,)), 2, seed=1)

    def test_wide_deep_starts_with_a_wide_part_of_zeros(self) -> None:
        deep = build_bottom(Choice(name="wide_deep"), MIXED, 5, seed=1)
        both = build_bottom(Choice(name="wide_deep", wide=True), MIXED, 5, seed=1)
        x_BF = torch.tensor([[0.5, -1, 2, 3]])
        both.load_state_dict(deep.state_dict(), strict=False)
        assert torch.equal(both(x_BF), deep(x_BF))

    def test_wide_deep_keeps_the_columns_categories_apart(self) -> None:
        model = build_bottom(Choice(name="wide_deep"), InputSpec(0, (3, 3)), 5, seed=1)
        codes = torch.tensor(list(itertools.product(range(3), range(3)))).float()
        assert len(torch.unique(model(codes).detach(), dim=0)) == 9

    def test_wide_deep_needs_categories(self) -> None:
        with pytest.raises(ConfigError, match="there are none; use mlp"):
            build_bottom(Choice(name="wide_deep"), InputSpec(3), 2, seed=1)

    def test_cnn_reads_the_columns_as_an_image(self) -> None:
        model = build_bottom(Choice(name="cnn", channels=[4], kernel=1, flatten=True), IMAGE, 24, seed=1)
        (convolution,) = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
        image = torch.rand(3, 2, 6, 5)
        expected = nn.functional.max_pool2d(convolution(image).relu(), 2).flatten(1)
        assert torch.equal(model(image.flatten(1)), expected)

    @pytest.mark.parametrize("channels", [[3], [3, 4], [3, 4, 5, 6]])
    def test_cnn_gives_the_cut_width_however_deep_it_is(self, channels: list[int]) -> None:
        assert build_bottom(Choice(name="cnn", channels=channels), IMAGE, 7, seed=1)(torch.rand(5, 60)).shape == (5, 7)

    def test_cnn_that_sends_its_map_names_the_width(self) -> None:
        with pytest.raises(
            ConfigError, match=r"sends 64 numbers a row, cut_layer.width is 7; write cut_layer.width: 64"
        ):
            build_bottom(Choice(name="cnn", channels=[16], flatten=True), InputSpec(16, image=(1, 4, 4)), 7, seed=1)

    @pytest.mark.parametrize("spec", [InputSpec(60), InputSpec(60, (3,), (2, 6, 5))])
    def test_cnn_needs_images(self, spec: InputSpec) -> None:
        with pytest.raises(ConfigError, match="cnn needs images"):
            build_bottom(Choice(name="cnn"), spec, 7, seed=1)

    def test_cnn_needs_odd_kernels(self) -> None:
        with pytest.raises(ConfigError, match="kernel: expected an odd number, got 2"):
            build_bottom(Choice(name="cnn", kernel=2), IMAGE, 7, seed=1)


class TestTopModels:
    def test_every_registered_one_is_tried(self) -> None:
        assert {choice.name for choice in TOPS} | {"sum"} == set(top_models.names())

    @pytest.mark.parametrize("choice", TOPS, ids=repr)
    def test_gives_logits_and_learns(self, choice: Choice) -> None:
        model = build_top(choice, 5, 3, seed=1)
        logits_BK = model(torch.randn(7, 5))
        assert logits_BK.shape == (7, 3)
        logits_BK.sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())

    def test_sum_passes_the_aggregate_on(self) -> None:
        model = build_top(Choice(name="sum"), 3, 3, seed=1)
        z_Bd = torch.randn(7, 3)
        assert torch.equal(model(z_Bd), z_Bd)
        assert list(model.parameters()) == []

    def test_sum_names_the_width(self) -> None:
        with pytest.raises(ConfigError, match=r"write cut_layer: \{width: 3, aggregation: sum\}"):
            build_top(Choice(name="sum"), 8, 3, seed=1)


class TestSeeds:
    @given(seed=st.integers(0, 2**63 - 1))
    @settings(max_examples=20, deadline=None)
    def test_weights_follow_from_the_seed_alone(self, seed: int) -> None:
        torch.manual_seed(5)
        once = build_bottom(Choice(name="mlp", dropout=0.5), MIXED, 4, seed)
        torch.manual_seed(6)
        before = torch.get_rng_state()
        again = build_bottom(Choice(name="mlp", dropout=0.5), MIXED, 4, seed)
        assert torch.equal(torch.get_rng_state(), before)
        assert all(map(torch.equal, once.parameters(), again.parameters()))

    def test_another_seed_gives_other_weights(self) -> None:
        one, two = (build_top(Choice(name="linear"), 4, 1, seed) for seed in (1, 2))
        assert not torch.equal(linear_of(one).weight, linear_of(two).weight)


class TestOptions:
    @pytest.mark.parametrize(
        ("choice", "message"),
        [
            (Choice(name="resnet"), "unknown bottom model 'resnet'; there are: cnn, linear, mlp, wide_deep"),
            (Choice(name="mlp", width=3), "has no option 'width'; it has: activation, dropout, hidden, output"),
            (Choice(name="mlp", hidden=[0]), "option hidden.0: expected more than 0"),
            (Choice(name="mlp", dropout=1.0), "option dropout"),
            (
                Choice(name="mlp", activation="gelu"),
                "option activation: expected 'relu', 'tanh' or 'leaky_relu'",
            ),
            (Choice(name="cnn", channels=[]), "option channels"),
        ],
        ids=repr,
    )
    def test_wrong_ones_are_named(self, choice: Choice, message: str) -> None:
        with pytest.raises(PluginError, match=message):
            build_bottom(choice, MIXED, 4, seed=1)


class TestOwnModels:
    """A model of the user's own: a plugin, an nn.Module class, or a function."""

    @pytest.mark.parametrize(
        "code",
        [
            "class Own(nn.Linear): pass",
            "def Own(i, o): return nn.Sequential(nn.Linear(i, o), nn.LayerNorm(o))",
            "@dataclasses.dataclass\n"
            "class Own:\n    def build(self, inputs, width): return nn.Linear(inputs.width, width)",
            "class Own(nn.LazyLinear):\n    def __init__(self, width_in, width_out): super().__init__(width_out)",
            "from torch.nn.utils.parametrizations import spectral_norm\n"
            "def Own(width_in, width_out): return spectral_norm(nn.Linear(width_in, width_out))",
        ],
        ids=["class", "function", "plugin", "lazy", "changes in training mode"],
    )
    def test_is_taken_and_seeded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
        choice = Choice(name=own(tmp_path, monkeypatch, code) + ":Own")
        once, again = (build_bottom(choice, MIXED, 3, seed=1) for _ in range(2))
        assert once(torch.rand(5, 4)).shape == (5, 3)
        assert once.state_dict().keys() == again.state_dict().keys()
        assert all(map(torch.equal, once.parameters(), again.parameters()))

    def test_gets_its_options(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        name = own(tmp_path, monkeypatch, "class Own(nn.Linear): pass")
        assert linear_of(build_top(Choice(name=f"{name}:Own", bias=False), 4, 1, seed=1)).bias is None

    def test_must_be_callable(self) -> None:
        with pytest.raises(PluginError, match="bottom model 'math:pi' is float, expected a class or a function"):
            build_bottom(Choice(name="math:pi"), MIXED, 3, seed=1)

    @pytest.mark.parametrize(
        ("code", "error", "message"),
        [
            ("def Own(i, o): raise ValueError('too wide')", PluginError, "cannot be built: ValueError: too wide"),
            ("def Own(i, o, depth): pass", PluginError, "cannot be built: TypeError: .*'depth'"),
            ("def Own(i, o): return 3", PluginError, "is int, expected a torch.nn.Module"),
            ("def Own(i, o): return nn.Linear(i + 1, o)", PluginError, "fails on two rows of 4 numbers: RuntimeError"),
            (
                "def Own(i, o): return nn.Linear(i, o + 1)",
                PluginError,
                r"returns \(2, 4\) torch.float32 for two rows, expected \(2, 3\)",
            ),
            ("def Own(i, o): return nn.Linear(i, o).double()", PluginError, "fails on two rows"),
            ("def Own(i, o): return nn.LSTM(i, o)", PluginError, "returns tuple, expected one tensor"),
            (
                "class Own(nn.Linear):\n    def forward(self, x): return super().forward(x) / 0",
                PluginError,
                "returns numbers that are not finite for rows of ordinary size",
            ),
            (
                "def Own(i, o): return nn.Linear(i, o).requires_grad_(False)",
                ConfigError,
                "has nothing to train",
            ),
            (
                "class Own(nn.Linear):\n"
                "    made = 0\n"
                "    def reset_parameters(self):\n"
                "        Own.made += 1\n"
                "        nn.init.constant_(self.weight, Own.made)\n"
                "        nn.init.zeros_(self.bias)\n",
                ConfigError,
                "starts with other weights each time",
            ),
            (
                "class Own(nn.Linear):\n    def forward(self, x): return super().forward(x - x.mean(0))",
                ConfigError,
                "mixes the rows of a batch: .*depends on who else is in its batch",
            ),
            (
                "class Own(nn.Linear):\n"
                "    def forward(self, x): return super().forward(x - x.mean(0) if self.training else x)",
                ConfigError,
                "mixes the rows of a batch",
            ),
        ],
    )
    def test_refused_ones_say_why(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, error: type[Exception], message: str
    ) -> None:
        name = own(tmp_path, monkeypatch, f"{code}\n")
        with pytest.raises(error, match=f"(?s)bottom_model '{name}:Own' {message}"):
            build_bottom(Choice(name=f"{name}:Own"), MIXED, 3, seed=1)


class TestRowMixing:
    @pytest.mark.parametrize("layer", [nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.SyncBatchNorm(4), nn.LazyBatchNorm1d()])
    def test_batch_normalisation_is_refused(self, layer: nn.Module) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(layer))
        name = type(layer).__name__
        with pytest.raises(ConfigError, match=rf"^here has a {name} \(layer 1\.0\), .*Use GroupNorm or LayerNorm"):
            refuse_row_mixing(model, "here")

    @pytest.mark.parametrize("layer", [nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4)])
    def test_normalisation_inside_a_row_is_not(self, layer: nn.Module) -> None:
        refuse_row_mixing(nn.Sequential(layer), "here")

    def test_top_models_are_held_to_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        code = "def Own(i, o): return nn.Sequential(nn.BatchNorm1d(i), nn.Linear(i, o))"
        name = own(tmp_path, monkeypatch, code)
        with pytest.raises(ConfigError, match=r"top_model '.*' has a BatchNorm1d \(layer 0\)"):
            build_top(Choice(name=f"{name}:Own"), 4, 1, seed=1)


class Named(nn.Module):
    """Names its first layer."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.late = nn.Linear(2, 2), nn.Linear(2, 2)

    @property
    def first_layer(self) -> nn.Module:
        return self.late


class TestFirstLayer:
    @pytest.mark.parametrize(
        ("choice", "inputs", "layer", "at"),
        [
            (Choice(name="mlp", hidden=[5, 4]), MIXED, nn.ReLU, (5,)),
            (Choice(name="mlp", hidden=[5], activation="tanh"), MIXED, nn.Tanh, (5,)),
            (Choice(name="mlp", hidden=[]), MIXED, nn.Linear, (6,)),
            (Choice(name="linear"), MIXED, nn.Linear, (6,)),
            (Choice(name="wide_deep", wide=True, hidden=[5, 4]), MIXED, nn.ReLU, (5,)),
            (Choice(name="cnn", channels=[3, 4]), IMAGE, nn.ReLU, (3, 6, 5)),
        ],
        ids=repr,
    )
    def test_ends_with_its_activation(
        self, choice: Choice, inputs: InputSpec, layer: type[nn.Module], at: tuple[int, ...]
    ) -> None:
        model = build_bottom(choice, inputs, 6, seed=1)
        shapes: list[tuple[int, ...]] = []
        found = first_layer(model)
        found.register_forward_hook(lambda module, args, output: shapes.append(tuple(output.shape)))
        model(torch.rand(7, inputs.width))
        assert type(found) is layer
        assert shapes == [(7, *at)]

    def test_may_be_without_an_activation_of_its_own(self) -> None:
        layers = nn.ModuleList([nn.Linear(2, 2), nn.ReLU()])  # no nn.Sequential, so who follows whom is unknown
        assert first_layer(layers) is layers[0]

    def test_is_what_the_model_names(self) -> None:
        model = Named()
        assert first_layer(model) is model.late

    def test_may_have_its_weights_reparametrised(self) -> None:
        layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
        assert first_layer(nn.Sequential(layer, nn.Linear(2, 2))) is layer

    def test_must_exist(self) -> None:
        with pytest.raises(ConfigError, match="no module with parameters but embeddings"):
            first_layer(nn.Sequential(nn.Embedding(3, 2), nn.ReLU()))


def step(optimizer: torch.optim.Optimizer | None, model: nn.Module, x_BF: Tensor) -> None:
    assert optimizer
    optimizer.zero_grad()
    model(x_BF).square().sum().backward()
    optimizer.step()


class TestOptimizer:
    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            (config.Optimizer(), {"lr": 0.01, "weight_decay": 0.0}),
            (
                config.Optimizer(name="sgd", lr=0.5, momentum=0.9, weight_decay=0.1),
                {"momentum": 0.9, "weight_decay": 0.1},
            ),
            (config.Optimizer(name="adagrad", lr=2.0), {"lr": 2.0}),
        ],
    )
    def test_is_the_chosen_one(self, choice: config.Optimizer, expected: dict[str, float]) -> None:
        optimizer = build_optimizer(choice, nn.Linear(2, 2).parameters())
        assert optimizer
        assert type(optimizer).__name__.lower() == choice.name
        assert expected.items() <= optimizer.defaults.items()

    def test_is_none_where_nothing_trains(self) -> None:
        assert build_optimizer(config.Optimizer(), nn.Identity().parameters()) is None

    @pytest.mark.parametrize("name", ["sgd", "adagrad"])
    def test_sparse_gradients_give_the_same_weights(self, name: str) -> None:
        x_BF = torch.tensor([[0.5, -1, 2, 3], [1, 0, 0, 3]])
        models = [build_bottom(Choice(name="wide_deep", wide=True, sparse=s), MIXED, 3, seed=1) for s in (False, True)]
        for model in models:
            optimizer = build_optimizer(config.Optimizer(name=name), model.parameters())
            for _ in range(3):
                step(optimizer, model, x_BF)
        dense, sparse = models
        kinds = [parameter.grad.is_sparse for parameter in sparse.parameters() if parameter.grad is not None]
        assert kinds.count(True) == 2  # the table of the embeddings and that of the wide part
        assert all(itertools.starmap(torch.allclose, zip(dense.parameters(), sparse.parameters(), strict=True)))

    @pytest.mark.parametrize(
        "choice",
        [
            config.Optimizer(name="adam"),
            config.Optimizer(name="sgd", momentum=0.9),
            config.Optimizer(name="adagrad", weight_decay=0.1),
        ],
    )
    def test_sparse_gradients_need_the_right_one(self, choice: config.Optimizer) -> None:
        model = build_bottom(Choice(name="wide_deep", sparse=True), MIXED, 3, seed=1)
        with pytest.raises(ConfigError, match="adagrad or by sgd without momentum"):
            build_optimizer(choice, model.parameters())
