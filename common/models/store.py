"""Trained weights on disk: safetensors, with a manifest of digests beside them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from torch import nn

from cutlayer.common.files import private_folder, write_atomically, write_json
from cutlayer.common.packing import pack


def save_model(folder: Path, model: nn.Module) -> None:
    """Write the weights of `model` to `folder`/model.safetensors, and their SHA-256 to manifest.json."""
    private_folder(folder)
    data = pack(model.state_dict())
    write_atomically(folder / "model.safetensors", data, mode=0o600)
    write_json(
        folder / "manifest.json", {"schema": 1, "sha256": {"model.safetensors": hashlib.sha256(data).hexdigest()}}
    )
