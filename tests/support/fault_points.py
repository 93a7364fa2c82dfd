"""Something that happens right before a function of the program is called: no code for it in the program itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def once_before(
    patch: pytest.MonkeyPatch, owner: Any, name: str, due: Callable[..., bool], act: Callable[[], object]
) -> None:
    """Do `act` right before `owner.name` is called for the first time with arguments that are `due`."""
    call, done = getattr(owner, name), list[bool]()

    def calling(*args: Any, **kwargs: Any) -> Any:
        if not done and due(*args):
            done.append(True)
            act()
        return call(*args, **kwargs)

    patch.setattr(owner, name, calling)
