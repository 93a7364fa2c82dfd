"""Reads a run file: YAML, then the models of `common/config.py`, then paths relative to the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cutlayer.common.config import LabelPartySection, PartySection, RunFile, TlsFiles
from cutlayer.common.errors import ConfigError
from cutlayer.common.wording import explain


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that occurs twice in a section, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} occurs twice", key_node.start_mark
                )
            if isinstance(key, str):
                seen.add(key)
        return super().construct_mapping(node, deep)


def load(path: Path) -> RunFile:
    """Read and validate a run file; relative paths in it are taken from the file's folder.

    Raises:
        ConfigError: unreadable, not YAML, or wrong; the message names the file, the key and what is expected.
    """
    return validate(read(path, "sections such as `job:`"), str(path), path.resolve().parent)


def read(path: Path, expected: str) -> dict[str, Any]:
    """What the YAML file `path` has, which must be a mapping; `expected` says of what.

    Raises:
        ConfigError: unreadable, not YAML, or no mapping.
    """
    try:
        raw = yaml.load(path.read_text(encoding="utf-8-sig"), _UniqueKeys)  # noqa: S506 - a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid YAML: {_yaml_problem(error)}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected {expected}, got {type(raw).__name__}")
    return raw


def validate(raw: dict[str, Any], where: str, folder: Path) -> RunFile:
    """The run file that `raw` is; relative paths in it are taken from `folder`, which is absolute.

    Raises:
        ConfigError: it is wrong; each line of the message begins with `where` and the key.
    """
    try:
        run_file = RunFile.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(*_problems(where, error)) from error
    return _resolve_paths(run_file, folder)


def _problems(where: str, error: ValidationError) -> list[str]:
    found, places = [], [item["loc"] for item in error.errors(include_url=False)]
    for item in error.errors(include_url=False):
        if item["type"] == "too_short" and any(place[:-1] == item["loc"] for place in places):
            continue  # only because of what is wrong with its entries
        key = ".".join(str(part) for part in item["loc"] if part != "[key]")
        found.append(": ".join([where, *([key] if key else []), explain(item)]))
    return found


def _yaml_problem(error: yaml.YAMLError | RecursionError) -> str:
    """What is wrong, and where, in one line."""
    if isinstance(error, RecursionError):
        return "sections are nested too deep"
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _resolve_paths(run_file: RunFile, folder: Path) -> RunFile:
    def located(section: PartySection) -> dict[str, Any]:
        update: dict[str, Any] = {}
        if isinstance(path := section.data.options.get("path"), str):
            update["data"] = section.data.model_copy(update={"path": str(folder / path)})
        if section.tls:
            update["tls"] = TlsFiles(**{name: folder / path for name, path in section.tls})
        if isinstance(section, LabelPartySection) and section.noise_secret:
            update["noise_secret"] = folder / section.noise_secret
        return update

    label = run_file.label_party
    return run_file.model_copy(
        update={
            "label_party": label and label.model_copy(update=located(label)),
            "nonlabel_parties": {
                name: section.model_copy(update=located(section)) for name, section in run_file.nonlabel_parties.items()
            },
        }
    )
