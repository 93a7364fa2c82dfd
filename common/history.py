"""The history of a link: one digest of everything that its two sides have exchanged so far."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cutlayer.common.handshake import Terms


@dataclass(frozen=True)
class LinkState:
    """Where a side of a link stands: all that a checkpoint must hold of it."""

    step: int  # last one answered (label party) or applied (non-label party); 0 before the first
    history: bytes  # digest after that step


def start_of_history(terms: Terms) -> bytes:
    """H_0: a digest of job, party and aligned rows."""
    if terms.rows_digest is None:
        raise ValueError("a history starts when the rows are aligned, but the terms name none")
    return hashlib.sha256(terms.job_digest + terms.party.encode() + terms.rows_digest).digest()


def next_history(history: bytes, step: int, z_digest: bytes, g_digest: bytes) -> bytes:
    """H_t from H_{t-1}, t, and the digests of the activation and of the gradient that answers it."""
    return hashlib.sha256(history + step.to_bytes(8, "little") + z_digest + g_digest).digest()
