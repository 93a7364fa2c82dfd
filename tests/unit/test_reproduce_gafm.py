"""examples/reproduce/gafm: its files name things that exist, its models fit, its figures are those of a sweep."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cutlayer.common.models import build_bottom
from cutlayer.common.run_files import load
from cutlayer.common.tables import InputSpec
from cutlayer.label_party.defenses import defenses
from cutlayer.sweep import plan
from cutlayer.sweep.plugin_check import problems
from cutlayer.sweep.results import write_results

STUDY = Path(__file__).parents[2] / "examples/reproduce/gafm"
SWEEPS = sorted(STUDY.glob("sweeps/*.yaml"))
RUN_FILES = sorted(STUDY.glob("*.yaml"))


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_plugins_and_options_of_every_sweep_exist(file: Path) -> None:
    runs = plan.load(file).runs
    assert len({run.run_file.job.seed for run in runs}) == (20 if file.stem.endswith("inverted") else 10)
    assert problems({run.name: run.content for run in runs}) == []
    for run in runs:
        defense = run.run_file.label_section().defense
        defenses.create(defense.name, defense.options)


@pytest.mark.parametrize("file", RUN_FILES, ids=lambda file: file.stem)
def test_every_run_file_has_a_sweep(file: Path) -> None:
    runs = plan.load(STUDY / "sweeps" / file.name).runs
    assert {run.run_file.label_section().defense.name for run in runs} == {"gafm", "none", "marvell", "max_norm"}


@pytest.mark.parametrize("name", ["spambase", "spambase_three", "imdb", "imdb_three"])
def test_activations_are_probabilities_where_the_objective_takes_them_for_such(name: str) -> None:
    run_file = load(STUDY / f"{name}.yaml")
    assert run_file.label_section().defense.options["activations"] == "probabilities"
    for party in run_file.job.parties:
        bottom = build_bottom(run_file.nonlabel_section(party).bottom_model, InputSpec(19), 1, seed=0)
        assert type(list(bottom.modules())[-1]).__name__ == "Sigmoid"


def test_three_parties_share_all_columns_of_spambase() -> None:
    run_file = load(STUDY / "spambase_three.yaml")
    columns = [run_file.nonlabel_section(party).data.options["numeric"] for party in run_file.job.parties]
    assert sum(columns, []) == list(range(57))


def test_the_figures_are_means_over_the_seeds(tmp_path: Path) -> None:
    runs = [run for run in plan.load(STUDY / "sweeps/spambase.yaml").runs if run.name.endswith("defense=gafm")]
    found = [(run, summary(0.4 + 0.1 * place)) for place, run in enumerate(runs[:2])]
    write_results(tmp_path / "results.parquet", found)
    done = subprocess.run(
        [sys.executable, STUDY / "figures.py", tmp_path], capture_output=True, text=True, check=True, timeout=60
    )
    cells = done.stdout.splitlines()[-1].strip("| ").split(" | ")
    leaks = ["0.600", "0.610", "-", "0.550", "0.560", "-", "0.700, -", "0.800"]
    assert cells == ["`gafm`", "2", "0.450 ±0.050", "0.400", "1", *leaks]


def summary(test_auc: float) -> dict[str, object]:
    """What the table takes of the summary of a run."""
    return {
        "job": "gafm-spambase",
        "defense": {"name": "gafm"},
        "utility": {"test_auc": test_auc},
        "bound": None,
        "leak": {
            "audit": {
                "norm": {"cut": {"pooled_last_flipped": 0.6, "mean_flipped": 0.55}},
                "mean": {"cut": {"pooled_last_flipped": 0.61, "mean_flipped": 0.56}},
            },
            "attacks": {
                "counts": {"mean": {"cut": {"pooled_last_flipped": 0.7}}, "neighbours": {"cut": {"mean_flipped": 0.8}}}
            },
        },
    }
