"""Parties as small as can be, with a disk that survives a crash and a memory that does not.

Whatever a party computes follows from all that it has applied so far, so that a step applied twice, left out or applied
to another state shows in every later one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from cutlayer.common.handshake import Terms
from cutlayer.common.history import LinkState
from cutlayer.label_party.session import LabelPartyLink
from cutlayer.nonlabel_party.session import NonlabelPartyLink

NAMES = ("lab", "bank")
STEPS, EVERY, KEEP = 7, 2, 2


def mix(*parts: object) -> bytes:
    """A digest of all parts."""
    return hashlib.sha256(repr(parts).encode()).digest()


def terms(name: str) -> Terms:
    """What both sides of a party's link mean."""
    return Terms(name, b"j" * 32, 16, 455, b"r" * 32)


def gradient(name: str, weights: bytes, z: dict[str, bytes]) -> bytes:
    """What a party gets for the activations of all."""
    return mix("g", name, weights, sorted(z.items()))


def undisturbed() -> dict[str, bytes]:
    """What all have in the end if nothing happens."""
    label, labs = b"start", dict.fromkeys(NAMES, b"start")
    for step in range(1, STEPS + 1):
        z = {name: mix("z", name, step, weights) for name, weights in labs.items()}
        labs = {name: mix(weights, gradient(name, label, z)) for name, weights in labs.items()}
        label = mix(label, sorted(z.items()))
    return {"label": label, **labs}


EXPECTED = undisturbed()


class Disk(dict[int, Any]):
    """Checkpoints by step: the newest few."""

    def save(self, step: int, state: Any) -> None:
        self[step] = state
        for old in sorted(self)[:-KEEP]:
            del self[old]

    def drop_after(self, step: int) -> None:
        for later in [found for found in self if found > step]:
            del self[later]


@dataclass
class Lab:
    """A non-label party: its disk, and the memory of its process."""

    name: str
    disk: Disk = field(default_factory=Disk)
    alive: bool = False
    link: NonlabelPartyLink | None = None  # none: it must begin with its ids
    era: int = 0
    stream: int | None = None
    weights: bytes = b""
    journal: list[int] = field(default_factory=list)
    accepted: tuple[int, bytes, bool] | None = None
    unsaved: bool = False

    def lose_memory(self) -> None:
        self.alive, self.link, self.stream, self.accepted, self.unsaved = False, None, None, None, False

    def save(self) -> None:
        assert self.link is not None
        self.disk.save(self.link.applied_step, (self.weights, self.link.state(), list(self.journal)))
        self.unsaved = False


@dataclass
class Label:
    """The label party: its disk, its memory of what it has answered, and the memory of its process."""

    disk: Disk = field(default_factory=Disk)
    noted: dict[str, dict[int, bytes]] = field(default_factory=lambda: {name: {} for name in NAMES})
    synced: dict[str, dict[int, bytes]] = field(default_factory=lambda: {name: {} for name in NAMES})
    alive: bool = False
    ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    links: dict[str, LabelPartyLink[tuple[Any, ...]]] = field(default_factory=dict)  # none: ids are awaited
    era: int = 0
    resumed: int = 0
    done: int = 0
    weights: bytes = b""
    journal: list[int] = field(default_factory=list)
    got: dict[str, bytes] = field(default_factory=dict)
    stage: int = 0
    due: bool = False
    answers: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def last(self, party: str) -> int:
        return max(self.noted[party], default=0)

    def lose_memory(self) -> None:
        self.alive, self.ids, self.links, self.got, self.stage = False, {}, {}, {}, 0

    def save(self, step: int, weights: bytes, states: dict[str, LinkState]) -> None:
        self.synced = {name: dict(noted) for name, noted in self.noted.items()}
        self.disk.save(step, (weights, states, list(range(1, step + 1))))
