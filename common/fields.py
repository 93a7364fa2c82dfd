"""Kinds of values in a run file: what they may be, and what is said of others."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from cutlayer.common.errors import ConfigError
from cutlayer.common.limits import MAX_DURABLE_STEPS, MAX_LABELLED_ROWS, MAX_ROWS, MAX_WIDTH, NUMBER

_MAX_PORT = 65535
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):(\d{1,5})")
_SHOWN = 60  # characters of a wrong value


def require_address(text: str) -> str:
    """`text`, if it is host:port; ValueError otherwise."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError(f"expected host:port, as 127.0.0.1:50051 or [::1]:50051, got {text[:_SHOWN]!r}")
    if int(found[2]) > _MAX_PORT:
        raise ValueError(f"expected a port from 0 to {_MAX_PORT}, got {found[2]}")
    return text


def given_address(option: str, text: str | None) -> str | None:
    """What an option of a command gives; ConfigError unless it is host:port."""
    try:
        return text and require_address(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from error


def _name(length: int) -> AfterValidator:
    form = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{length - 1}}}")

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(
                f"expected a name of up to {length} letters, digits and the signs _ . -, the first a letter or digit, "
                f"got {text[:_SHOWN]!r}"
            )
        return text

    return AfterValidator(check)


def _scalar(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool | None):
        raise ValueError("expected a text, a number, true or false")
    return value


PartyName = Annotated[str, _name(64)]
JobName = Annotated[str, _name(100)]
Address = Annotated[str, AfterValidator(require_address)]
Scalar = Annotated[str | int | float | bool | None, BeforeValidator(_scalar)]

# The upper bounds are far above what is of use, and below what makes a computation overflow or never end.
Epochs = Annotated[int, Field(ge=1, le=1_000_000), NUMBER]
Rows = Annotated[int, Field(ge=1, le=MAX_ROWS), NUMBER]
Width = Annotated[int, Field(ge=1, le=MAX_WIDTH), NUMBER]
Classes = Annotated[int, Field(ge=2, le=MAX_WIDTH), NUMBER]
Seed = Annotated[int, Field(ge=0, lt=1 << 63), NUMBER]
Threads = Annotated[int, Field(ge=1, le=1024), NUMBER]
Count = Annotated[int, Field(ge=0, le=1_000_000), NUMBER]
Steps = Annotated[int, Field(ge=1, le=1_000_000_000), NUMBER]
LabelledRows = Annotated[int, Field(ge=0, le=MAX_LABELLED_ROWS), NUMBER]
Megabytes = Annotated[int, Field(ge=1, le=1_000_000_000), NUMBER]
Kept = Annotated[int, Field(ge=2, le=MAX_DURABLE_STEPS), NUMBER]
LearningRate = Annotated[float, Field(gt=0, le=1000), NUMBER]
Momentum = Annotated[float, Field(ge=0, le=1), NUMBER]
WeightDecay = Annotated[float, Field(ge=0, le=1000), NUMBER]


class Section(BaseModel):
    """A part of the run file: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Choice(BaseModel):
    """A plugin and its options: `{name: mlp, hidden: [32]}`, or just `mlp`."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str

    @property
    def options(self) -> dict[str, Any]:
        """The options, without the name."""
        return dict(self.model_extra or {})


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


Named = Annotated[Choice, BeforeValidator(_named)]
