"""What programs and people rely on to stay: the help of each command, exit statuses, the keys of summary.json.

RECORD_GOLDEN=1 writes tests/golden/texts anew, after a change that is meant.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from support.golden import GOLDEN, NAMES, begin_from_checkpoints
from support.runs import BREAST_CANCER, changed, write
from typer.testing import CliRunner

from cutlayer.cli import app
from cutlayer.summary import merge

TEXTS = GOLDEN / "texts"
runner = CliRunner()


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, of the program itself first."""
    yield words
    for name, child in sorted(getattr(command, "commands", {}).items()):
        yield from commands(child, (*words, name))


COMMANDS = list(commands(typer.main.get_command(app)))


def require_as_recorded(name: str, text: str) -> None:
    file = TEXTS / f"{name}.txt"
    if os.environ.get("RECORD_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def in_lines_of_words(text: str) -> str:
    """`text` without what depends on the width of the terminal: a line for each paragraph or option."""
    paragraphs: list[list[str]] = [[]]
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("-"):
            paragraphs.append([])
        paragraphs[-1] += line.split()
    return "".join(" ".join(words) + "\n" for words in paragraphs if words)


@pytest.mark.parametrize("words", COMMANDS, ids="-".join)
def test_P21_the_help_is_as_recorded(words: tuple[str, ...]) -> None:
    result = runner.invoke(app, [*words, "--help"], prog_name="cutlayer", env={"COLUMNS": "80"})
    assert result.exit_code == 0
    require_as_recorded("-".join(("help", *words)), in_lines_of_words(result.output))


def test_P21_no_command_has_gone() -> None:
    assert {"-".join(("help", *words)) for words in COMMANDS} == {file.stem for file in TEXTS.glob("help*.txt")}


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["--version"], 0),
        (["list", "defenses"], 0),
        (["check", "run.yaml"], 0),
        (["nonlabel-party", "run.yaml", "--name", "lab", "--connect", "127.0.0.1:9"], 1),
        (["check", "missing.yaml"], 2),
        (["nonlabel-party", "run.yaml", "--name", "nobody"], 2),
        (["run", "--nonsense"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_P21_exit_statuses(arguments: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUTLAYER_ID_SECRET", "tests share this")
    write(tmp_path, changed(BREAST_CANCER, {"nonlabel_parties.lab.timeouts": {"connect_s": 0.2}}))
    result = runner.invoke(app, arguments)
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output


def shape(value: Any, path: str = "") -> Iterator[str]:
    """A line for each key: where it is, and what type its value has."""
    if isinstance(value, dict) and value:
        for key, child in sorted(value.items()):
            yield from shape(child, f"{path}.{key}" if path else key)
    else:
        kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
        yield f"{path}: {kind}\n"


@pytest.mark.parametrize("name", NAMES)
def test_P21_the_keys_of_the_summary_are_as_recorded(name: str, tmp_path: Path) -> None:
    out = begin_from_checkpoints(name, tmp_path).wait().require_success().out
    summary = merge(out)
    assert json.loads((out / "summary.json").read_text()) == summary
    assert summary["schema"] == 1
    require_as_recorded(f"summary-{name}", "".join(shape(summary)))
