"""What the label party keeps of each link, and what a checkpoint holds of it."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field
from typing import Any

from cutlayer.common.history import LinkState
from cutlayer.label_party.session import LabelPartyLink
from cutlayer.v1 import training_pb2

Frames = list[training_pb2.TrainResponse]


@dataclass
class Traffic:
    """Bytes of a link: tensors in, tensors out, and everything around them."""

    activations: int = 0
    gradients: int = 0
    overhead: int = 0


@dataclass
class Link:
    """What the server keeps of one party while it trains."""

    session: LabelPartyLink[Frames]
    lock: threading.Lock = field(default_factory=threading.Lock)
    traffic: Traffic = field(default_factory=Traffic)


@dataclass(frozen=True)
class SavedLink:
    """What a checkpoint holds of a link."""

    state: LinkState | None = None
    traffic: Traffic = field(default_factory=Traffic)

    def record(self) -> dict[str, Any]:
        """As values of JSON."""
        assert self.state is not None
        return {"step": self.state.step, "history": self.state.history.hex(), "traffic": asdict(self.traffic)}

    @classmethod
    def of(cls, record: dict[str, Any]) -> SavedLink:
        """What `record` gave."""
        return cls(LinkState(record["step"], bytes.fromhex(record["history"])), Traffic(**record["traffic"]))
