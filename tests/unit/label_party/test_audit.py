"""The label party's own measure of what is about to leave, and the bound that adds up over a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutlayer.common.leakage import auc_bound
from cutlayer.common.randomness import Noise
from cutlayer.label_party.audit import Audit, batch_leaks, draw_reference
from cutlayer.label_party.bound import RunBound

NOISE = Noise(bytes(32))
Y_B = torch.tensor([1, 0, 0, 1, 0, 0])
G_Bd = torch.where(Y_B[:, None] == 1, -3.0, 1.0) * torch.tensor([1.0, 2.0])


def test_opposite_directions_leak_all() -> None:
    reference = draw_reference(G_Bd, Y_B, multiclass=False, noise=NOISE)
    assert reference is not None
    assert Y_B[reference.row] == 1
    assert batch_leaks(G_Bd, Y_B, reference, multiclass=False) == {"cosine": 1.0, "norm": 1.0}


def test_tiny_gradients_leak_as_much_as_large_ones() -> None:
    reference = draw_reference(G_Bd * 1e-20, Y_B, multiclass=False, noise=NOISE)
    assert batch_leaks(G_Bd * 1e-20, Y_B, reference, multiclass=False) == {"cosine": 1.0, "norm": 1.0}


def test_a_batch_of_one_class_is_undefined_and_counted() -> None:
    nobody = torch.zeros(6, dtype=torch.int64)
    assert draw_reference(G_Bd, nobody, multiclass=False, noise=NOISE) is None
    leaks = batch_leaks(G_Bd, nobody, None, multiclass=False)
    assert leaks == {"cosine": None, "norm": None}
    audit = Audit(multiclass=False)
    assert audit.record(1, 1, {"lab": leaks}) == leaks
    assert audit.summary()["norm"]["cut"] == {"mean": None, "p95": None, "max": None, "batches": 0, "skipped": 1}


def test_more_classes_are_told_from_that_of_the_reference() -> None:
    y_B = torch.tensor([0, 1, 2, 0, 1, 2])
    g_Bd = torch.nn.functional.one_hot(y_B).float()
    reference = draw_reference(g_Bd, y_B, multiclass=True, noise=NOISE)
    assert batch_leaks(g_Bd, y_B, reference, multiclass=True) == {"cosine": 1.0}


def test_the_party_that_leaks_most_counts() -> None:
    audit = Audit(multiclass=False)
    worst = audit.record(1, 1, {"lab": {"norm": 0.9}, "bank": {"norm": 0.6}, "shop": {"norm": None}})
    assert worst == {"norm": 0.9}
    assert audit.summary()["norm"]["cut"]["max"] == 0.9
    assert audit.end_epoch()["norm"]["batches"] == 1
    assert audit.end_epoch() == {}
    assert audit.table().to_pylist()[1] == {"step": 1, "epoch": 1, "party": "bank", "attack": "norm", "leak_auc": 0.6}


def test_an_empty_audit_is_an_empty_table() -> None:
    assert Audit(multiclass=False).table().num_rows == 0


def test_the_bound_adds_up_per_row_and_party() -> None:
    bound = RunBound(4)
    assert bound.summary() is None
    for rows in ([0, 1], [2, 3], [0, 2]):
        bound.add("lab", np.array(rows), {"sum_kl": 0.3})
    bound.add("bank", np.array([0, 1]), {"sum_kl": 0.4})
    summary = bound.summary()
    assert summary is not None
    assert summary["per_step_leak_auc"] == auc_bound(0.4)
    assert summary["whole_run_leak_auc"] == pytest.approx(auc_bound(0.6))  # rows 0 and 2 of lab


def test_a_release_that_no_bound_covers_voids_it() -> None:
    bound = RunBound(2)
    bound.add("lab", np.array([0]), {"sum_kl": 0.1})
    bound.add("lab", np.array([1]), {"fallback_max_norm": 1.0})
    summary = bound.summary()
    assert summary is not None
    assert (summary["whole_run_leak_auc"], summary["unbounded_steps"]) == (1.0, 1)
