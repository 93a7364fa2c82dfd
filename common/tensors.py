"""Tensor <-> wire: the only place where received bytes become a tensor.

A matrix travels as raw little-endian numbers, row after row, in one message or in chunks of `CHUNK_BYTES`. The
receiver knows rows, width and encoding beforehand, so nothing that a peer claims decides how much memory is used.

Shape suffixes: B rows of the batch, d cut-layer width.
"""

from __future__ import annotations

import hashlib
import math
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from cutlayer.common.errors import FrameError, TrainingError
from cutlayer.common.limits import CHUNK_BYTES
from cutlayer.v1 import matrix_pb2


@dataclass(frozen=True)
class _Layout:
    """How one encoding keeps a number."""

    wire: matrix_pb2.Encoding
    dtype: torch.dtype
    scaled: bool = False


_LAYOUTS = {
    "float32": _Layout(matrix_pb2.ENCODING_FLOAT32, torch.float32),
    "float16": _Layout(matrix_pb2.ENCODING_FLOAT16, torch.float16, scaled=True),
    "bfloat16": _Layout(matrix_pb2.ENCODING_BFLOAT16, torch.bfloat16),
}
_FLOAT16_TOP = 15  # the largest magnitude is scaled into [2^14, 2^15): float16 ends at 65504
_SMALLEST_EXPONENT = -126  # of a scale: float32 ends there, but for subnormals


def to_matrices(t_Bd: Tensor, encoding: str) -> list[matrix_pb2.Matrix]:
    """The chunks that carry a tensor, in order; one up to `CHUNK_BYTES`.

    float16 scales the whole matrix by a power of two, because gradients of a mean loss are so small that they
    would lose most of their bits. float32 loses nothing, float16 keeps 11 bits, bfloat16 8.

    Args:
        t_Bd: (B, d), B and d at least 1.
        encoding: float32, float16 or bfloat16.

    Raises:
        TrainingError: a number is not finite. It does not say where: in a gradient that would speak of labels.
    """
    layout = _LAYOUTS[encoding]
    _require_little_endian(sys.byteorder)
    numbers_Bd, scale = _encode(t_Bd.detach().to("cpu", torch.float32), layout)
    data = numbers_Bd.contiguous().view(torch.uint8).flatten().numpy()
    rows, width = t_Bd.shape
    return [
        matrix_pb2.Matrix(
            rows=rows,
            width=width,
            encoding=layout.wire,
            scale=scale,
            data=data[start : start + CHUNK_BYTES].tobytes(),
            offset=start,
        )
        for start in range(0, len(data), CHUNK_BYTES)
    ]


def all_finite(t: Tensor) -> bool:
    """Whether every number is finite, in an eighth of the time of torch.isfinite; `t` has at least one number."""
    return math.isfinite(_magnitude(t))


def matrices_digest(matrices: Iterable[matrix_pb2.Matrix]) -> bytes:
    """SHA-256 of all that determines the numbers: the bytes of all chunks, and the scale. Of nothing for no chunk."""
    digest, scale = hashlib.sha256(), b""
    for matrix in matrices:
        digest.update(matrix.data)
        scale = _scale_bytes(matrix.scale)
    digest.update(scale)
    return digest.digest()


