"""The page of promises and the tests that hold them speak of the same promises, and of files that have such tests."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (P\d\d) \| .* \| (.*) \|$", (ROOT / "docs/promises.md").read_text(), re.MULTILINE)


@cache
def held_in() -> dict[str, set[Path]]:
    """Promise -> the files with a test that names it."""
    files: dict[str, set[Path]] = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            for promise in re.findall(r"P\d\d(?=_|$)", name):
                files.setdefault(promise, set()).add(file)
    return files


def test_all_promises_are_on_the_page() -> None:
    assert [promise for promise, _ in ROWS] == [f"P{number:02}" for number in range(1, 22)]
    assert held_in().keys() == {promise for promise, _ in ROWS}


@pytest.mark.parametrize(("promise", "held_by"), ROWS)
def test_files_of_a_promise_have_tests_of_it(promise: str, held_by: str) -> None:
    linked = [ROOT / "docs" / target for target in re.findall(r"\]\(([^)]+\.py)\)", held_by)]
    assert linked
    assert {file.resolve() for file in linked} <= held_in()[promise]
