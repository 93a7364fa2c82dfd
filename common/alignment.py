"""Finds the rows that all parties hold, from keyed digests of their ids: no party shows an id to another.

A digest is the first 16 bytes of HMAC-SHA256(shared secret, id). Whoever lacks the secret, such as the
network, cannot test a guessed id against it; the parties themselves can, which is why a row that one of them
lacks is not hidden from the others' guesses.
"""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.common.errors import DataError, FrameError

DIGEST_BYTES = 16

Digests = npt.NDArray[np.void]  # (N,), dtype V16
Mask = npt.NDArray[np.bool_]

# No id's bytes: they are not UTF-8.
_CHECK_MESSAGE = b"\xffsecret check"


class IdForm(IntEnum):
    """How the ids of a table are written; the numbers are those of the protocol."""

    INTEGER = 1
    DECIMAL = 2
    TEXT = 3

    def describe(self) -> str:
        """The form in words, with an invented example."""
        return {1: "whole numbers like 17", 2: "decimal numbers like 17.0", 3: "text"}[self]


def id_form(ids: Sequence[str]) -> IdForm:
    """The form that all of `ids` share."""
    texts = pa.array(ids, pa.string())
    for form, pattern in ((IdForm.INTEGER, r"^[+-]?[0-9]+$"), (IdForm.DECIMAL, r"^[+-]?[0-9]*\.[0-9]+$")):
        if len(ids) and pc.all(pc.match_substring_regex(texts, pattern)).as_py():
            return form
    return IdForm.TEXT


def id_digests(ids: Sequence[str], secret: bytes) -> Digests:
    """Keyed digests, (N,) of dtype V16, of the ids in Unicode normal form C."""
    return _as_digests(b"".join(keyed_digest(secret, unicodedata.normalize("NFC", text).encode()) for text in ids))


def secret_check(secret: bytes) -> bytes:
    """16 bytes that are equal exactly when two parties' secrets are."""
    return keyed_digest(secret, _CHECK_MESSAGE)


class OwnIds:
    """A party's own ids, as digests in ascending order.

    Args:
        ids: N ids, each once.
        secret: shared by the parties.

    Attributes:
        order: (N,); the i-th digest is that of id order[i].
        digests: (N,) of dtype V16, ascending.
        form: how the ids are written.
        check: tells whether another party has the same secret.

    Raises:
        DataError: an id occurs more than once.
    """

    def __init__(self, ids: Sequence[str], secret: bytes) -> None:
        digests = id_digests(ids, secret)
        self.order: npt.NDArray[np.int64] = np.argsort(digests, kind="stable")
        self.digests: Digests = digests[self.order]
        self.form = id_form(ids)
        self.check = secret_check(secret)
        if repeated := int(np.count_nonzero(self.digests[1:] == self.digests[:-1])):
            raise DataError(f"{repeated} of {len(ids)} rows have an id that another row has; keep one row for each id")


def common_rows(all_sorted: Sequence[Digests]) -> list[Mask]:
    """For each party, which of its digests all parties hold, (N,) each.

    The common digests come in the same order at every party, because all arrays ascend.
    """
    common = all_sorted[0]
    for digests in all_sorted[1:]:
        common = common[_is_in(common, digests)]
    return [_is_in(digests, common) for digests in all_sorted]


def rows_digest(digests: Digests) -> bytes:
    """SHA-256 over the common digests in order, 32 bytes: equal at two parties when their aligned rows are."""
    return hashlib.sha256(digests.tobytes()).digest()


def digests_to_wire(digests: Digests) -> bytes:
    """The digests one after the other, 16 bytes each."""
    return digests.tobytes()


def digests_from_wire(data: bytes | bytearray) -> Digests:
    """The digests that a peer sent; they stay in the memory of `data`.

    Raises:
        FrameError: not a whole number of digests, or not in ascending order without repetition.
    """
    if len(data) % DIGEST_BYTES:
        raise FrameError(f"id digests: expected a multiple of {DIGEST_BYTES} bytes, got {len(data)}")
    texts = _comparable(_as_digests(data))
    if not bool(np.all(texts[1:] > texts[:-1])):
        raise FrameError("id digests: expected ascending order without repetition")
    return _as_digests(data)


def pack_mask(mask: Mask) -> bytes:
    """Eight booleans a byte: bit i % 8, lowest first, of byte i // 8 is mask[i]."""
    return np.packbits(mask, bitorder="little").tobytes()


def unpack_mask(data: bytes, count: int) -> Mask:
    """The `count` booleans of a packed mask.

    Raises:
        FrameError: wrong length.
    """
    if len(data) != -(-count // 8):
        raise FrameError(f"mask of {count} rows: expected {-(-count // 8)} bytes, got {len(data)}")
    return np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little").astype(bool)


def explain_no_match(
    own_form: IdForm, other_form: IdForm, own_count: int, other_counts: Sequence[int], origin: str
) -> str:
    """What to tell a person when no row is common: counts and likely causes, no id.

    Args:
        own_form: how the ids of `origin` are written.
        other_form: how the ids of the other side are written.
        own_count: rows of `origin`.
        other_counts: rows of each other party, as far as this side knows them.
        origin: name of this side's file.
    """
    others = f" (the other side has {' and '.join(map(str, other_counts))})" if other_counts else ""
    head = f"{origin}: 0 of {own_count} rows match{others}."
    if own_form != other_form:
        return (
            f"{head} The two sides write their ids differently: this side as {own_form.describe()}, the other side "
            f"as {other_form.describe()}. Write the ids in both files alike, as text or as whole numbers."
        )
    return (
        f"{head} Likely causes: `id` names different columns on the two sides, the files hold different rows, or one "
        "program dropped leading zeros (007 and 7 are different ids)."
    )


def keyed_digest(secret: bytes, message: bytes) -> bytes:
    """16 bytes that tell nothing of `message` to who lacks `secret`."""
    return hmac.digest(secret, message, "sha256")[:DIGEST_BYTES]


def _as_digests(data: bytes | bytearray) -> Digests:
    return np.frombuffer(data, f"V{DIGEST_BYTES}")


def _comparable(digests: Digests) -> npt.NDArray[np.bytes_]:
    # As byte strings, which numpy orders. It ignores their trailing zeros; at equal length that changes nothing.
    return digests.view(f"S{DIGEST_BYTES}")


def _is_in(digests: Digests, others: Digests) -> Mask:
    return np.isin(_comparable(digests), _comparable(others), assume_unique=True)
