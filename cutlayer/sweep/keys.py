"""Dotted keys of a run file, such as `label_party.defense`: which there are, and setting what is at one."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from cutlayer.common.config import RunFile

Tree = dict[str, Any]


def put(tree: Tree, key: str, value: Any) -> None:
    """Set what is at `key` in `tree`; None takes it out. A plugin given by its name alone becomes a mapping on the way.

    A name with dots in it is found where `tree` has it.
    """
    first, rest = _split(tree, key)
    if not rest:
        tree.pop(first, None)
        if value is not None:
            tree[first] = value
        return
    below = tree.get(first)
    tree[first] = {"name": below} if isinstance(below, str) else below if isinstance(below, dict) else {}
    put(tree[first], rest, value)


def get(tree: Any, key: str) -> Any:
    """What is at `key` in `tree`; None where there is nothing."""
    for part in key.split("."):
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


def problem_of(key: str, parties: Sequence[str]) -> str | None:
    """Why `key` is no key of a run file of these non-label parties, and what may be meant; None if it is one."""
    if _fits(RunFile, key, parties):
        return None
    near = _nearest(key, parties)
    return f"no key of a run file{f'; did you mean {near}?' if near else '; docs/run-file.md has all keys'}"


def _split(tree: Tree, key: str) -> tuple[str, str]:
    """The first name of `key` and the rest; the longest that `tree` has, as names may have dots in them."""
    parts = key.split(".")
    lengths = range(len(parts), 0, -1)
    length = next((n for n in lengths if ".".join(parts[:n]) in tree), 1)
    return ".".join(parts[:length]), ".".join(parts[length:])


def _fits(model: type[BaseModel], key: str, parties: Sequence[str]) -> bool:
    name, _, rest = key.partition(".")
    if name not in model.model_fields:
        return model.model_config.get("extra") == "allow" and name != ""
    below, by_party = _below(model.model_fields[name].annotation)
    if not rest:
        return True
    if by_party:
        names = [one for one in (*parties, "label_party") if rest == one or rest.startswith(f"{one}.")]
        if not names:
            return False
        rest = rest[len(max(names, key=len)) + 1 :]
    return not rest or (below is not None and _fits(below, rest, parties))


def _below(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The section that a field of this type holds, if it does, and whether it holds one for each party."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    parts, by_party = get_args(annotation), get_origin(annotation) is dict
    if not by_party and type(None) not in parts:  # a list, say: its elements have no keys of their own
        return None, False
    return next((section for section, _ in map(_below, parts) if section), None), by_party


def _nearest(key: str, parties: Sequence[str]) -> str | None:
    known = list(_known(RunFile, parties))
    if near := difflib.get_close_matches(key, known, 1, 0.75):
        return near[0]
    last = {path.rpartition(".")[2]: path for path in reversed(known)}
    near = difflib.get_close_matches(key.rpartition(".")[2], list(last), 1, 0.75)
    return last[near[0]] if near else None


def _known(model: type[BaseModel], parties: Sequence[str]) -> Iterator[str]:
    """Every key that is written down in the models, the shortest first within a section."""
    for name, field in model.model_fields.items():
        below, by_party = _below(field.annotation)
        yield name
        for start in [f"{name}.{party}" for party in parties] if by_party else [name]:
            if by_party:
                yield start
            yield from (f"{start}.{rest}" for rest in _known(below, parties)) if below else ()
