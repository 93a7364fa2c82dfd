"""The figures of real parties: exact after a run, scraped from processes, and without labels at a non-label party."""

from __future__ import annotations

import csv
import re
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.processes import Background
from support.runs import BREAST_CANCER, Run, changed, free_port, summary, write

from cutlayer.common import run_files
from cutlayer.common.metrics import Metrics
from cutlayer.label_party.process import LabelParty
from cutlayer.nonlabel_party.process import NonlabelParty
from cutlayer.nonlabel_party.training import BottomTraining

SECRET = "tests share this"
Values = dict[tuple[str, ...], float]

# What may be known of a non-label party. Whoever adds a figure thinks about labels first.
ANY_PARTYS = {
    "cutlayer_party_info",
    "cutlayer_steps",
    "cutlayer_samples",
    "cutlayer_step_seconds",
    "cutlayer_wait_seconds",
    "cutlayer_step",
    "cutlayer_planned_steps",
    "cutlayer_sent_bytes",
    "cutlayer_received_bytes",
    "cutlayer_reconnects",
    "cutlayer_refused_messages",
    "cutlayer_extra_queries",
    "cutlayer_checkpoint_seconds",
    "cutlayer_durable_step",
    "cutlayer_resumed_step",
    "cutlayer_rollbacks",
    "cutlayer_parties_waited_for",
    "cutlayer_waiting_seconds",
    "cutlayer_waiting_left_seconds",
}
LABEL_PARTYS = {
    "cutlayer_train_loss",
    "cutlayer_leak_auc",
    "cutlayer_leak_auc_flipped",
    "cutlayer_evaluation",
    "cutlayer_leak_auc_bound",
    "cutlayer_connected_parties",
    "cutlayer_unanswered_activations",
}


def families(text: str) -> set[str]:
    names = {family.name for family in text_string_to_metric_families(text)}
    return {name for name in names if name.startswith("cutlayer_") and not name.endswith("_created")}


