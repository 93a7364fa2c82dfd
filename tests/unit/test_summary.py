"""cutlayer/summary.py and closing.py: leak figures of guesses against labels, and what a person sees of them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cutlayer.closing import closing_table
from cutlayer.common.errors import CutlayerError
from cutlayer.common.leakage import leak_auc, null_floor
from cutlayer.common.progress import human_bytes
from cutlayer.scoring import step_leaks
from cutlayer.summary import merge

Guess = tuple[int, str, str, float]

AUDITED = {
    **{"mean": 0.55, "mean_flipped": 0.58, "p95": 0.6, "max": 0.7, "null_floor": 0.58},
    **{"pooled_last": 0.4, "pooled_last_flipped": 0.6},
}
SUMMARY: dict[str, Any] = {
    "schema": 1,
    "job": "clinic-and-lab",
    "task": "binary",
    "defense": {"name": "marvell", "scale": 1.0},
    "utility": {"test_auc": 0.99123, "test_accuracy": None},
    "leak": {"audit": {"norm": {"cut": AUDITED}}},
    "knowledge": {"lab": {"clean_positive_gradient": True, "labelled_rows": 5}},
    "bound": {"per_step_leak_auc": 0.6, "whole_run_leak_auc": 0.94, "assumes": "pigs fly"},
    "releases": {
        "lab": {"rows": 1000, "exact_rows": 2, "steps": 8, "exact_steps": 1, "fallback_running": 3, "fallback_x": 0}
    },
    "steps": 180,
    "epochs": 20,
    "seconds": 63.2,
    "samples_per_second": 2834.2,
    "bytes": {"activations": 11648000, "gradients": 11648000, "overhead": 12345},
    "parties": {},
}


def leave_results(out: Path, labels: dict[str, int], guesses: dict[str, list[Guess]], **changes: Any) -> None:
    """What the parties leave in `out`; the guesses are those of party `lab`, by attack."""
    for party, figures in {
        "label_party": {"pid": 1, "peak_rss_bytes": 10, "seconds": 2.0, "history": {"lab": "ab"}},
        "lab": {"pid": 2, "peak_rss_bytes": 20, "seconds": 2.0, "wait_seconds": 0.5, "history": "ab"},
    }.items():
        (out / party).mkdir(parents=True)
        (out / party / "party.json").write_text(json.dumps(figures))
    (out / "summary.json").write_text(json.dumps(SUMMARY | changes))
    table = pa.table({"row_id": pa.array(labels, pa.string()), "label": pa.array(labels.values(), pa.int64())})
    pq.write_table(table, out / "label_party" / "labels.parquet")
    (out / "lab" / "attacks").mkdir()
    for attack, rows in guesses.items():
        write_guesses(out / "lab" / "attacks" / f"{attack}.parquet", rows)


def write_guesses(file: Path, rows: list[Guess]) -> None:
    columns = list(zip(*rows, strict=True)) or [()] * 4
    types = [pa.int64(), pa.string(), pa.string(), pa.float32()]
    names = ["step", "layer", "row_id", "score"]
    pq.write_table(pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names), file)


def main(figures: dict[str, Any]) -> dict[str, Any]:
    return {key: figures[key] for key in ("mean", "p95", "max", "batches", "skipped")}


LABELS = {"a": 1, "b": 0, "c": 1, "d": 0}


def test_guesses_of_steps_and_at_the_end_become_figures(tmp_path: Path) -> None:
    first = [(1, "cut", "a", 0.9), (1, "cut", "b", 0.1), (1, "first", "b", 0.9), (1, "first", "a", 0.1)]
    second = [(2, "cut", "c", 0.5), (2, "cut", "d", 0.5), (3, "cut", "c", 0.5)]
    final = [(0, "cut", "a", 3.0), (0, "cut", "b", 2.0), (0, "cut", "c", 1.0), (0, "cut", "d", 0.0)]
    leave_results(tmp_path, LABELS, {"norm": first + second, "mine.Attack": final})
    summary = merge(tmp_path)
    found = summary["leak"]["attacks"]["lab"]
    assert main(found["norm"]["cut"]) == {"mean": 0.75, "p95": 1.0, "max": 1.0, "batches": 2, "skipped": 1}
    assert main(found["norm"]["first"]) == {"mean": 0.0, "p95": 0.0, "max": 0.0, "batches": 1, "skipped": 0}
    assert found["norm"]["cut"]["null_floor"] == pytest.approx(null_floor(1, 1))
    final = found["mine.Attack"]["cut"]
    assert main(final) == {"mean": None, "p95": None, "max": None, "batches": 0, "skipped": 0}
    assert (final["final"], final["final_flipped"], final["final_null_floor"]) == (0.75, 0.75, null_floor(2, 2))
    assert (found["norm"]["first"]["mean_flipped"], found["norm"]["first"]["max_flipped"]) == (1.0, 1.0)
    assert "final" not in found["norm"]["cut"]
    assert summary["leak"]["audit"] == SUMMARY["leak"]["audit"]
    assert json.loads((tmp_path / "summary.json").read_text()) == summary


def test_parties_figures_are_put_in(tmp_path: Path) -> None:
    leave_results(tmp_path, LABELS, {})
    summary = merge(tmp_path)
    assert summary["parties"] == {
        "lab": {"pid": 2, "peak_rss_bytes": 20, "seconds": 2.0, "wait_seconds": 0.5},
        "label_party": {"pid": 1, "peak_rss_bytes": 10, "seconds": 2.0},
    }
    assert summary["leak"]["attacks"] == {}


def test_merging_twice_changes_nothing(tmp_path: Path) -> None:
    leave_results(tmp_path, LABELS, {"norm": [(1, "cut", "a", 0.9), (1, "cut", "b", 0.1)]})
    assert merge(tmp_path) == merge(tmp_path)


def test_rows_without_a_label_and_scores_that_are_no_number_do_not_count(tmp_path: Path) -> None:
    rows = [(1, "cut", "a", 0.1), (1, "cut", "b", 0.9), (1, "cut", "stranger", 0.5), (1, "cut", "c", float("nan"))]
    leave_results(tmp_path, LABELS, {"norm": rows, "strange": [(1, "cut", "stranger", 0.5)], "silent": []})
    figures = merge(tmp_path)["leak"]["attacks"]["lab"]
    assert main(figures["norm"]["cut"]) == {"mean": 0.0, "p95": 0.0, "max": 0.0, "batches": 1, "skipped": 0}
    assert figures["norm"]["cut"]["not_a_number"] == 1
    assert figures["strange"] == figures["silent"] == {}


def test_the_scores_of_an_epoch_are_taken_together_too(tmp_path: Path) -> None:
    """Three steps an epoch: in the first, step 1's rows are told apart, but not from step 2's."""
    first = [(1, "cut", "a", 0.3), (1, "cut", "b", 0.1), (2, "cut", "c", 0.9), (2, "cut", "d", 0.7)]
    second = [(4, "cut", "a", 0.1), (4, "cut", "b", 0.3), (0, "cut", "a", 0.1), (0, "cut", "b", 0.3)]
    leave_results(tmp_path, LABELS, {"norm": first + second}, steps_per_epoch=3)
    figures = merge(tmp_path)["leak"]["attacks"]["lab"]["norm"]["cut"]
    assert (figures["pooled"], figures["pooled_flipped"]) == (0.375, 0.875)
    assert (figures["pooled_last"], figures["pooled_last_flipped"]) == (0.0, 1.0)
    assert figures["pooled_last_null_floor"] == null_floor(1, 1)


def test_a_multiclass_task_has_no_figures_of_attacks(tmp_path: Path) -> None:
    leave_results(tmp_path, {"a": 2, "b": 0}, {"norm": [(1, "cut", "a", 0.9)]}, task="multiclass")
    assert "attacks" not in merge(tmp_path)["leak"]


@pytest.mark.parametrize("file", ["summary.json", "label_party/labels.parquet", "lab/attacks/norm.parquet"])
@pytest.mark.parametrize("content", [None, b"half"])
def test_results_that_are_not_whole_are_named(tmp_path: Path, file: str, content: bytes | None) -> None:
    leave_results(tmp_path, LABELS, {"norm": [(1, "cut", "a", 0.9)]})
    if content is not None:
        (tmp_path / file).write_bytes(content)
    elif file != "lab/attacks/norm.parquet":  # no guesses are no error
        (tmp_path / file).unlink()
    else:
        return
    with pytest.raises(CutlayerError, match="the parties' results cannot be put together"):
        merge(tmp_path)


@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 4), st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 0.5000001, 2.0, np.inf]), st.integers(0, 1)
        ),
        min_size=1,
    )
)
def test_aucs_of_all_steps_at_once_are_those_of_each_step(rows: list[tuple[int, float, int]]) -> None:
    step_N, score_N, y_N = (np.array(column) for column in zip(*rows, strict=True))
    score_N = score_N.astype(np.float32)
    expected = {int(s): leak_auc(score_N[step_N == s], y_N[step_N == s]) for s in np.unique(step_N)}
    leaks = step_leaks(step_N, score_N, y_N.astype(np.int8))
    found = {step: leak.auc for step, leak in leaks.items()}
    assert [leak.positives + leak.negatives for leak in leaks.values()] == [sum(step_N == s) for s in found]
    assert list(found) == sorted(expected)
    assert found == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_no_guess_at_all_has_no_auc() -> None:
    empty: list[npt.NDArray[Any]] = [np.array([], dtype=kind) for kind in (np.int64, np.float32, np.int8)]
    assert step_leaks(*empty) == {}


def shown(summary: dict[str, Any], *, terminal: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=80, force_terminal=terminal).print(closing_table(summary, Path("runs/clinic-and-lab")))
    return out.getvalue()


def test_what_the_objective_found_is_shown() -> None:
    objective = {"name": "gafm", "gamma": 1.0457, "train_auc": 0.93, "turned": False, "flat_steps": 0}
    assert "gafm: gamma 1.0457, train auc 0.9300\n" in shown(SUMMARY | {"objective": objective})


def test_the_closing_table_as_a_whole(tmp_path: Path) -> None:
    rows = [(1, "cut", "a", 0.1), (1, "cut", "b", 0.9), (0, "cut", "a", 0.9), (0, "cut", "b", 0.1)]
    leave_results(tmp_path, LABELS, {"norm": rows}, steps_per_epoch=3)
    assert [line.rstrip() for line in shown(merge(tmp_path)).splitlines()] == [
        "",
        "clinic-and-lab: 20 epochs, 180 steps of training in 1:03 (2,834 samples/s)",
        "test auc 0.9912",
        "",
        "defense: name marvell, scale 1.0",
        "leak AUC  attack  layer          mean           p95         epoch         final",
        "audit     norm    cut    0.550 (0.58)  0.600 (0.58)  0.400 (0.60)",
        "lab       norm    cut    0.000 (1.00)  0.000 (1.00)  0.000 (1.00)  1.000 (1.00)",
        "epoch: the scores of the last one together. In brackets: of mean and epoch for",
        "who may turn the score round (flipped), of p95 and final by chance",
        "bound: 0.6000 for a step, 0.9400 for the whole run; if pigs fly",
        "sent to lab as they were: 2 of 1,000 rows; whole batches 1; fallback running 3",
        "knowledge granted to lab: clean_positive_gradient, lab: labelled_rows 5",
        "",
        "party         time  computing  waiting  peak memory",
        "lab          2.0 s               0.5 s         20 B",
        "label_party  2.0 s                             10 B",
        "",
        "sent: activations 11.6 MB, gradients 11.6 MB, overhead 12.3 kB",
        "files: runs/clinic-and-lab",
    ]


def test_without_a_bound_or_knowledge_that_is_said() -> None:
    text = shown(SUMMARY | {"bound": None, "knowledge": {}})
    assert "bound: this defense states none" in text
    assert "no knowledge granted to the other parties" in text


def test_colour_is_for_terminals() -> None:
    assert "\x1b[" not in shown(SUMMARY)
    assert "\x1b[" in shown(SUMMARY, terminal=True)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (999.9, "1 kB"), (12345, "12.3 kB"), (11648000, "11.6 MB"), (5e15, "5 PB")],
)
def test_human_bytes(count: float, text: str) -> None:
    assert human_bytes(count) == text
