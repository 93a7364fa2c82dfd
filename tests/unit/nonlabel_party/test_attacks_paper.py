"""The attacks against Li et al., "Label Leakage and Protection in Two-party Split Learning" (ICLR 2022).

First the scores by hand, then what they make of the gradients of a split model in training, without a defense.
Shape suffixes: B rows of the batch, F features, d cut-layer width.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache, partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from cutlayer.common.config import Choice
from cutlayer.common.leakage import leak_auc
from cutlayer.common.models import build_bottom, build_top
from cutlayer.common.tables import InputSpec
from cutlayer.nonlabel_party.attacks import CosineAttack, NormAttack, ScoringAttack
from cutlayer.nonlabel_party.probe import FirstLayerProbe
from cutlayer.nonlabel_party.view import CleanPositive, Layer, StepView

FEATURES, WIDTH, BATCH, STEPS, WARM_UP = 10, 8, 256, 40, 10
GRANTED = frozenset({"clean_positive_gradient"})
EVERY_TOP = pytest.mark.parametrize("top_model", ["linear", "mlp"])
EVERY_LAYER = pytest.mark.parametrize("layer", ["cut", "first"])


def at_the_cut(attack: ScoringAttack, rows: list[list[float]], positive: list[float] | None = None) -> Tensor:
    """Scores of gradients `rows`; `positive` is granted."""
    attack.layers = ("cut",)
    g_Bd = torch.tensor(rows, dtype=torch.float32)
    clean = CleanPositive(0, torch.tensor(positive, dtype=torch.float32)) if positive else None
    (guess,) = attack.observe(StepView(1, tuple(map(str, range(len(g_Bd)))), g_Bd, g_Bd, g_Bd, clean))
    return guess.score_B


def test_norm_by_hand() -> None:
    """Section 3.2: r(g) = ||g||."""
    assert at_the_cut(NormAttack(), [[3, -4], [0, 0], [-1, 0]]).tolist() == [5, 0, 1]


def test_cosine_by_hand() -> None:
    """Section 3.3: r(g) = cos(g, g+)."""
    scores = at_the_cut(CosineAttack(), [[3, 0], [0, 2], [-5, 0], [4, 3], [0, 0]], positive=[2, 0])
    assert scores.tolist() == pytest.approx([1, 0, -1, 0.8, 0])


def test_cosine_with_a_zero_gradient_tells_nothing() -> None:
    assert at_the_cut(CosineAttack(), [[3, 0], [0, 2]], positive=[0, 0]).tolist() == [0, 0]


def test_cosine_without_knowledge_by_hand() -> None:
    """Three of five rows lie on one side; the first of them with most on its side, [1, 0], stands for a negative."""
    scores = at_the_cut(CosineAttack(), [[-3, 0], [1, 0], [4, 3], [4, -3], [-2, 0]])
    assert scores.tolist() == pytest.approx([1, -1, -0.8, -0.8, 1])


def test_cosine_makes_no_guess_where_granted_knowledge_is_missing() -> None:
    g_Bd = torch.ones(3, 2)
    view = StepView(1, ("a", "b", "c"), g_Bd, g_Bd, g_Bd, granted=GRANTED)
    assert CosineAttack(layers=("cut",)).observe(view) == []


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    """x (B, F) and labels, of which about a tenth are positive."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(STEPS):
        x_BF = torch.randn(BATCH, FEATURES, generator=generator)
        noise_B = torch.randn(BATCH, generator=generator)
        yield x_BF, (x_BF[:, :3].sum(dim=1) + noise_B > 2.6).float()


def training(top_model: str) -> Iterator[tuple[StepView, Tensor]]:
    """What the non-label party has at each step, knowledge included, and the labels that it has not."""
    bottom = build_bottom(Choice(name="mlp", hidden=[16]), InputSpec(FEATURES), WIDTH, seed=1)
    top = build_top(Choice(name=top_model), WIDTH, 1, seed=2)
    optimizer = torch.optim.Adam(nn.ModuleList([bottom, top]).parameters(), lr=0.01)
    probe = FirstLayerProbe(bottom)
    for step, (x_BF, y_B) in enumerate(batches(), start=1):
        z_Bd = bottom(x_BF)
        cut_Bd = z_Bd.detach().requires_grad_()
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(top(cut_Bd)[:, 0], y_B).backward()  # type: ignore[no-untyped-call]
        g_Bd = cut_Bd.grad
        assert g_Bd is not None
        positive = int(y_B.argmax())
        row_ids = tuple(map(str, range(BATCH)))
        clean = CleanPositive(positive, g_Bd[positive])
        pull_back = partial(probe.pull_back, z_Bd)
        yield StepView(step, row_ids, x_BF, z_Bd.detach(), g_Bd, clean, GRANTED, pull_back), y_B
        z_Bd.backward(g_Bd)
        optimizer.step()


@cache
def leaks(top_model: str) -> dict[tuple[str, Layer], Tensor]:
    """Leak AUC of each step, for each attack and layer."""
    leaks = defaultdict(list)
    for view, y_B in training(top_model):
        unaware = StepView(view.step, view.row_ids, view.x_BF, view.z_Bd, view.g_Bd, pull_back=view.pull_back)
        attempts: list[tuple[str, ScoringAttack, StepView]] = [
            ("norm", NormAttack(), view),
            ("cosine", CosineAttack(), view),
            ("clusters", CosineAttack(), unaware),
        ]
        for name, attack, seen in attempts:
            for guess in attack.observe(seen):
                leaks[name, guess.layer].append(leak_auc(guess.score_B, y_B))
    return {key: torch.tensor(aucs) for key, aucs in leaks.items()}


@EVERY_TOP
@EVERY_LAYER
def test_norm_leaks_above_0_9_on_imbalanced_data(top_model: str, layer: Layer) -> None:
    """Section 3.2: once the model has learned the share of positives, |p - y| is larger for them."""
    assert leaks(top_model)["norm", layer][WARM_UP:].mean() > 0.9


@EVERY_LAYER
def test_cosine_leaks_everything(layer: Layer) -> None:
    """Section 3.3: p - y is positive for one class and negative for the other, and w is the same for both."""
    assert bool((leaks("linear")["cosine", layer] == 1.0).all())


@EVERY_LAYER
def test_cosine_leaks_nearly_everything_below_a_hidden_layer(layer: Layer) -> None:
    assert leaks("mlp")["cosine", layer][WARM_UP:].mean() > 0.999


@EVERY_TOP
@EVERY_LAYER
def test_the_larger_cluster_stands_in_for_knowledge(top_model: str, layer: Layer) -> None:
    assert leaks(top_model)["clusters", layer][WARM_UP:].mean() > 0.999