def values(text: str) -> Values:
    return {
        (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def run_both(folder: Path, run: Run) -> tuple[str, str]:
    """Both parties from start to end in this process; what a last scrape of each gives."""
    address = f"127.0.0.1:{free_port()}"
    secrets = {"label_party.id_secret": SECRET, "nonlabel_parties.lab.id_secret": SECRET}
    run_file = run_files.load(write(folder, changed(run, secrets)))
    label_party = LabelParty(run_file, folder / "out", address, events=False)
    lab = NonlabelParty(run_file, "lab", folder / "out", address, events=False)
    thread = threading.Thread(target=label_party.run)
    thread.start()
    lab.run()
    thread.join(60)
    assert not thread.is_alive()
    return tuple(generate_latest(party._telemetry.prometheus.registry).decode() for party in (label_party, lab))  # type: ignore[return-value]


def test_the_figures_of_a_run_are_exact(tmp_path: Path) -> None:
    run = changed(BREAST_CANCER, {"job.checkpoint": {"every_steps": 4}, "label_party.defense": "marvell"})
    text, lab_text = run_both(tmp_path, run)
    label_party, lab = values(text), values(lab_text)
    result = summary(tmp_path / "out")
    steps = int(label_party["cutlayer_planned_steps",])
    for found in (label_party, lab):
        assert found["cutlayer_steps_total", "train"] == result["steps"]
        assert found["cutlayer_steps_total", "evaluate"] == steps - result["steps"]
        assert found["cutlayer_samples_total", "train"] == result["rows"] * result["epochs"]
        assert found["cutlayer_samples_total", "evaluate"] == result["test_rows"] * result["epochs"]
        assert found["cutlayer_step_seconds_count", "train"] == result["steps"]
        assert found["cutlayer_step",] == found["cutlayer_durable_step",] == steps
        assert found["cutlayer_checkpoint_seconds_count",] == 1 + steps // 4 + (steps % 4 > 0)  # step 0 too
        assert found["cutlayer_parties_waited_for",] == found["cutlayer_rollbacks_total",] == 0
    for kind in ("activations", "gradients"):
        ways = ("sent", "received") if kind == "activations" else ("received", "sent")
        assert lab[f"cutlayer_{ways[0]}_bytes_total", kind, "label_party"] == result["bytes"][kind]
        assert label_party[f"cutlayer_{ways[1]}_bytes_total", kind, "lab"] == result["bytes"][kind]
    assert lab["cutlayer_sent_bytes_total", "row_ids", "label_party"] == 569 * 16
    assert label_party["cutlayer_evaluation", "test_auc"] == result["utility"]["test_auc"]
    assert label_party["cutlayer_leak_auc_bound", "run"] == result["bound"]["whole_run_leak_auc"]
    assert families(text) == ANY_PARTYS | LABEL_PARTYS
    assert families(lab_text) == ANY_PARTYS


ROWS = 44
HALF = [row % 2 for row in range(ROWS)]
RARE = [int(row % 11 == 0) for row in range(ROWS)]
# Times are not the same in two runs; nor is what the system says of the process.
_MEASURED = re.compile(r"process_|.*_seconds_(sum|bucket)|.*_created|cutlayer_wait_seconds|cutlayer_waiting")


def figures_of_lab(folder: Path, labels: list[int], defense: str) -> Values:
    folder.mkdir()
    for name, column, cells in (("labels", "y", labels), ("features", "x", range(ROWS))):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([("id", column), *((f"r{row}", cell) for row, cell in enumerate(cells))])
    changes: dict[str, Any] = {
        "job.batch_size": 8,
        "job.checkpoint": {"every_steps": 3},
        "label_party.data": {"source": "csv", "path": "labels.csv", "label": "y"},
        "label_party.defense": defense,
        "nonlabel_parties.lab.data": {"source": "csv", "path": "features.csv"},
    }
    _, text = run_both(folder, changed(BREAST_CANCER, changes))
    return {key: value for key, value in values(text).items() if not _MEASURED.match(key[0])}


@pytest.mark.parametrize("defense", ["none", "support.plugins:Constant"])
def test_P15_a_nonlabel_partys_figures_are_the_same_whatever_the_labels(tmp_path: Path, defense: str) -> None:
    figures = figures_of_lab(tmp_path / "half", HALF, defense)
    assert figures == figures_of_lab(tmp_path / "rare", RARE, defense)
    assert figures["cutlayer_steps_total", "train"] > 4


def test_P15_a_planted_leak_into_the_figures_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backward, gauges = BottomTraining.backward, []

    def leaking(self: BottomTraining, z_Bd: Any, g_Bd: Any) -> None:
        gauges[-1].set(float(g_Bd.norm()))
        backward(self, z_Bd, g_Bd)

    begins = Metrics.begins

    def beginning(self: Metrics, step: int) -> None:
        if not hasattr(self, "bound"):  # lab's
            gauges.append(self._gauge("gradient_norm", "A leak."))
        begins(self, step)

    monkeypatch.setattr(BottomTraining, "backward", leaking)
    monkeypatch.setattr(Metrics, "begins", beginning)
    assert figures_of_lab(tmp_path / "half", HALF, "none") != figures_of_lab(tmp_path / "rare", RARE, "none")


def scraped(process: Background) -> str:
    """What the endpoint says that a party has announced."""
    words = process.await_words("figures for Prometheus at http")
    url = re.search(r"http://\S+/metrics", words)
    assert url is not None
    with urllib.request.urlopen(url[0], timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        text: str = response.read().decode()
    return text


def await_value(process: Background, *key: str, above: float, timeout: float = 60) -> Values:
    deadline = time.monotonic() + timeout
    while (found := values(scraped(process))).get(key, -1.0) <= above:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
    return found


@pytest.mark.slow
def test_processes_can_be_scraped_and_show_for_whom_they_wait(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    endpoint = {"metrics": {"listen": "127.0.0.1:0"}}
    run = changed(BREAST_CANCER, {"job.epochs": 100_000})
    for section in (run["label_party"], run["nonlabel_parties"]["lab"]):
        section |= endpoint | {"id_secret": SECRET}
    path = write(tmp_path, run)
    with Background("label-party", path, "--listen", address, "--out", tmp_path / "out") as label_party:
        found = await_value(label_party, "cutlayer_waiting_seconds", "lab", above=2.9)
        assert found["cutlayer_parties_waited_for",] == 1
        assert 500 < found["cutlayer_waiting_left_seconds", "lab"] < 600
        label_party.await_words("waiting for lab (not there yet; ")
        options = ("--name", "lab", "--connect", address, "--out", tmp_path / "out")
        with Background("nonlabel-party", path, *options) as lab:
            assert await_value(lab, "cutlayer_step", above=10)[
                "cutlayer_received_bytes_total", "gradients", "label_party"
            ]
            assert families(scraped(lab)) == ANY_PARTYS
            found = await_value(label_party, "cutlayer_step", above=10)
            assert found["cutlayer_parties_waited_for",] == 0
            assert found["cutlayer_connected_parties",] == 1
            label_party.process.terminate()
            for process in (label_party, lab):
                process.finish()
