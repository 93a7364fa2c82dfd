"""A package of somebody else's adds a defense and attacks, by entry points and by name."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from support.runs import BREAST_CANCER, changed, cutlayer, python_path, summary, write

PACKAGE = """
    from dataclasses import dataclass
    from typing import ClassVar

    from cutlayer.plugins import Attack, Defense, ScoringAttack


    @dataclass(kw_only=True)
    class Halved(Defense):
        \"\"\"Sends half the gradient.\"\"\"

        paper: ClassVar[str] = "Nobody, 2031"
        factor: float = 0.5

        def perturb(self, g_Bd, y_B, *, noise):
            return g_Bd * self.factor


    @dataclass(kw_only=True)
    class FirstColumn(ScoringAttack):
        \"\"\"Guesses by one coordinate.\"\"\"

        paper: ClassVar[str] = "Nobody, 2032"

        def score(self, g_BD, layer, view):
            return g_BD[:, 0]


    @dataclass(kw_only=True)
    class Clumsy(Attack):
        \"\"\"Fails at its third step.\"\"\"

        paper: ClassVar[str] = "Nobody, 2033"

        def observe(self, view):
            if view.step == 3:
                raise RuntimeError("stumbled")
            return []
"""
ENTRY_POINTS = """
    [cutlayer.defenses]
    halved = somebody_elses:Halved

    [cutlayer.attacks]
    first_column = somebody_elses:FirstColumn
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as an installer leaves it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "somebody_elses.py").write_text(dedent(PACKAGE))
    information = folder / "somebody_elses-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody-elses\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(dedent(ENTRY_POINTS))
    return folder


def test_list_shows_plugins_of_other_packages(site: Path) -> None:
    done = cutlayer("list", PYTHONPATH=python_path(site))
    assert done.returncode == 0, done.stderr
    assert "halved: Sends half the gradient.\n      paper: Nobody, 2031\n      options: {factor: 0.5}" in done.stdout
    assert "first_column: Guesses by one coordinate." in done.stdout


def test_run_with_plugins_of_other_packages(site: Path, tmp_path: Path) -> None:
    """A defense and an attack by entry point, an attack by module and class, which fails and is switched off."""
    changes = {
        "job.epochs": 1,
        "label_party.defense": {"name": "halved", "factor": 0.25},
        "nonlabel_parties.lab.attacks": ["first_column", "somebody_elses:Clumsy"],
    }
    path = write(tmp_path, changed(BREAST_CANCER, changes))
    done = cutlayer("run", path, "--out", tmp_path / "out", PYTHONPATH=python_path(site))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "attack 'somebody_elses.Clumsy' failed at step 3 and is off from now on" in done.stdout + done.stderr
    found = summary(tmp_path / "out")
    assert found["defense"] == {"name": "halved", "factor": 0.25}
    assert found["leak"]["attacks"]["lab"].keys() == {"first_column"}
    resolved = json.loads((tmp_path / "out" / "run.json").read_text())["config"]["label_party"]
    assert resolved["defense"] == {"name": "halved", "factor": 0.25}
