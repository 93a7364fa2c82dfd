"""Tensors as the bytes of a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping

from safetensors.torch import save
from torch import Tensor


def pack(tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file of these numbers. Tensors may share memory, as tied weights do: each is written whole."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        one = tensor.detach().contiguous()
        memory = one.untyped_storage().data_ptr()
        apart[name] = one.clone() if memory in seen else one  # safetensors refuses memory that it has seen
        seen.add(memory)
    data: bytes = save(apart)
    return data