class MatrixReader:
    """Puts one matrix together from its chunks, and trusts none of them.

    Args:
        rows, width, encoding: what the matrix must be.
    """

    def __init__(self, rows: int, width: int, encoding: str) -> None:
        self._rows = rows
        self._width = width
        self._layout = _LAYOUTS[encoding]
        self._total = rows * width * self._layout.dtype.itemsize
        self._scale = 1.0
        self._data = bytearray()
        _require_little_endian(sys.byteorder)

    @property
    def payload_bytes(self) -> int:
        """Bytes of numbers received so far."""
        return len(self._data)

    def add(self, matrix: matrix_pb2.Matrix) -> bool:
        """Take the next chunk; True when the matrix is complete.

        Raises:
            FrameError: a field is missing or not what this matrix must have; says what was expected and got.
        """
        if len(self._data) == self._total:
            raise FrameError(f"matrix: a chunk came after all {self._total} bytes")
        for name, expected in (("rows", self._rows), ("width", self._width), ("offset", len(self._data))):
            _expect(name, _field(matrix, name), expected)
        _expect("encoding", _encoding_name(matrix.encoding), _encoding_name(self._layout.wire))
        scale = self._checked_scale(_field(matrix, "scale"))
        data = matrix.data
        _expect("length in bytes", len(data), min(self._total - len(self._data), CHUNK_BYTES))
        self._scale = scale
        self._data += data
        return len(self._data) == self._total

    def tensor(self) -> Tensor:
        """The numbers, float32 (rows, width). May share memory with this reader.

        Raises:
            FrameError: a number is not finite; names the first such row of the batch, counted from 0.
        """
        raw = torch.frombuffer(self._complete(), dtype=self._layout.dtype)
        t_Bd = raw.view(self._rows, self._width).to(torch.float32)
        if self._layout.scaled:
            t_Bd *= self._scale
        if not all_finite(t_Bd):
            row = int(t_Bd.isfinite().all(dim=1).logical_not().nonzero()[0])
            raise FrameError(f"matrix: row {row} of the batch (from 0) has a number that is not finite")
        return t_Bd

    def digest(self) -> bytes:
        """The same as `matrices_digest` of the chunks."""
        digest = hashlib.sha256(self._complete())
        digest.update(_scale_bytes(self._scale))
        return digest.digest()

    def _complete(self) -> bytearray:
        if len(self._data) < self._total:
            raise ValueError(f"{len(self._data)} of {self._total} bytes have come")
        return self._data

    def _checked_scale(self, scale: float) -> float:
        if self._data or not self._layout.scaled:
            _expect("scale", scale, self._scale)
        elif math.frexp(scale)[0] != 0.5:  # zero, negative, not finite or no power of two
            raise FrameError(f"matrix: scale: expected a power of two, got {scale:g}")
        return scale


def _encode(t_Bd: Tensor, layout: _Layout) -> tuple[Tensor, float]:
    largest = _magnitude(t_Bd)
    if not math.isfinite(largest):
        raise TrainingError("what is to be sent has a number that is not finite; a smaller learning rate may help")
    limit = (2 - torch.finfo(layout.dtype).eps) * 2.0**127
    if largest > limit:  # at the very end of float32, where rounding to fewer bits would reach infinity
        t_Bd = t_Bd.clamp(-limit, limit)
    if not layout.scaled:
        return t_Bd.to(layout.dtype), 1.0
    scale = _scale_for(largest)
    return (t_Bd * (1 / scale)).to(layout.dtype), scale


def _scale_for(largest: float) -> float:
    if largest == 0:
        return 1.0
    return 2.0 ** max(math.frexp(largest)[1] - _FLOAT16_TOP, _SMALLEST_EXPONENT)


def _magnitude(t_Bd: Tensor) -> float:
    """Largest absolute value; not finite where any number is not."""
    low, high = torch.aminmax(t_Bd)
    return max(-float(low), float(high))


def _scale_bytes(scale: float) -> bytes:
    return struct.pack("<f", scale)


def _field(matrix: matrix_pb2.Matrix, name: str) -> float:
    if not matrix.HasField(name):
        raise FrameError(f"matrix: {name} is missing")
    value: float = getattr(matrix, name)
    return value


def _expect(name: str, got: object, expected: object) -> None:
    if got != expected:
        raise FrameError(f"matrix: {name}: expected {expected}, got {got}")


def _encoding_name(number: int) -> str:
    names: dict[int, str] = {layout.wire: name for name, layout in _LAYOUTS.items()}
    return names.get(number, f"unknown ({number})")


def _require_little_endian(byteorder: str) -> None:
    if byteorder != "little":
        raise NotImplementedError("numbers travel little-endian, and this machine is not: it cannot be a party")
