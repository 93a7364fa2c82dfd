"""`delta: auto` in `cutlayer run`: a value is found on few rows, shown, and taken; none of the search is in the run."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import yaml
from support.runs import BREAST_CANCER, changed, cutlayer, summary, write

VALUES = [0.1, 0.5]
DEFENSE = {"name": "gafm", "delta": "auto", "delta_values": VALUES, "delta_rows": 0.4}
RUN = changed(BREAST_CANCER, {"label_party.top_model": None, "label_party.defense": DEFENSE})


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_delta_auto(tmp_path: Path) -> None:
    file, out, search = write(tmp_path, RUN), tmp_path / "out", tmp_path / "out-search"
    done = cutlayer("run", file, "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("taken") == 1
    delta = summary(out)["defense"]["delta"]
    assert delta in VALUES
    assert summary(out)["rows"] == 455
    assert {path.name for path in out.iterdir()} == {
        *("run.json", "summary.json", "state.json", "metrics.jsonl", "label_party", "lab")
    }
    assert [summary(folder)["rows"] for folder in sorted(search.glob("runs/*/"))] == [182, 182]
    chosen = search / "run.yaml"
    assert yaml.safe_load(chosen.read_text())["label_party"]["defense"]["delta"] == delta
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o600

    names = json.loads((search / "sweep.json").read_text())["runs"]
    kept = {name: (search / "runs" / name / "summary.json").stat().st_mtime_ns for name in names}
    again = cutlayer("run", file, "--out", out)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "2 of 2 runs had finished before and are kept" in again.stdout
    assert "this run is finished" in again.stdout
    assert kept == {name: (search / "runs" / name / "summary.json").stat().st_mtime_ns for name in names}
