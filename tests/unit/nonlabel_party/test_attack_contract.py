"""What holds for every registered attack: it only looks, never falls over, and finds labels where there are any.

Shape suffixes: B rows of the batch, F features, d cut-layer width.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from cutlayer.common.config import Choice
from cutlayer.common.job import GrantedKnowledge
from cutlayer.common.leakage import leak_auc
from cutlayer.common.models import build_bottom
from cutlayer.common.tables import InputSpec
from cutlayer.nonlabel_party.attacks import Attack, attacks
from cutlayer.nonlabel_party.probe import FirstLayerProbe
from cutlayer.nonlabel_party.view import CleanPositive, LabelGuess, StepView

FEATURES, WIDTH = 6, 5
NOTHING: frozenset[str] = frozenset()
EVERYTHING = frozenset(GrantedKnowledge.model_fields)
LAYERS: dict[str, set[str]] = {"neighbours": {"cut"}}  # of those that do not look at both
CASES = [
    pytest.param(name, granted, id=f"{name}-{'granted' if granted else 'not granted'}")
    for name in attacks.names()
    for granted in (NOTHING, EVERYTHING)
    if attacks.get(name).needs <= granted
]


@dataclass
class Scene:
    """A party with a bottom model, of which attacks get views."""

    bottom: nn.Module
    probe: FirstLayerProbe
    granted: frozenset[str]

    @classmethod
    def of(cls, granted: frozenset[str], width: int = WIDTH) -> Scene:
        bottom = build_bottom(Choice(name="mlp", hidden=[24]), InputSpec(FEATURES), width, seed=3)
        return cls(bottom, FirstLayerProbe(bottom), granted)

    def view(self, g_Bd: Tensor, y_B: Tensor, step: int = 1) -> StepView:
        """A view in which the party receives `g_Bd`; granted knowledge is the gradient of the first positive row."""
        x_BF = torch.randn(len(g_Bd), FEATURES, generator=torch.Generator().manual_seed(step))
        z_Bd = self.bottom(x_BF)
        positive = int(y_B.argmax()) if self.granted and bool(y_B.any()) else None
        return StepView(
            step=step,
            row_ids=tuple(f"{step}-{row}" for row in range(len(g_Bd))),
            x_BF=x_BF,
            z_Bd=z_Bd.detach().clone(),
            g_Bd=g_Bd,
            clean_positive=None if positive is None else CleanPositive(positive, g_Bd[positive].clone()),
            granted=self.granted,
            known_labels=self._known(step, y_B) if self.granted else {},
            pull_back=partial(self.probe.pull_back, z_Bd),
        )

    def _known(self, step: int, y_B: Tensor) -> dict[str, int]:
        """The labels of three rows of each class."""
        rows = [row for label in (0, 1) for row in (y_B == label).nonzero()[:3, 0].tolist()]
        return {f"{step}-{row}": int(y_B[row]) for row in rows}


def labels(rows: int, positives: int) -> Tensor:
    """`positives` ones, spread evenly."""
    return ((torch.arange(rows) * positives) % rows < positives).long()


def textbook(y_B: Tensor, width: int = WIDTH) -> Tensor:
    """Mean-loss gradients of logistic regression that predicts about the share of positives: g = (p - y) w / B."""
    share = float(y_B.float().mean())
    p_B = share + 0.02 * torch.rand(len(y_B), generator=torch.Generator().manual_seed(4))
    w_d = torch.linspace(1.5, -1, width)
    return ((p_B - y_B) / len(y_B))[:, None] * w_d


def auc_of(guess: LabelGuess, y_B: Tensor) -> float | None:
    """The leak AUC of a guess about rows of step 1."""
    rows = [int(row_id.removeprefix("1-")) for row_id in guess.row_ids]
    return leak_auc(guess.score_B, y_B[rows])


def all_guesses(attack: Attack, view: StepView) -> list[LabelGuess]:
    return [*attack.observe(view), *attack.infer()]


def fingerprint(view: StepView, bottom: nn.Module) -> str:
    tensors = [view.x_BF, view.z_Bd, view.g_Bd, *bottom.state_dict().values()]
    tensors += [view.clean_positive.g_d] if view.clean_positive else []
    tensors += [view.gradient("first")]
    digest = hashlib.sha256(repr((view.step, view.row_ids, bottom.training)).encode())
    for tensor in tensors:
        digest.update(tensor.detach().numpy().tobytes())
    return digest.hexdigest()


class Watch:
    """Notes when Python opens a file, a socket or a process while it is on."""

    events: list[str] = []
    on = False

    @classmethod
    def hook(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls.on and (event in {"open", "os.listdir", "os.scandir"} or event.startswith(("socket.", "subprocess."))):
            cls.events.append(event)

    @classmethod
    @contextlib.contextmanager
    def watching(cls) -> Iterator[list[str]]:
        cls.events, cls.on = [], True
        try:
            yield cls.events
        finally:
            cls.on = False


sys.addaudithook(Watch.hook)


@pytest.mark.parametrize(("name", "granted"), CASES)
class TestEveryAttack:
    def test_declares_itself(self, name: str, granted: frozenset[str]) -> None:
        attack = attacks.create(name, {})
        assert attack.paper
        assert attack.tasks <= {"binary", "multiclass"}
        assert attack.needs <= EVERYTHING
        assert type(attack).__doc__

    def test_only_looks(self, name: str, granted: frozenset[str]) -> None:
        scene, y_B = Scene.of(granted), labels(40, 8)
        view = scene.view(textbook(y_B), y_B)
        before = fingerprint(view, scene.bottom)
        all_guesses(attacks.create(name, {}), view)
        assert fingerprint(view, scene.bottom) == before
        assert all(parameter.grad is None for parameter in scene.bottom.parameters())

    def test_opens_nothing(self, name: str, granted: frozenset[str]) -> None:
        scene, y_B = Scene.of(granted), labels(40, 8)
        all_guesses(attacks.create(name, {}), scene.view(textbook(y_B), y_B))  # imports may happen here
        view, attack = scene.view(textbook(y_B), y_B), attacks.create(name, {})
        with Watch.watching() as events:
            all_guesses(attack, view)
        assert events == []

    def test_finds_all_labels_in_the_textbook_case(self, name: str, granted: frozenset[str]) -> None:
        y_B, attack = labels(200, 20), attacks.create(name, {})
        guesses = all_guesses(attack, Scene.of(granted).view(textbook(y_B), y_B))
        assert {guess.layer for guess in guesses} == set(vars(attack)["layers"]) == LAYERS.get(name, {"cut", "first"})
        assert [auc_of(guess, y_B) for guess in guesses] == [1.0] * len(guesses)

    def test_finds_all_labels_at_width_one(self, name: str, granted: frozenset[str]) -> None:
        y_B = labels(200, 20)
        guesses = all_guesses(attacks.create(name, {}), Scene.of(granted, 1).view(textbook(y_B, 1), y_B))
        assert [auc_of(guess, y_B) for guess in guesses] == [1.0] * len(guesses)

    def test_finds_nothing_where_there_is_nothing(self, name: str, granted: frozenset[str]) -> None:
        y_B = labels(4000, 2000)
        g_Bd = torch.randn(4000, WIDTH, generator=torch.Generator().manual_seed(5))
        for guess in all_guesses(attacks.create(name, {}), Scene.of(granted).view(g_Bd, y_B)):
            assert auc_of(guess, y_B) == pytest.approx(0.5, abs=0.04)  # four deviations of the AUC of noise

    def test_is_repeatable(self, name: str, granted: frozenset[str]) -> None:
        y_B = labels(40, 8)
        runs = [all_guesses(attacks.create(name, {}), Scene.of(granted).view(textbook(y_B), y_B)) for _ in range(2)]
        assert all(torch.equal(one.score_B, two.score_B) for one, two in zip(*runs, strict=True))

    @pytest.mark.parametrize(
        "batches",
        [
            pytest.param(
                [(textbook(labels(40, 8)), labels(40, 8)), (textbook(labels(7, 2)), labels(7, 2))], id="short"
            ),
            pytest.param([(torch.ones(1, WIDTH), torch.ones(1))], id="one positive row"),
            pytest.param([(torch.ones(1, WIDTH), torch.zeros(1))], id="one negative row"),
            pytest.param([(-torch.rand(9, WIDTH), torch.ones(9))], id="positives only"),
            pytest.param([(torch.rand(9, WIDTH), torch.zeros(9))], id="negatives only"),
            pytest.param([(torch.zeros(9, WIDTH), labels(9, 3))], id="zero"),
            pytest.param([(torch.eye(9, WIDTH), labels(9, 3))], id="some rows zero"),
            pytest.param([(1e37 * textbook(labels(9, 3)), labels(9, 3))], id="huge"),
            pytest.param([(1e-38 * textbook(labels(9, 3)), labels(9, 3))], id="tiny"),
            pytest.param([(torch.rand(1500, WIDTH), labels(1500, 3))], id="large batch"),
        ],
    )
    def test_scores_every_row_or_none(
        self, name: str, granted: frozenset[str], batches: list[tuple[Tensor, Tensor]]
    ) -> None:
        scene, attack = Scene.of(granted), attacks.create(name, {})
        guesses: list[LabelGuess] = []
        for step, (g_Bd, y_B) in enumerate(batches, start=1):
            guesses += attack.observe(scene.view(g_Bd, y_B, step))
        rows = {f"{step}-{row}" for step, (g_Bd, _) in enumerate(batches, start=1) for row in range(len(g_Bd))}
        for guess in [*guesses, *attack.infer()]:
            assert guess.score_B.shape == (len(guess.row_ids),)
            assert bool(torch.isfinite(guess.score_B).all())
            assert set(guess.row_ids) <= rows


@pytest.mark.parametrize("seen", [(), (1, -2)], ids=["nothing", "two steps"])
@pytest.mark.parametrize(("name", "granted"), CASES)
def test_goes_on_from_its_state_with_the_same_bits(name: str, granted: frozenset[str], seen: tuple[int, ...]) -> None:
    scene, y_B = Scene.of(granted), labels(40, 8)
    first, second = attacks.create(name, {}), attacks.create(name, {})
    for times in seen:
        first.observe(scene.view(times * textbook(y_B), y_B))
    second.restore(load(save(dict(first.state()))))
    view = scene.view(3 * textbook(y_B)[:20], y_B[:20])
    for one, two in zip(all_guesses(first, view), all_guesses(second, view), strict=True):
        assert one.row_ids == two.row_ids
        assert torch.equal(one.score_B, two.score_B)


def test_the_watch_sees_what_is_opened() -> None:
    with Watch.watching() as events, open(__file__):
        pass
    assert events == ["open"]
