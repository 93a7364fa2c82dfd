"""The secret for row ids as the environment gives it: in a variable, or in a file that a variable names."""

from __future__ import annotations

import os
from pathlib import Path

from cutlayer.common.errors import ConfigError

ID_SECRET_VARIABLE = "CUTLAYER_ID_SECRET"  # noqa: S105 - the name of a variable
ID_SECRET_FILE_VARIABLE = "CUTLAYER_ID_SECRET_FILE"  # noqa: S105


def environment_secret() -> str:
    """The secret, without white space around it where it comes from a file; empty where the environment gives none.

    Raises:
        ConfigError: the file cannot be read, or is empty.
    """
    if text := os.environ.get(ID_SECRET_VARIABLE):
        return text
    path = os.environ.get(ID_SECRET_FILE_VARIABLE)
    return _content(Path(path)) if path else ""


def _content(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"{ID_SECRET_FILE_VARIABLE}: {path} cannot be read: {reason}") from error
    if not text:
        raise ConfigError(f"{ID_SECRET_FILE_VARIABLE}: {path} is empty; make a secret with `openssl rand -hex 32`")
    return text
