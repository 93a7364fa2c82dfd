"""The documentation names things that exist: links, functions, plugins, keys and run files."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from cutlayer.common.config import Capture, LabelPartySection, NonlabelPartySection, Optimizer, RunFile
from cutlayer.common.datasets import datasets
from cutlayer.common.job import CutLayer, GrantedKnowledge, Job
from cutlayer.common.limits import Timeouts
from cutlayer.common.models import bottom_models, top_models
from cutlayer.common.registry import Registry
from cutlayer.common.run_files import load
from cutlayer.label_party.defenses import defenses
from cutlayer.nonlabel_party.attacks import attacks
from cutlayer.sweep import plan

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")])
RUN_FILE_PAGE = (ROOT / "docs/run-file.md").read_text(encoding="utf-8")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def shown(name: str) -> bool:
    """Whether the page of the run file has `name` as code."""
    return re.search(rf"`(?:[\w.<>]+\.)?{re.escape(name)}(?:\.[\w.<>]+)?`", RUN_FILE_PAGE) is not None


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_the_walk_names_functions_of_the_files_it_links() -> None:
    named = re.findall(r"\[`([\w.]+)`\]\(([\w/]+\.py)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(named) >= 9
    for function, file in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert set(function.split(".")) <= defined, (function, file)


def test_the_pages_tell_the_patience_that_parties_have() -> None:
    default = Timeouts()
    assert (default.connect_s, default.connect_s + default.reconnect_s) == (600, 1200)
    assert default.stall_s + default.reconnect_s == 900
    for page in ("README.md", "docs/operations.md"):
        text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert re.search(r"ten minutes \(`timeouts.connect_s`\).{,90}connected.{,20}waits for twenty", text), page
    assert "with the defaults 15 and 20 minutes" in (ROOT / "docs/protocol.md").read_text().replace("\n", " ")


@every_page
def test_python_examples_can_be_compiled(page: Path) -> None:
    for code in blocks(page, "python"):
        compile(code, str(page), "exec")


def test_the_complete_run_file_of_the_readme_is_valid() -> None:
    (text,) = blocks(ROOT / "README.md", "yaml")
    RunFile.model_validate(yaml.safe_load(text))


@pytest.mark.parametrize("file", sorted(ROOT.glob("examples/**/*.yaml")), ids=lambda file: str(file.relative_to(ROOT)))
def test_examples_are_valid_run_files_and_sweeps(file: Path) -> None:
    if file.parent.name == "sweeps":
        assert plan.load(file).runs
    else:
        load(file)


@pytest.mark.parametrize("folder", ["default_credit/two-hosts", "docker/two-party", "docker/three-party"])
def test_the_parties_files_of_an_example_mean_the_same_job(folder: str) -> None:
    digests = [load(file).job.digest() for file in (ROOT / "examples" / folder).glob("*.yaml")]
    assert len(digests) > 1
    assert len(set(digests)) == 1


@pytest.mark.parametrize(
    "section", [Job, CutLayer, GrantedKnowledge, LabelPartySection, NonlabelPartySection, Capture, Optimizer, Timeouts]
)
def test_every_key_of_the_run_file_is_described(section: type[BaseModel]) -> None:
    assert [key for key in section.model_fields if not shown(key)] == []


@pytest.mark.parametrize("registry", [defenses, attacks, bottom_models, top_models, datasets], ids=lambda r: r.kind)
def test_every_plugin_and_option_is_described(registry: Registry[object]) -> None:
    built_in = [name for name in registry.names() if registry.get(name).__module__.startswith("cutlayer.")]
    assert built_in
    for name in built_in:
        assert shown(name), name
        options = [field.name for field in dataclasses.fields(registry.get(name)) if field.init]  # type: ignore[arg-type]
        assert [option for option in options if not shown(option)] == [], name
