"""What pydantic finds wrong with a value, in words for a person who has never heard of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WHOLE, _NUMBER, _SWITCH = "expected a whole number", "expected a number", "expected true or false"
_LIST, _SECTION = "expected a list", "expected keys with values"
_WORDS = {
    "missing": "is missing; it has no default",
    "extra_forbidden": "unknown key; see docs/run-file.md for the keys of this section",
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_type": _WHOLE,
    "int_from_float": _WHOLE,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "finite_number": "expected a finite number",
    "bool_parsing": _SWITCH,
    "bool_type": _SWITCH,
    "string_type": "expected a text",
    "path_type": "expected a path",
    "tuple_type": _LIST,
    "list_type": _LIST,
    "dict_type": _SECTION,
    "model_type": _SECTION,
    "literal_error": "expected {expected}",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "too_short": "expected a list of at least {min_length}",
}
_SHOWN = 60  # characters of a wrong value
_OURS = ("value_error", "missing", "extra_forbidden")  # say all there is to say


def explain(error: Mapping[str, Any]) -> str:
    """One of the errors of a `ValidationError`: what is expected, and what is there. Secrets are not shown."""
    if error["loc"] and error["loc"][-1] == "[key]":
        return "a name must be a text: write it in quotes"
    context = {key: _plain(value) for key, value in error.get("ctx", {}).items()}
    words = _WORDS[error["type"]].format_map(context) if error["type"] in _WORDS else str(error["msg"])
    words = words.removeprefix("Value error, ")
    value = error["input"]
    if error["type"] in _OURS or "secret" in str(error["loc"]) or not isinstance(value, str | int | float):
        return words
    return f"{words}, got {value if isinstance(value, bool) else repr(value)[:_SHOWN]}"


def _plain(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{int(value):,}" if value == int(value) else f"{value:g}"
    return value
