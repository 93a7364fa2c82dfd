"""Which keys of two `job` sections differ, told without telling what they say: a keyed digest for each key.

The digests are keyed with the parties' shared secret. Who lacks it can neither test a guessed value against a digest
that it sees, nor have its own guesses compared: without the same secret on both sides no key is named.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cutlayer.common.alignment import DIGEST_BYTES, keyed_digest, secret_check
from cutlayer.common.errors import FrameError

MAX_KEYS = 1000
_NAMED = 8  # keys in a message; the others are counted
_KEY = re.compile(r"job\.[A-Za-z0-9_.-]{1,250}")


@dataclass(frozen=True)
class JobKeys:
    """What a `job` section says at each key.

    Attributes:
        check: 16 bytes, equal exactly when the secrets of two parties are.
        digests: dotted key -> 16 bytes.
    """

    check: bytes
    digests: Mapping[str, bytes]

    @classmethod
    def of(cls, section: Mapping[str, Any], secret: bytes) -> JobKeys:
        """The keys of `section`, values of JSON with defaults filled in; none where they are too many to send."""
        digests = {key: _digest(secret, key, value) for key, value in _leaves("job", section)}
        return cls(secret_check(secret), digests if len(digests) <= MAX_KEYS else {})

    @classmethod
    def received(cls, check: bytes, digests: Mapping[str, bytes]) -> JobKeys:
        """What a peer sent.

        Raises:
            FrameError: too many keys, or one that is no key of a run file.
        """
        if len(digests) > MAX_KEYS:
            raise FrameError(f"Hello has digests of {len(digests)} keys of the job, expected at most {MAX_KEYS}")
        if len(check) != DIGEST_BYTES or any(len(digest) != DIGEST_BYTES for digest in digests.values()):
            raise FrameError(f"a digest of a key of the job: expected {DIGEST_BYTES} bytes")
        if not all(_KEY.fullmatch(key) for key in digests):
            raise FrameError("Hello names a key of the job that no run file can have")
        return cls(check, dict(digests))


def differing_keys(ours: JobKeys, theirs: JobKeys) -> list[str]:
    """The keys at which two sections differ, or that only one of them has, in order; none where secrets differ."""
    if not hmac.compare_digest(ours.check, theirs.check):
        return []
    keys = ours.digests.keys() | theirs.digests.keys()
    return sorted(key for key in keys if ours.digests.get(key) != theirs.digests.get(key))


def named(keys: list[str]) -> str:
    """`keys` for a message: the first of them, and how many more there are."""
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return ", ".join(keys[:_NAMED]) + more


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}", inner)
    else:
        yield path, value


def _digest(secret: bytes, key: str, value: Any) -> bytes:
    message = b"\xffjob key " + f"{key}={json.dumps(value)}".encode()  # no id's bytes: they are not UTF-8
    return keyed_digest(secret, message)
