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
        """Standard normal float32 numbers, at most 6.7 in magnitude (a normal exceeds that once in 4e10).

        Made of 31 random bits for the radius and 32 for the angle of every two numbers (Box and Muller), rounded to
        float32: near 0 they are about 1e-7 apart. The same place in the stream gives the same bits on one kind of
        processor; another may round the last bit of a sine otherwise.
        """
        count = math.prod(shape)
        data = bytearray(8 * ((count + 1) // 2))
        self._stream.update_into(data, data)
        return torch.from_numpy(_box_muller(np.frombuffer(data, dtype="<i4")))[:count].reshape(shape)


def _box_muller(words: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Standard normals (2n,) from random words (2n,): n radii, then n angles; cosines, then sines.

    In numpy, whose float32 logarithm and sines take less than half the time of torch's; in place, as memory costs too.
    """
    n = len(words) // 2
    radius = (words[:n] & 0x7FFFFFFF).astype(np.float32)
    radius += 0.5  # in (0, 2^31]: the logarithm is finite, and small numbers, which make the tails, keep all bits
    radius *= 2.0**-31
    np.log(radius, out=radius)
    radius *= -2
    np.sqrt(radius, out=radius)
    angle = words[n:].astype(np.float32)
    angle *= math.pi * 2.0**-31
    normals = np.empty((2, n), dtype=np.float32)
    np.cos(angle, out=normals[0])
    np.sin(angle, out=normals[1])
    normals *= radius
    return normals.reshape(-1)


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
