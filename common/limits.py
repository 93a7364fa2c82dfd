"""Sizes and times that bound what a party accepts and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

CHUNK_BYTES = 4 << 20  # a matrix above this travels in several frames
MAX_WIDTH = 1_000_000  # of a cut layer; a model of that width already fills memory
MAX_LABELLED_ROWS = 1000  # of each class, whose labels a job may grant to a party
MAX_DURABLE_STEPS = 1000  # checkpoints that a party may name
RUN_BYTES = 16  # of the name of a run
MAX_ROWS = 50_000_000  # rows that a party may announce; their digests take 16 bytes each


def refuse_switch(value: Any) -> Any:
    """`value`, unless it is true or false, which pydantic takes for 1 or 0; ValueError then."""
    if isinstance(value, bool):
        raise ValueError(f"expected a number, got {str(value).lower()}")
    return value


NUMBER = BeforeValidator(refuse_switch)

# A week is 604,800 seconds; gRPC counts milliseconds in 31 bits.
Seconds = Annotated[float, Field(gt=0, le=1_000_000), NUMBER]


class Timeouts(BaseModel):
    """How long a party waits, in seconds. `Timeouts(stall_s=20)` changes one and keeps the rest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    connect_s: Seconds = 600.0  # for the other parties to appear
    reconnect_s: Seconds = 600.0  # for a party that was lost to come back
    stall_s: Seconds = 300.0  # for the answer to, or the next of, one step
    keepalive_s: Annotated[Seconds, Field(ge=1)] = 10.0  # between pings on a silent connection
    goodbye_s: Seconds = 3.0  # for the others to take note of the end


@dataclass(frozen=True)
class Limits:
    """What one link may carry: `rows` x `width` is the largest matrix of the job."""

    rows: int
    width: int

    @property
    def matrix_bytes(self) -> int:
        """Largest matrix, in bytes, at 4 bytes a number."""
        return 4 * self.rows * self.width

    @property
    def frame_bytes(self) -> int:
        """Largest frame: one chunk, a row of knowledge beside it, and the fields around them."""
        return min(self.matrix_bytes, CHUNK_BYTES) + 4 * self.width + 4096
