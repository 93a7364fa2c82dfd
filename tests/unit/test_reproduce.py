"""examples/reproduce: its files name things that exist, its models fit its data, its figures are those of a sweep."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cutlayer.check import check
from cutlayer.common.config import RunFile
from cutlayer.common.models import build_bottom
from cutlayer.common.run_files import load
from cutlayer.common.tables import Image, InputSpec
from cutlayer.sweep import plan
from cutlayer.sweep.plugin_check import problems
from cutlayer.sweep.results import write_results

STUDY = Path(__file__).parents[2] / "examples/reproduce/marvell"
SWEEPS = sorted(STUDY.glob("sweeps/*.yaml"))
RUN_FILES = sorted(STUDY.glob("*.yaml"))


def has_data(run_file: RunFile) -> bool:
    sections = [run_file.label_section(), *run_file.nonlabel_parties.values()]
    return all(Path(section.data.options.get("path", STUDY)).exists() for section in sections)


@pytest.mark.parametrize("file", SWEEPS, ids=lambda file: file.stem)
def test_plugins_and_options_of_every_sweep_exist(file: Path) -> None:
    runs = plan.load(file).runs
    assert len(runs) >= 35
    assert {run.run_file.job.seed for run in runs} == {0, 1, 2, 3, 4}
    assert problems({run.name: run.content for run in runs}) == []


@pytest.mark.parametrize("file", RUN_FILES, ids=lambda file: file.stem)
def test_every_run_file_has_a_sweep(file: Path) -> None:
    assert (STUDY / "sweeps" / file.name).exists()


@pytest.mark.parametrize(
    ("name", "party", "image"),
    [("skin_lesions", "clinic", (1, 8, 8)), ("mnist", "camera", (1, 28, 28)), ("isic", "clinic", (3, 84, 84))],
)
def test_the_cut_layer_is_what_the_cnn_leaves_of_an_image(name: str, party: str, image: Image) -> None:
    run_file = load(STUDY / f"{name}.yaml")
    inputs = InputSpec(image[0] * image[1] * image[2], image=image)
    build_bottom(run_file.nonlabel_section(party).bottom_model, inputs, run_file.job.cut_layer.width, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("file", RUN_FILES, ids=lambda file: file.stem)
def test_a_run_file_fits_its_data(file: Path) -> None:
    run_file = load(file)
    if run_file.job.name in ("click-log", "criteo") or not has_data(run_file):
        pytest.skip("its data are not here, or take minutes to read")
    assert check(file) == 0


def test_the_figures_are_means_over_the_seeds(tmp_path: Path) -> None:
    runs = [run for run in plan.load(STUDY / "sweeps/mnist.yaml").runs if run.name.endswith("defense=marvell-scale-1")]
    found = [(run, summary(test_auc=0.8 + 0.02 * place)) for place, run in enumerate(runs)]
    write_results(tmp_path / "results.parquet", found)
    cells = figures(tmp_path).splitlines()[-1].strip("| ").split(" | ")
    leaks = ["0.600; 0.700", "-; -", "0.610; 0.710", "-; -"]
    assert cells == ["`marvell scale 1`", "5", "0.840 ±0.028", *leaks, "0.620", "0.590", "0.800", "0.900"]


def test_a_study_leaves_out_what_has_no_data(tmp_path: Path) -> None:
    shutil.copytree(STUDY.parent, tmp_path / "reproduce", ignore=shutil.ignore_patterns("data", "__pycache__"))
    command = tmp_path / "bin" / "cutlayer"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cutlayer.cli "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}", "OUT": str(tmp_path / "out")}
    done = subprocess.run(
        [tmp_path / "reproduce/marvell/study", "default_credit"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0
    assert "bank.csv does not exist" in done.stderr
    assert "study: default_credit is left out" in done.stderr
    assert not (tmp_path / "out").exists()


def figures(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, STUDY / "figures.py", folder], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def summary(test_auc: float) -> dict[str, object]:
    """What the table takes of the summary of a run."""
    norm = {"mean": 0.6, "p95": 0.7, "null_floor": 0.59}
    return {
        "job": "mnist",
        "defense": {"name": "marvell", "scale": 1},
        "utility": {"test_auc": test_auc},
        "bound": {"per_step_leak_auc": 0.8, "whole_run_leak_auc": 0.9},
        "leak": {
            "audit": {"norm": {"cut": {"mean": 0.1}}},
            "attacks": {
                "camera": {
                    "norm": {"cut": norm},
                    "cosine": {"cut": {"mean": 0.61, "p95": 0.71}},
                    "history": {"cut": {"final": 0.62}},
                }
            },
        },
    }
