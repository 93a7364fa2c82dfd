"""One open stream of a party, and how it ends."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(eq=False)
class Stream:
    """One open stream of a party; compared by identity.

    Attributes:
        peer: the connection that it came on.
        came_at, heard_at: when it opened, and when the party last sent something on it; by the monotonic clock.
    """

    party: str
    era: int
    peer: str = ""
    gone: bool = False
    came_at: float = field(default_factory=time.monotonic)
    heard_at: float = field(default_factory=time.monotonic)

    def require_newest(self) -> None:
        """StreamGone where a newer one has taken over: then nothing is said of what comes on this one."""
        if self.gone:
            raise StreamGone

    def hear(self) -> None:
        """The party has sent something that is not all of what is waited for."""
        self.heard_at = time.monotonic()


class Closed(Exception):
    """The label party ends the session, or goes back in it; `reason` names a value of the wire's Reason."""

    def __init__(self, reason: str, party: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.party = party


class StreamGone(Exception):
    """This stream has ended or was replaced by a newer one."""
