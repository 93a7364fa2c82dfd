"""What the parties of a run load, which is most of the time that a start and a resume take."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.csv_files import numbers, pair
from support.runs import changed, python_path, write

from cutlayer import local

NOT_NEEDED = {"sklearn", "scipy", "plotly", "rich.live", "torch._dynamo"}
PARTY = """
import atexit, pathlib, runpy, sys
file, module = sys.argv[1:3]
del sys.argv[1:3]
atexit.register(lambda: pathlib.Path(file).write_text(" ".join(sys.modules)))
runpy.run_module(module, run_name="__main__")
"""


def test_parties_that_read_files_load_only_what_they_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {
        "label_party.defense": {"name": "marvell", "max_leak_auc": 0.6},
        "label_party.optimizer": {"name": "adam"},
        "nonlabel_parties.lab.optimizer": {"name": "sgd"},
        "nonlabel_parties.lab.attacks": ["norm"],
    }
    run = changed(pair(tmp_path, numbers(0, 80), numbers(0, 80)), changes)
    monkeypatch.setenv("PYTHONPATH", python_path())

    def command(name: str) -> list[str]:
        module = local.party_command(name)[-1]
        return [sys.executable, "-c", PARTY, str(tmp_path / name), module]

    assert local.run(write(tmp_path, run), tmp_path / "out", command=command) == 0
    loaded = {name: set((tmp_path / name).read_text().split()) for name in ("label_party", "lab")}
    assert {name: modules & NOT_NEEDED for name, modules in loaded.items()} == {"label_party": set(), "lab": set()}
    assert "tensorboard" in loaded["label_party"]  # the run had figures to write
    assert "tensorboard" not in loaded["lab"]
