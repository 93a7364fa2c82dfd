"""docs/operations.md: every figure is described, every message is one that the program has, the examples are whole."""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

import pytest
import yaml

from cutlayer.common.config import RunFile
from cutlayer.common.metrics import Metrics
from cutlayer.label_party.metrics import LabelPartyMetrics

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
SOURCES = [
    path for name in ("common", "label_party", "nonlabel_party", "cutlayer") for path in (ROOT / name).rglob("*.py")
]


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```$", PAGE, re.MULTILINE | re.DOTALL)
    return [re.sub(r"^   ", "", block, flags=re.MULTILINE) if block.startswith("   ") else block for block in found]


def rows(heading: str) -> list[list[str]]:
    """The tables below a heading, without their heads."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line] for line in lines]


def names(metrics: Metrics) -> set[str]:
    """As they are scraped."""
    found = set()
    for family in metrics.registry.collect():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        found.add(family.name + suffix)
    return {name for name in found if name.startswith("cutlayer_")}


def test_every_figure_is_in_the_tables() -> None:
    described = {name for row in rows("Metrics") for name in re.findall(r"`(cutlayer_\w+)`", row[0])}
    label_party = LabelPartyMetrics("job", "label_party")
    label_party.watch(lambda: 0, lambda: 0)
    assert described == names(label_party) | {"cutlayer_certificate_expiry_timestamp_seconds"}
    private = {name for name in described if name not in names(Metrics())}
    alone = PAGE.partition("The label party alone has")[2].partition("Worth an alert")[0]
    assert all((name in alone) == (name in private) for name in described if "certificate" not in name)


def literals() -> str:
    """All texts in the sources, each between line ends; what is filled in when they are shown is missing."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES]
    return "\n".join(
        node.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_every_message_is_one_of_the_program() -> None:
    texts = literals()
    table = rows("What it says, and what to do")
    assert len(table) > 20
    for message, *_ in table:
        shown = re.findall(r"`((?:[^`]|``)+)`", message)
        for part in (part.replace("``", "`") for text in shown for part in text.split("...")):
            assert part.strip(" ") in texts, part


def test_the_run_files_are_valid_and_mean_the_same_job() -> None:
    files = [RunFile.model_validate(yaml.safe_load(block)) for block in blocks("yaml") if "job: {" in block]
    assert len(files) == 2
    assert files[0].job.digest() == files[1].job.digest()


def test_the_unit_restarts_only_what_may_do_better() -> None:
    (text,) = blocks("ini")
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign, assignment]
    unit.read_string(text)
    assert unit["Service"]["RestartPreventExitStatus"] == "2"
    assert "label-party run.yaml" in unit["Service"]["ExecStart"]


@pytest.mark.parametrize("event", ["message", "listening", "waiting", "going_on", "reconnected", "done", "end"])
def test_every_event_of_the_log_is_described(event: str) -> None:
    assert f"`{event}`" in {row[0] for row in rows("The log")}
    assert re.search(rf'"{event}"', (ROOT / "common/telemetry.py").read_text(encoding="utf-8"))
