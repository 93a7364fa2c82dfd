"""Names of plugins: the only way by which a run file makes a defense, an attack, a model or a data source.

A plugin is a dataclass. Its fields are its options, so that the run file, `repr`, `run.json` and
`cutlayer list` all speak of the same thing.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from cutlayer.common.errors import PluginError
from cutlayer.common.limits import refuse_switch
from cutlayer.common.wording import explain

T = TypeVar("T")


class Registry(Generic[T]):
    """The plugins of one kind.

    Args:
        kind: what a message calls one of them, such as `defense`.
        group: entry-point group by which other packages add theirs, such as `cutlayer.defenses`.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self._group = group
        self._classes: dict[str, type[T]] = {}
        self._entry_points_loaded = False

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator that adds a plugin under `name`; a name taken by another class is an error."""

        def add(cls: type[T]) -> type[T]:
            if self._classes.setdefault(name, cls) is not cls:
                raise PluginError(f"{self.kind} {name!r} is registered twice: {self._classes[name]} and {cls}")
            return cls

        return add

    def names(self) -> list[str]:
        """All known names, sorted; loads the plugins of other packages."""
        self._load_entry_points()
        return sorted(self._classes)

    def get(self, name: str) -> type[T]:
        """The class behind a registered name or a `package.module:attribute`.

        Raises:
            PluginError: there is none, or it cannot be imported.
        """
        if ":" in name:
            found: type[T] = import_attribute(name)
            return found
        self._load_entry_points()
        if name not in self._classes:
            raise PluginError(
                f"unknown {self.kind} {name!r}; there are: {', '.join(sorted(self._classes))}, "
                "or your own as package.module:Class"
            )
        return self._classes[name]

    def create(self, name: str, options: Mapping[str, Any]) -> T:
        """Make the plugin `name`; options are validated against its dataclass fields.

        Raises:
            PluginError: unknown name, unknown option, or an option of the wrong type or value.
        """
        cls = self.get(name)
        if not dataclasses.is_dataclass(cls):
            raise PluginError(f"{self.kind} {name!r} is {cls!r}, expected a dataclass")
        options_of = {f.name for f in dataclasses.fields(cls) if f.init}
        for wrong in sorted(options.keys() - options_of):
            has = ", ".join(sorted(options_of)) or "none"
            raise PluginError(f"{self.kind} {name!r} has no option {wrong!r}; it has: {has}")
        hints = get_type_hints(cls, include_extras=True)
        checked = {key: self._checked(name, key, hints[key], value) for key, value in options.items()}
        try:
            return cls(**checked)
        except (TypeError, ValueError) as error:
            raise PluginError(f"{self.kind} {name!r}: {error}") from error

    def _checked(self, name: str, key: str, hint: Any, value: Any) -> Any:
        try:
            return TypeAdapter(Annotated[hint, WrapValidator(_number)]).validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join([key, *map(str, first["loc"])])
            raise PluginError(f"{self.kind} {name!r}, option {where}: {explain(first)}") from error

    def _load_entry_points(self) -> None:
        if self._entry_points_loaded:
            return
        self._entry_points_loaded = True
        for point in entry_points(group=self._group):
            try:
                self.register(point.name)(point.load())
            except PluginError:
                raise
            except Exception as error:
                raise PluginError(f"{self.kind} {point.name!r} ({point.value}) cannot be loaded: {error}") from error


def _number(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """An option of whatever kind; where that is a number, true and false are none."""
    found = validate(value)
    if isinstance(found, int | float) and not isinstance(found, bool):
        refuse_switch(value)
    return found


def import_attribute(path: str) -> Any:
    """The object behind `package.module:attribute`.

    Raises:
        PluginError: the module or the attribute does not exist, or importing it failed.
    """
    module_name, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except Exception as error:
        raise PluginError(f"cannot load {path!r} (package.module:attribute): {error}") from error
