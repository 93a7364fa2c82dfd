"""Every attack against its definition, written down again in plain numpy: bit for bit where the arithmetic is exact.

Shape suffixes: B rows of the batch, K known rows, d cut-layer width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from cutlayer.common.leakage import leak_auc
from cutlayer.nonlabel_party.attacks import attacks
from cutlayer.nonlabel_party.view import CleanPositive, LabelGuess, StepView

Array = npt.NDArray[np.float64]
Row = dict[int, Array]  # label -> gradients of known rows (K, d)

BATCH, WIDTH, POSITIVES, KNOWN = 60, 5, 12, 4
Y_B = (np.arange(BATCH) % 5 == 0).astype(int)  # 12 positives
ALL_KNOWN = {f"r{row}": int(y) for label in (1, 0) for row, y in enumerate(Y_B) if y == label}
FEW_KNOWN = {f"r{row}": int(Y_B[row]) for row in (0, 5, 10, 15, 1, 2, 3, 4)}


def drawn(kind: str, width: int = WIDTH, seed: int = 1) -> Tensor:
    """Gradients (B, d); whole numbers, with which sums, products and halves are exact, or any."""
    generator = torch.Generator().manual_seed(seed)
    g_Bd = torch.randn(BATCH, width, generator=generator) + 2.0 * torch.from_numpy(Y_B)[:, None]
    return (4 * g_Bd).round() if kind == "whole" else g_Bd / 1000


def view(g_Bd: Tensor, known: dict[str, int] | None = None, positive: int | None = None, step: int = 1) -> StepView:
    """Rows r0, r1, ...; the row `positive` is granted."""
    clean = None if positive is None else CleanPositive(positive, g_Bd[positive].clone())
    row_ids = tuple(f"r{row}" for row in range(len(g_Bd)))
    granted = frozenset() if positive is None else frozenset({"clean_positive_gradient"})
    return StepView(step, row_ids, g_Bd, g_Bd, g_Bd, clean, granted, known_labels=known or {})


def scores(name: str, *views: StepView, **options: Any) -> list[LabelGuess]:
    """All guesses at the cut layer."""
    attack = attacks.create(name, {"layers": ["cut"], **options})
    return [*(guess for one in views for guess in attack.observe(one)), *attack.infer()]


def length(g: Array) -> Array:
    squares = np.zeros(g.shape[0])
    for coordinate in g.T:
        squares = squares + coordinate * coordinate
    return np.sqrt(squares)


def direction(g: Array) -> Array:
    lengths = length(g)
    return np.array([row / size if size else row for row, size in zip(g, lengths, strict=True)])


def median(g: Array) -> Array:
    return np.array([np.median(coordinate) for coordinate in g.T])


REFERENCES: dict[str, Callable[[Array, Row], Array]] = {
    "hint_norm": lambda g, known: -np.abs(length(g) - np.mean(length(known[1]))),
    "hint_cosine": lambda g, known: np.mean([direction(g) @ hint for hint in direction(known[1])], axis=0),
    "hint_distance": lambda g, known: -np.min([length(g - hint) for hint in known[1]], axis=0),
    "hint_inner": lambda g, known: g @ known[1][np.argmax(length(known[1]))],
    "mean": lambda g, known: length(g - known[0].mean(axis=0)) - length(g - known[1].mean(axis=0)),
    "median": lambda g, known: length(g - median(known[0])) - length(g - median(known[1])),
}
EXACT = {"norm", "hint_distance", "hint_inner", "mean", "median"}  # for whole numbers and four known rows of a class


def reference(name: str, g_Bd: Tensor, known: dict[str, int]) -> tuple[list[str], Array]:
    """The rows that are scored, and their scores."""
    g = g_Bd.double().numpy() * len(g_Bd)
    rows = {f"r{row}": one for row, one in enumerate(g)}
    by_label = {label: np.array([rows[r] for r, y in known.items() if y == label]) for label in (0, 1)}
    unknown = [row_id for row_id in rows if row_id not in known]
    return unknown, REFERENCES[name](np.array([rows[row_id] for row_id in unknown]), by_label)


def require_equal(found: Tensor, expected: Array, *, exact: bool) -> None:
    if exact:
        assert found.tolist() == expected.tolist()
    else:
        np.testing.assert_allclose(
            found.numpy(), expected, rtol=1e-11, atol=1e-13 * max(np.abs(expected).max(), 1e-300)
        )


@pytest.mark.parametrize("kind", ["whole", "any"])
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_attacks_with_known_rows(name: str, kind: str) -> None:
    g_Bd = drawn(kind)
    (guess,) = scores(name, view(g_Bd, FEW_KNOWN))
    unknown, expected = reference(name, g_Bd, FEW_KNOWN)
    assert list(guess.row_ids) == unknown
    require_equal(guess.score_B, expected, exact=kind == "whole" and name in EXACT)
    y = np.array([Y_B[int(row_id[1:])] for row_id in unknown])
    assert leak_auc(guess.score_B, y) == leak_auc(expected, y)


@pytest.mark.parametrize("kind", ["whole", "any"])
def test_norm(kind: str) -> None:
    g_Bd = drawn(kind)
    (guess,) = scores("norm", view(g_Bd))
    require_equal(guess.score_B, length(g_Bd.double().numpy()), exact=kind == "whole")


def test_cosine() -> None:
    g_Bd = drawn("any")
    (guess,) = scores("cosine", view(g_Bd, positive=5))
    unit = direction(g_Bd.double().numpy())
    require_equal(guess.score_B, unit @ unit[5], exact=False)


def two_means(unit: Array) -> Array:
    """Spherical two-means from the row with most on its side; cosine with the other centre minus that with its own."""
    side = [sum(float(a @ b) > 0 for b in unit) for a in unit]
    toward = unit @ unit[int(np.argmax(side))]
    while True:
        away = toward < 0
        toward = unit @ (direction(unit[~away].sum(axis=0)[None])[0] - direction(unit[away].sum(axis=0)[None])[0])
        if np.array_equal(away, toward < 0):
            return toward


def test_clusters() -> None:
    g_Bd = drawn("any") * torch.from_numpy(1.0 - 2 * Y_B)[:, None].float()  # the classes on opposite sides
    (guess,) = scores("clusters", view(g_Bd))
    toward = two_means(direction(g_Bd.double().numpy()))
    assert np.sum(toward < 0) < BATCH / 2
    require_equal(guess.score_B, -toward, exact=False)


def split_of_least_squares(numbers: Array) -> float:
    """Two-means by trying all: the largest number of the lower cluster."""
    ascending = np.sort(numbers)
    cost = {
        at: sum(len(part) * part.var() for part in (ascending[:at], ascending[at:])) for at in range(1, len(numbers))
    }
    return float(ascending[min(cost, key=lambda at: cost[at]) - 1])


@pytest.mark.parametrize("width", [1, WIDTH, 90])
def test_spectral(width: int) -> None:
    g_Bd = drawn("any", width)
    (guess,) = scores("spectral", view(g_Bd))
    g = g_Bd.double().numpy()
    component = np.linalg.svd(g - g.mean(axis=0))[2][0]
    at = (g - g.mean(axis=0)) @ component
    upper = at > split_of_least_squares(at)
    expected = at if upper.sum() < BATCH / 2 else -at
    require_equal(guess.score_B, expected, exact=False)
    assert leak_auc(guess.score_B, Y_B) == leak_auc(expected, Y_B)


def epochs() -> list[Tensor]:
    return [drawn("any", seed=seed) for seed in (1, 2, 3)]


def mean_directions() -> Array:
    return np.mean([direction(g_Bd.double().numpy()) for g_Bd in epochs()], axis=0)


def test_history_with_clean_gradients() -> None:
    views = [view(g_Bd, positive=5 * step, step=step) for step, g_Bd in enumerate(epochs(), start=1)]
    (guess,) = scores("history", *views)
    clean = sum(direction(g_Bd.double().numpy())[5 * step] for step, g_Bd in enumerate(epochs(), start=1))
    require_equal(guess.score_B, mean_directions() @ direction(np.array([clean]))[0], exact=False)


def test_history_with_known_rows() -> None:
    (guess,) = scores("history", *(view(g_Bd, FEW_KNOWN, step=step) for step, g_Bd in enumerate(epochs(), start=1)))
    mean = {f"r{row}": one for row, one in enumerate(mean_directions())}
    sides = [np.mean([mean[r] for r, y in FEW_KNOWN.items() if y == label], axis=0) for label in (1, 0)]
    expected = (
        np.array([one for r, one in mean.items() if r not in FEW_KNOWN]) @ direction((sides[0] - sides[1])[None])[0]
    )
    assert list(guess.row_ids) == [row_id for row_id in mean if row_id not in FEW_KNOWN]
    require_equal(guess.score_B, expected, exact=False)


def test_history_alone() -> None:
    (guess,) = scores("history", *(view(g_Bd, step=step) for step, g_Bd in enumerate(epochs(), start=1)))
    mean = mean_directions()
    unit = direction(mean)
    side = [sum(float(a @ b) > 0 for b in unit) for a in unit]
    require_equal(guess.score_B, -mean @ unit[int(np.argmax(side))], exact=False)


def test_history_averages_out_what_one_epoch_hides() -> None:
    generator = torch.Generator().manual_seed(5)
    signal = 0.4 * torch.from_numpy(Y_B - 0.5)[:, None] * torch.ones(WIDTH)
    noisy = [(signal + torch.randn(BATCH, WIDTH, generator=generator)).float() for _ in range(60)]
    attack = attacks.create("history", {"layers": ["cut"]})
    for step, g_Bd in enumerate(noisy, start=1):
        attack.observe(view(g_Bd, FEW_KNOWN, step=step))
    (guess,) = attack.infer()
    y = np.array([Y_B[int(row_id[1:])] for row_id in guess.row_ids])
    assert (leak_auc(guess.score_B, y) or 0) > 0.95
    (once,) = scores("hint_cosine", view(noisy[0], FEW_KNOWN))
    assert (leak_auc(once.score_B, y) or 1) < 0.8


def test_history_remembers_no_more_rows_than_it_may() -> None:
    g_Bd = drawn("any")
    (guess,) = scores("history", view(g_Bd), rows=7)
    assert guess.row_ids == tuple(f"r{row}" for row in range(7))


def test_history_of_a_wide_layer_remembers_as_many_rows_as_there_is_room_for() -> None:
    width = 25_000  # five rows of 8 bytes a number in 1 MB
    g_BD = torch.randn(BATCH, width, generator=torch.Generator().manual_seed(3))
    attack = attacks.create("history", {"layers": ["cut"], "max_mb": 1})
    known = {"r0": 1, f"r{BATCH - 1}": 0}  # one of them is not remembered
    attack.observe(view(g_BD, known))
    restored = attacks.create("history", {"layers": ["cut"], "max_mb": 1})
    restored.restore(attack.state())
    for one in (attack, restored):
        (guess,) = one.infer()
        assert guess.row_ids == ("r1", "r2", "r3", "r4")


# Hints.


def test_hints_are_the_first_that_were_granted() -> None:
    g_Bd = drawn("any")
    (one,) = scores("hint_cosine", view(g_Bd, FEW_KNOWN), hints=1)
    unit = direction(g_Bd.double().numpy())
    unknown = [row for row in range(BATCH) if f"r{row}" not in FEW_KNOWN]
    require_equal(one.score_B, unit[unknown] @ unit[0], exact=False)


def test_more_hints_than_there_are_positives_are_all_of_them() -> None:
    g_Bd = drawn("whole")
    (all_of_them,) = scores("hint_distance", view(g_Bd, FEW_KNOWN))
    (more,) = scores("hint_distance", view(g_Bd, FEW_KNOWN), hints=100)
    assert more.score_B.tolist() == all_of_them.score_B.tolist()


def test_a_hint_of_an_earlier_batch_serves_until_it_is_seen_again() -> None:
    """Rows of a batch of 2 and of 1: gradients count times the batch size."""
    attack = attacks.create("hint_inner", {"layers": ["cut"]})
    known = {"a": 1}

    def guess_of(row_ids: tuple[str, ...], rows: list[list[float]]) -> list[float]:
        g_Bd = torch.tensor(rows)
        guesses = attack.observe(StepView(1, row_ids, g_Bd, g_Bd, g_Bd, known_labels=known))
        return [score for guess in guesses for score in guess.score_B.tolist()]

    assert guess_of(("b",), [[1.0, 1.0]]) == []  # no hint was seen yet
    assert guess_of(("a", "b"), [[1.0, 2.0], [3.0, 1.0]]) == [20.0]  # 4 (3 + 2)
    assert guess_of(("c",), [[1.0, 1.0]]) == [6.0]
    assert guess_of(("a",), [[0.0, -1.0]]) == []
    assert guess_of(("c",), [[1.0, 1.0]]) == [-1.0]


@pytest.mark.parametrize("name", ["mean", "median"])
def test_a_centre_needs_both_classes(name: str) -> None:
    assert scores(name, view(drawn("any"), {"r0": 1, "r5": 1})) == []


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_where_all_rows_are_known_there_is_nothing_to_guess(name: str) -> None:
    assert scores(name, view(drawn("any"), ALL_KNOWN)) == []


# Which of two clusters is the positive one.


def test_of_equal_clusters_the_longer_gradients_are_positive() -> None:
    g_Bd = torch.tensor([[3.0, 0.0], [3.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    for name in ("clusters", "spectral"):
        (guess,) = scores(name, view(g_Bd))
        assert leak_auc(guess.score_B, np.array([1, 1, 0, 0])) == 1.0


def test_the_smaller_cluster_is_positive_however_short_its_gradients() -> None:
    g_Bd = torch.tensor([[-0.1, 0.0], [3.0, 0.0], [3.0, 0.1], [3.0, -0.1]])
    for name in ("clusters", "spectral"):
        (guess,) = scores(name, view(g_Bd))
        assert leak_auc(guess.score_B, np.array([1, 0, 0, 0])) == 1.0


@pytest.mark.parametrize("name", ["clusters", "spectral", "norm", "cosine"])
@pytest.mark.parametrize(
    "g_Bd", [torch.zeros(6, 3), torch.ones(6, 3), torch.ones(1, 3)], ids=["zero", "equal", "one row"]
)
def test_equal_rows_have_equal_scores(name: str, g_Bd: Tensor) -> None:
    (guess,) = scores(name, view(g_Bd))
    assert len(set(guess.score_B.tolist())) == 1
