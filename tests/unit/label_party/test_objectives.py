"""Aggregation, loss and figures of utility, against torch and scikit-learn."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

from cutlayer.common.config import Choice
from cutlayer.common.job import CutLayer
from cutlayer.common.randomness import Noise
from cutlayer.label_party.aggregation import aggregate, aggregate_width
from cutlayer.label_party.objectives import CrossEntropy, ObjectiveSetting, utility_figures


def test_sum_and_concat_in_the_order_of_the_parties() -> None:
    a, b = torch.tensor([[1.0, 2.0]]), torch.tensor([[10.0, 20.0]])
    assert aggregate([a, b], "sum").tolist() == [[11.0, 22.0]]
    assert aggregate([a, b], "concat").tolist() == [[1.0, 2.0, 10.0, 20.0]]
    assert aggregate([a], "sum") is a


def test_the_top_models_input_width() -> None:
    parties = ["lab", "bank"]
    assert aggregate_width(CutLayer(width=4), parties, own_features=True) == 4
    concat = CutLayer(width=4, aggregation="concat", widths={"bank": 3, "label_party": 2})
    assert aggregate_width(concat, parties, own_features=False) == 7
    assert aggregate_width(concat, parties, own_features=True) == 9


def test_binary_figures_are_scikit_learns() -> None:
    generator = torch.Generator().manual_seed(0)
    logits_BK, y_B = torch.randn(200, 1, generator=generator), torch.randint(2, (200,), generator=generator)
    probability = logits_BK.double().sigmoid().squeeze(1).numpy()
    figures = utility_figures(logits_BK, y_B)
    assert figures["test_auc"] == roc_auc_score(y_B, probability)
    assert figures["test_accuracy"] == accuracy_score(y_B, probability > 0.5)
    assert figures["test_loss"] == pytest.approx(log_loss(y_B, probability), rel=1e-6)


def test_multiclass_figures_are_scikit_learns() -> None:
    generator = torch.Generator().manual_seed(0)
    logits_BK, y_B = torch.randn(200, 3, generator=generator), torch.randint(3, (200,), generator=generator)
    probability = logits_BK.double().softmax(dim=1).numpy()
    figures = utility_figures(logits_BK, y_B)
    assert figures["test_auc"] == pytest.approx(roc_auc_score(y_B, probability, multi_class="ovr"), rel=1e-12)
    assert figures["test_accuracy"] == accuracy_score(y_B, probability.argmax(axis=1))
    assert figures["test_loss"] == pytest.approx(log_loss(y_B, probability), rel=1e-6)


def test_auc_is_undefined_with_one_class() -> None:
    assert utility_figures(torch.zeros(3, 1), torch.ones(3, dtype=torch.int64))["test_auc"] is None


def test_a_gradient_is_that_of_the_mean_loss() -> None:
    """g = (p1 - y) grad h(z) / B [M, section 3.1], here with h(z) = z."""
    setting = ObjectiveSetting("binary", 1, 1, 1, Choice(name="sum"), rate=0.1, seed=0, train_rows=2)
    z_Bd, y_B = torch.tensor([[0.3], [-2.0]], requires_grad=True), torch.tensor([1, 0])
    learned = CrossEntropy(setting).learn(z_Bd, y_B, noise=Noise(bytes(32)))
    probability_B = z_Bd.detach().double().sigmoid().squeeze(1)
    assert learned.loss == pytest.approx(log_loss(y_B, probability_B), rel=1e-6)
    assert learned.gradient_Bd is not None
    torch.testing.assert_close(learned.gradient_Bd.squeeze(1), (probability_B.float() - y_B) / 2)
