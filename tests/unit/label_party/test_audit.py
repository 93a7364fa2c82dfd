"""The label party's own measure of what is about to leave, and the bound that adds up over a run."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from cutlayer.common.leakage import auc_bound, null_floor, null_floor_over
from cutlayer.common.randomness import Noise
from cutlayer.label_party.audit import Audit, BatchLeak, batch_leaks, draw_reference
from cutlayer.label_party.bound import RunBound
from cutlayer.label_party.unprotected import Releases, Unprotected

ATTACKS = ["cosine", "norm", "mean", "median", "neighbours"]
NOISE = Noise(bytes(32))
Y_B = torch.tensor([1, 0, 0] * 5)
G_Bd = torch.where(Y_B[:, None] == 1, -3.0, 1.0) * torch.tensor([1.0, 2.0])
Z_Bd = torch.arange(15.0)[:, None] * torch.tensor([1.0, -0.5])


def aucs(leaks: dict[str, BatchLeak]) -> dict[str, float | None]:
    return {attack: leak.auc for attack, leak in leaks.items()}


def leak(auc: float | None, *scores: float) -> BatchLeak:
    """Of three rows, the first of which is positive."""
    return BatchLeak(auc, (1, 2), np.array(scores or (0.0, 0.0, 0.0)), np.array([True, False, False]))


def test_opposite_directions_leak_all() -> None:
    reference = draw_reference(G_Bd, Y_B, multiclass=False, noise=NOISE)
    assert reference is not None
    assert Y_B[reference.row] == 1
    assert aucs(batch_leaks(G_Bd, Z_Bd, Y_B, reference, multiclass=False)) == dict.fromkeys(ATTACKS, 1.0)


def test_tiny_gradients_leak_as_much_as_large_ones() -> None:
    reference = draw_reference(G_Bd * 1e-20, Y_B, multiclass=False, noise=NOISE)
    assert aucs(batch_leaks(G_Bd * 1e-20, Z_Bd, Y_B, reference, multiclass=False)) == dict.fromkeys(ATTACKS, 1.0)


def test_like_activations_are_compared_only_where_there_are_enough() -> None:
    leaks = batch_leaks(G_Bd[:11], Z_Bd[:11], Y_B[:11], None, multiclass=False)
    assert leaks["neighbours"] == BatchLeak()
    assert leaks["mean"].auc == 1.0


def test_a_batch_of_one_class_is_undefined_and_counted() -> None:
    nobody = torch.zeros_like(Y_B)
    assert draw_reference(G_Bd, nobody, multiclass=False, noise=NOISE) is None
    leaks = batch_leaks(G_Bd, Z_Bd, nobody, None, multiclass=False)
    assert aucs(leaks) == dict.fromkeys(ATTACKS)
    audit = Audit(multiclass=False)
    assert audit.record(1, 1, {"lab": leaks}) == leaks
    figures = audit.summary()["norm"]["cut"]
    assert (figures["mean"], figures["null_floor"], figures["batches"], figures["skipped"]) == (None, None, 0, 1)


def test_more_classes_are_told_from_that_of_the_reference() -> None:
    y_B = torch.tensor([0, 1, 2, 0, 1, 2])
    g_Bd = torch.nn.functional.one_hot(y_B).float()
    reference = draw_reference(g_Bd, y_B, multiclass=True, noise=NOISE)
    found = batch_leaks(g_Bd, Z_Bd[:6], y_B, reference, multiclass=True)
    assert aucs(found) == {"cosine": 1.0}
    assert found["cosine"].sizes == (2, 4)


def test_the_party_that_leaks_most_counts() -> None:
    audit = Audit(multiclass=False, parties=3)
    by_party = {"lab": {"norm": leak(0.9)}, "bank": {"norm": leak(0.6)}, "shop": {"norm": leak(None)}}
    assert aucs(audit.record(1, 1, by_party)) == {"norm": 0.9}
    figures = audit.summary()["norm"]["cut"]
    assert figures["max"] == 0.9
    assert figures["null_floor"] == pytest.approx(null_floor_over({(1, 2): 1}, best_of=3))
    assert audit.end_epoch()["norm"]["batches"] == 1
    assert audit.end_epoch() == {}
    floor = null_floor(1, 2)
    bank = {"step": 1, "epoch": 1, "party": "bank", "attack": "norm", "leak_auc": 0.6, "null_floor": floor}
    assert audit.table().to_pylist()[1] == bank
    assert audit.table().to_pylist()[2]["null_floor"] is None


def test_an_epoch_is_looked_at_as_a_whole_too() -> None:
    """Each batch is told apart, but not one's rows from the other's; of two parties the one that leaks most counts."""
    audit = Audit(multiclass=False, parties=2)
    audit.record(1, 1, {"lab": {"norm": leak(1.0, 3, 1, 1)}, "bank": {"norm": leak(0.5)}})
    audit.record(2, 1, {"lab": {"norm": leak(1.0, 9, 7, 7)}, "bank": {"norm": leak(0.5)}})
    assert audit.end_epoch()["norm"]["pooled"] == 0.75
    audit.record(3, 2, {"lab": {"norm": leak(0.0, 1, 2, 2)}, "bank": {"norm": leak(0.0, 1, 2, 2)}})
    assert audit.end_epoch()["norm"]["pooled"] == 0.0
    figures = audit.summary()["norm"]["cut"]
    assert (figures["pooled"], figures["pooled_flipped"]) == (0.375, 0.875)
    assert (figures["pooled_last"], figures["pooled_last_flipped"]) == (0.0, 1.0)
    assert figures["pooled_last_null_floor"] == pytest.approx(null_floor_over({(1, 2): 1}, best_of=2))


def test_flipped_figures_are_of_the_party_whose_guesses_are_most_of_use() -> None:
    audit = Audit(multiclass=False, parties=2)
    worst = audit.record(1, 1, {"lab": {"norm": leak(0.6, 3, 1, 9)}, "bank": {"norm": leak(0.1, 1, 2, 3)}})
    assert aucs(worst) == {"norm": 0.6}
    epoch = audit.end_epoch()["norm"]
    assert (epoch["mean"], epoch["mean_flipped"], epoch["p95_flipped"], epoch["max_flipped"]) == (0.6, 0.9, 0.9, 0.9)
    assert (epoch["pooled"], epoch["pooled_flipped"]) == (0.5, 1.0)


def test_an_audit_goes_on_where_it_was_saved() -> None:
    whole, first = Audit(multiclass=False), Audit(multiclass=False)
    for audit in (whole, first):
        audit.record(1, 1, {"lab": {"norm": leak(1.0, 3, 1, 1), "cosine": BatchLeak()}})
        audit.end_epoch()
        audit.record(3, 2, {"lab": {"norm": leak(1.0, 3, 1, 1), "cosine": leak(0.5)}})
    second = Audit(multiclass=False)
    second.restore(load(save(first.tensors())), epoch=2)
    for audit in (whole, second):
        audit.record(4, 2, {"lab": {"norm": leak(0.5, 9, 7, 9), "cosine": leak(0.5)}})
    assert second.end_epoch() == whole.end_epoch()
    assert second.summary() == whole.summary()
    assert second.table().equals(whole.table())


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


def test_the_bound_as_it_grows() -> None:
    bound = RunBound(4)
    bound.add("lab", np.array([0, 1]), {"sum_kl": 0.3})
    assert (bound.per_step, bound.whole_run) == (auc_bound(0.3), auc_bound(0.3))
    bound.add("lab", np.array([1, 2]), {"sum_kl": 0.2})
    assert (bound.per_step, bound.whole_run) == (auc_bound(0.3), auc_bound(0.5))
    again = RunBound(4)
    again.restore(load(save(bound.tensors())))
    for one in (bound, again):
        one.add("lab", np.array([2, 3]), {"sum_kl": 0.4})
    assert again.summary() == bound.summary()
    assert again.whole_run == auc_bound(0.6)


def test_what_leaves_as_it_is_is_counted() -> None:
    counts = Unprotected()
    counts.add("lab", G_Bd, G_Bd.clone())
    counts.add("lab", G_Bd, torch.cat([G_Bd[:1], G_Bd[1:] + 1]))
    counts.add("lab", torch.zeros(6, 2), torch.zeros(6, 2))
    again = Unprotected()
    again.restore(load(save(counts.tensors())))
    assert again.parties == counts.parties == {"lab": Releases(rows=36, exact_rows=16, steps=3, exact_steps=1)}
    assert counts.exact_steps == 1
