"""Random numbers: secret noise for defenses, and public permutations and seeds that all parties share.

Both come from ChaCha20 streams. Not from a torch.Generator: on a CPU that keeps 32 bits of its seed, so
whoever knows one row's exact gradient could try all seeds in an afternoon and take the noise off.
"""

from __future__ import annotations

import hashlib
import hmac
import math

import numpy as np
import numpy.typing as npt
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from torch import Tensor

SECRET_BYTES = 32


class Noise:
    """Secret random numbers for one answer; the only source of randomness of a defense.

    Args:
        key: 32 bytes. Use `keyed` to make one for a step.
    """

    def __init__(self, key: bytes) -> None:
        self._stream = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()

    @classmethod
    def keyed(cls, secret: bytes, party: str, step: int, z_digest: bytes) -> Noise:
        """Noise for one party and step: the same z gets the same noise, another z gets unrelated noise.

        Args:
            secret: 32 bytes known to the label party alone.
            z_digest: SHA-256 of the activation's bytes.
        """
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"the noise secret has {len(secret)} bytes, expected {SECRET_BYTES}")
        message = b"\0".join([party.encode(), str(step).encode(), z_digest])
        return cls(hmac.new(secret, message, "sha256").digest())

    def uniform(self, shape: tuple[int, ...]) -> Tensor:
        """Float64 numbers in (0, 1), 53 random bits each."""
        words = _words(self._stream.update(bytes(8 * math.prod(shape))))
        return torch.from_numpy(((words >> 11) + 0.5) * 2.0**-53).reshape(shape)

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Standard normal float32 numbers (Box and Muller)."""
        radius, angle = self.uniform(shape).log().mul(-2).sqrt(), self.uniform(shape).mul(2 * math.pi)
        return (radius * angle.cos()).float()


def public_key(*parts: object) -> bytes:
    """A 32-byte key from values that all parties know; for anything but noise."""
    return hashlib.sha256("\0".join(["cutlayer", *map(str, parts)]).encode()).digest()


def public_seed(*parts: object) -> int:
    """A 63-bit seed for torch from values that all parties know: initial weights, dropout."""
    return int.from_bytes(public_key(*parts)[:8], "little") >> 1


def permutation(count: int, *parts: object) -> npt.NDArray[np.int64]:
    """A permutation of 0..count-1 that depends on `parts` alone, not on any library's version."""
    stream = Cipher(algorithms.ChaCha20(public_key(*parts), bytes(16)), None).encryptor()
    return np.argsort(_words(stream.update(bytes(8 * count))), kind="stable")


def _words(data: bytes) -> npt.NDArray[np.uint64]:
    return np.frombuffer(data, dtype="<u8")
