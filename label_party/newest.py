"""Calls that were overtaken: what a network held back must not take the place of what the same process sent later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cutlayer.common.handshake import Greeting
from cutlayer.label_party.exchange import StreamGone


class Newest:
    """The newest call of each party, by the number that the party's process counts its calls with."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, tuple[bytes, int]] = {}

    @contextmanager
    def admitting(self, greeting: Greeting) -> Iterator[None]:
        """For as long as the block lasts, no newer call of this party is admitted.

        Raises:
            StreamGone: one was before.
        """
        with self._lock:
            process, call = self._calls.get(greeting.party, (b"", 0))
            if process == greeting.process and greeting.call < call:
                raise StreamGone
            self._calls[greeting.party] = (greeting.process, greeting.call)
            yield
