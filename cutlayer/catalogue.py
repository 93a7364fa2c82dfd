"""What a run file can name: defenses, attacks, models and data sources, with their papers and options."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel

from cutlayer.common.datasets import datasets
from cutlayer.common.models import bottom_models, top_models
from cutlayer.common.registry import Registry
from cutlayer.label_party.defenses import defenses
from cutlayer.nonlabel_party.attacks import attacks

_FAMILIES: dict[str, dict[str, Registry[Any]]] = {
    "defenses": {"defenses": defenses},
    "attacks": {"attacks": attacks},
    "models": {"bottom models": bottom_models, "top models": top_models},
    "datasets": {"data sources": datasets},
}


def catalogue(family: str | None = None) -> str:
    """All plugins, or those of one of the families defenses, attacks, models, datasets, as text.

    Raises:
        PluginError: a plugin of another package cannot be loaded.
    """
    chosen = _FAMILIES if family is None else {family: _FAMILIES[family]}
    sections = [
        "\n".join([title, *(line for name in registry.names() for line in _entry(name, registry.get(name)))])
        for registries in chosen.values()
        for title, registry in registries.items()
    ]
    return "\n\n".join(sections)


def _entry(name: str, plugin: type[Any]) -> Iterator[str]:
    yield f"  {name}: {(inspect.getdoc(plugin) or '').partition(chr(10))[0]}"
    if paper := getattr(plugin, "paper", None):
        yield f"      paper: {paper}"
    if knowledge := getattr(plugin, "needs", None):
        yield f"      knowledge: {', '.join(sorted(knowledge))}"
    fields = [field for field in dataclasses.fields(plugin) if field.init] if dataclasses.is_dataclass(plugin) else []
    if needed := [field.name for field in fields if _is_required(field)]:
        yield f"      needs: {', '.join(needed)}"
    if one_of := getattr(plugin, "one_of", None):
        yield f"      one of: {', '.join(_alternative(*option) for option in one_of.items())}"
    chosen = [field for field in fields if not _is_required(field) and field.name not in (one_of or {})]
    if defaults := {field.name: _default(field) for field in chosen}:
        yield f"      options: {_as_yaml(defaults)}"


def _alternative(option: str, where_none: float | None) -> str:
    return option if where_none is None else f"{option} ({where_none:g} if none is given)"


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True) if isinstance(value, BaseModel) else str(value)


def _as_yaml(options: dict[str, Any]) -> str:
    """The options as one would write them in a run file."""
    plain = json.loads(json.dumps(options, default=_plain))  # tuples become lists
    return yaml.safe_dump(plain, default_flow_style=True, sort_keys=False, width=float("inf")).strip()
