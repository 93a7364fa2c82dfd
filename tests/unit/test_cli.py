"""cutlayer/cli.py and catalogue.py: commands, options, exit statuses, and a quick --help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cutlayer import __version__
from cutlayer.catalogue import catalogue
from cutlayer.cli import app, main
from cutlayer.common.datasets import datasets
from cutlayer.label_party.defenses import defenses
from cutlayer.nonlabel_party.attacks import attacks

runner = CliRunner()
COMMANDS = ("run", "label-party", "nonlabel-party", "check", "list")


def test_help_names_every_command() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_verbose(name: str) -> None:
    result = runner.invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert "--verbose" in result.output
    assert "--events" not in result.output


@pytest.mark.parametrize(
    ("name", "options"), [("run", ["--out"]), ("label-party", ["--out", "--listen"]), ("check", ["--name"])]
)
def test_options_of_commands(name: str, options: list[str]) -> None:
    output = runner.invoke(app, [name, "--help"]).output
    assert [option for option in options if option not in output] == []


def test_version() -> None:
    result = runner.invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"cutlayer {__version__}\n")


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["run"], ["run", "a", "b"], ["run", "--nonsense"], ["list", "nonsense"], []]
)
def test_a_wrong_command_line_is_the_users_error(arguments: list[str]) -> None:
    assert runner.invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize("name", ["run", "label-party", "check", "nonlabel-party"])
def test_a_missing_file_is_the_users_error(name: str, tmp_path: Path) -> None:
    party = ["--name", "lab"] if name == "nonlabel-party" else []
    result = runner.invoke(app, [name, str(tmp_path / "missing.yaml"), *party])
    assert result.exit_code == 2
    assert "missing.yaml: cannot be read" in result.stderr
    assert "Traceback" not in result.output


def test_commands_that_only_start_others_load_no_library_of_numbers() -> None:
    """Nor does --help wait for one."""
    code = """
import sys
from cutlayer import certs_commands, cli, local, tuning
print({"torch", "pyarrow", "pandas", "scipy", "sklearn", "plotly"} & set(sys.modules))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_plugins_in_the_working_folder_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != ""])
    monkeypatch.setattr(sys, "argv", ["cutlayer", "--version"])
    with pytest.raises(SystemExit):
        main()
    assert sys.path[-1] == str(tmp_path)
    assert "cutlayer" in capsys.readouterr().out


def test_list_has_every_plugin_with_its_paper() -> None:
    result = runner.invoke(app, ["list"])
    assert result.exit_code == 0
    for registry in (defenses, attacks):
        for name in registry.names():
            plugin = registry.get(name)
            assert (
                f"\n  {name}: {str(plugin.__doc__).partition(chr(10))[0]}\n      paper: {plugin.paper}" in result.output
            )


@pytest.mark.parametrize(
    ("family", "titles"),
    [
        ("defenses", ["defenses"]),
        ("attacks", ["attacks"]),
        ("models", ["bottom models", "top models"]),
        ("datasets", ["data sources"]),
    ],
)
def test_list_of_one_family(family: str, titles: list[str]) -> None:
    output = runner.invoke(app, ["list", family]).output
    assert [line for line in output.splitlines() if line and not line.startswith(" ")] == titles


def test_options_of_which_one_is_given_say_what_holds_where_none_is() -> None:
    lines = catalogue("defenses").splitlines()
    assert "      one of: scale (1 if none is given), power, max_leak_auc" in lines
    assert "      one of: t (1 if none is given), ratio" in lines
    assert "      options: {model: uv}" in lines
    assert [line for line in lines if "null" in line] == []


def test_needs_and_options_of_a_plugin_are_as_in_a_run_file() -> None:
    needs, options = catalogue("datasets").partition("  csv: ")[2].splitlines()[1:3]
    assert needs == "      needs: path"
    defaults = yaml.safe_load(options.partition("options: ")[2])
    assert isinstance(datasets.create("csv", {"path": "any.csv", **defaults}), datasets.get("csv"))
