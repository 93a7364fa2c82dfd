"""Which column of a file is the id, the label, a feature, or left out."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cutlayer.common.errors import DataError
from cutlayer.common.tables import listed

Reference = str | int  # a column's name or position
Kind = Literal["numeric", "categorical"]

_KINDS: dict[str | None, Kind] = {"numeric": "numeric", "categorical": "categorical"}

# Row numbers that programs leave in files: ours for a column without a name, and pandas' names.
_INDEX_COLUMN = re.compile(r"unnamed_\d+|Unnamed: \d+|__index_level_\d+__")


@dataclass(frozen=True)
class Roles:
    """What the columns are for.

    Attributes:
        id: column that names the rows; None where rows are named by their number.
        label: column of the labels.
        features: the other columns in use; None where the kind follows from the values.
        notes: what a person should know.
    """

    id: str | None
    label: str | None
    features: Mapping[str, Kind | None]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """What the run file says of the columns; see `TableFile`."""

    id: Reference | None
    label: Reference | None
    numeric: Sequence[Reference] | None
    categorical: Sequence[Reference] | None
    drop: Sequence[Reference]

    def by_role(self) -> dict[str, Sequence[Reference]]:
        """The columns named under each key."""
        return {
            "id": () if self.id is None else (self.id,),
            "label": () if self.label is None else (self.label,),
            "numeric": self.numeric or (),
            "categorical": self.categorical or (),
            "drop": self.drop,
        }

    def names(self) -> set[str]:
        """The columns that are named by their header."""
        return {tidy(reference) for of in self.by_role().values() for reference in of if isinstance(reference, str)}


def tidy(name: str) -> str:
    """A column name as it is compared: without spaces around, in Unicode normal form C."""
    return unicodedata.normalize("NFC", name.strip())


def assign_roles(names: Sequence[str], wanted: Wanted, origin: str) -> Roles:
    """Give every column its role.

    Raises:
        DataError: a column does not exist, a name occurs twice, or a column is to have two roles.
    """
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{origin}: more than one column is called {listed(repeated)}; give each its own name")
    role_of = _named_roles(names, wanted, origin)
    if "id" not in role_of.values():
        role_of |= dict.fromkeys([name for name in names if name.lower() == "id" and name not in role_of][:1], "id")
    features, left_out = _features(names, role_of, wanted)
    by_role = {role: name for name, role in role_of.items() if role in ("id", "label")}
    notes = []
    if "id" not in by_role:
        notes.append(f"{origin}: no id column; rows are named by their number from 0, name a column with `id: ...`")
    if left_out:
        notes.append(f"{origin}: columns left out: {listed(left_out)}")
    return Roles(by_role.get("id"), by_role.get("label"), features, tuple(notes))


def _named_roles(names: Sequence[str], wanted: Wanted, origin: str) -> dict[str, str]:
    """The key under which the run file names each column that it names."""
    role_of: dict[str, str] = {}
    for role, references in wanted.by_role().items():
        for reference in references:
            name = _resolve(reference, names, f"{origin}, `{role}`")
            if (other := role_of.setdefault(name, role)) != role:
                raise DataError(f"{origin}: column {name!r} is under `{other}` and under `{role}`; write it under one")
    return role_of


def _resolve(reference: Reference, names: Sequence[str], where: str) -> str:
    if isinstance(reference, int):
        if not -len(names) <= reference < len(names):
            raise DataError(f"{where}: there is no column {reference}; the {len(names)} columns are counted from 0")
        return names[reference]
    if (name := tidy(reference)) in names:
        return name
    close = difflib.get_close_matches(name.lower(), [n.lower() for n in names], n=1)
    meant = next((f"; did you mean {n!r}?" for n in names if [n.lower()] == close), "")
    raise DataError(f"{where}: there is no column {name!r}; there are {listed(names, 20)}{meant}")


def _features(
    names: Sequence[str], role_of: Mapping[str, str], wanted: Wanted
) -> tuple[dict[str, Kind | None], list[str]]:
    """The feature columns in file order, and the columns that are left out without being told so."""
    features: dict[str, Kind | None] = {}
    left_out = []
    only_listed = wanted.numeric is not None and wanted.categorical is not None
    for name in names:
        role = role_of.get(name)
        if role in _KINDS:
            features[name] = _KINDS[role]
        elif role is None and (only_listed or _INDEX_COLUMN.fullmatch(name)):
            left_out.append(name)
        elif role is None:
            features[name] = None
    return features, left_out
