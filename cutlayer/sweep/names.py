"""Names for the runs of a sweep: readable, the same at every call, and fit for a folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST = 120
_UNFIT = re.compile(r"[^A-Za-z0-9._+=,-]+")


def name_runs(choices: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each run, from what is varied in it, axis -> value: `defense=marvell-scale-4,seed=1`.

    Adding values to an axis leaves the names as they were. Names that are too long, or that two runs would share,
    end with a digest of the values.
    """
    short = _shortened(list(choices[0])) if choices else {}
    plain = [",".join(f"{short[axis]}={_text(value)}" for axis, value in run.items()) for run in choices]
    fit = [_UNFIT.sub("-", name) for name in plain]
    counts = Counter(fit)
    return [
        name if counts[name] == 1 and len(name) <= _LONGEST else f"{name[:_LONGEST]}-{_digest(run)}"
        for name, run in zip(fit, choices, strict=True)
    ]


def canonical(value: Any) -> str:
    """`value` as JSON, the same for equal values."""
    return json.dumps(value, sort_keys=True, default=str)


def _shortened(axes: Sequence[str]) -> dict[str, str]:
    """Each axis by as many of its last names as tell it from the others."""
    found = {}
    for axis in axes:
        parts = axis.split(".")
        tails = [".".join(parts[-n:]) for n in range(1, len(parts) + 1)]
        found[axis] = next(tail for tail in tails if sum(f".{other}".endswith(f".{tail}") for other in axes) == 1)
    return found


def _text(value: Any) -> str:
    if isinstance(value, dict):
        rest = {key: one for key, one in value.items() if key != "name"}
        first = [str(value["name"])] if "name" in value else []
        return "-".join(first + [f"{key}-{_text(one)}" for key, one in rest.items()]) or "empty"
    if isinstance(value, list):
        return "+".join(map(_text, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "default" if value is None else str(value)


def _digest(run: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical(run).encode()).hexdigest()[:8]
