"""Checkpoints on the disk: whole or absent, checked before use, the newest few kept.

    folder/checkpoints/step-000000100/state.safetensors    all tensors
    folder/checkpoints/step-000000100/manifest.json        whose it is, SHA-256 of the tensors, all that is no tensor

No pickle anywhere: a checkpoint cannot execute anything, and cannot claim more memory than it has bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from cutlayer.common.errors import CheckpointError
from cutlayer.common.files import private_folder, sync_folder, write_synced

SCHEMA = 1
_STATE, _MANIFEST = "state.safetensors", "manifest.json"
_NAME = re.compile(r"step-(\d{9,})")

Tensors = dict[str, Tensor]
Record = dict[str, Any]


@dataclass(frozen=True)
class CheckpointOwner:
    """Whose checkpoint it is, and of which run: party, digest of the job, digest of the aligned rows once known."""

    party: str
    job: str
    rows: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """What `load` gives."""

    step: int
    tensors: Tensors
    record: Record


class CheckpointStore:
    """The checkpoints of one party.

    Args:
        folder: the party's private folder.
        owner: checkpoints of any other are not used.
        keep: how many are kept.
        warn: told in words of a checkpoint that cannot be used, once.
    """

    def __init__(self, folder: Path, owner: CheckpointOwner, keep: int, warn: Callable[[str], None]) -> None:
        self._folder = folder / "checkpoints"
        self._owner = owner
        self._keep = keep
        self._warn = warn
        self._warned: set[str] = set()

    def of_rows(self, digest: bytes) -> None:
        """From now on only checkpoints of these aligned rows are used."""
        self._owner = replace(self._owner, rows=digest.hex())

    def save(self, step: int, tensors: Mapping[str, Tensor], record: Record) -> None:
        """Write the checkpoint of `step`, safe on the disk when this returns; older ones than the newest `keep` go.

        Raises:
            OSError: the disk is full or refuses; what was there before is still there, and nothing else.
        """
        private_folder(self._folder)
        target = self._folder / f"step-{step:09d}"
        temporary = self._folder / f".step-{step:09d}.{os.getpid()}"
        data = save({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()})
        manifest = {"schema": SCHEMA, **asdict(self._owner), "step": step, "record": record}
        manifest["sha256"] = {_STATE: hashlib.sha256(data).hexdigest()}
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(mode=0o700)
            write_synced(temporary / _STATE, data)
            write_synced(temporary / _MANIFEST, _sealed(manifest))
            sync_folder(temporary)
            shutil.rmtree(target, ignore_errors=True)  # of a run that went back, or damaged
            temporary.rename(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(self._folder)
        self._prune()

    def steps(self) -> tuple[int, ...]:
        """The steps whose checkpoints are whole and of this party, job and rows; newest first."""
        return tuple(step for step in self._found() if self._read(step) is not None)

    def load(self, step: int) -> Checkpoint:
        """The checkpoint of `step`.

        Raises:
            CheckpointError: it is missing, damaged, or of another party, job or rows.
        """
        checkpoint = self._read(step)
        if checkpoint is None:
            raise CheckpointError(f"{self._folder}: the checkpoint of step {step} is missing or cannot be used")
        return checkpoint

    def drop_after(self, step: int) -> None:
        """Remove checkpoints of later steps, and what writers that were killed have left."""
        if not self._folder.is_dir():
            return
        for later in (found for found in self._found() if found > step):
            shutil.rmtree(self._folder / f"step-{later:09d}")
        for left in self._folder.glob(".step-*"):
            shutil.rmtree(left)
        sync_folder(self._folder)

    def _found(self) -> list[int]:
        if not self._folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted((int(name.group(1)) for name in names if name), reverse=True)

    def _prune(self) -> None:
        for step in self._found()[self._keep :]:
            shutil.rmtree(self._folder / f"step-{step:09d}", ignore_errors=True)

    def _read(self, step: int) -> Checkpoint | None:
        folder = self._folder / f"step-{step:09d}"
        try:
            manifest = _unsealed((folder / _MANIFEST).read_bytes())
            foreign, data = self._foreign(manifest, step), (folder / _STATE).read_bytes()
            if foreign is not None:
                self._refuse(folder, f"is of another {foreign}")
            elif hashlib.sha256(data).hexdigest() != manifest["sha256"][_STATE]:
                self._refuse(folder, f"is damaged ({_STATE} has another SHA-256)")
            else:
                return Checkpoint(step, load(data), manifest["record"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._refuse(folder, f"is damaged ({type(error).__name__} while reading it)")
        return None

    def _foreign(self, manifest: Record, step: int) -> str | None:
        """What differs from a checkpoint of this run, if anything."""
        mine = {"schema": SCHEMA, **asdict(self._owner), "step": step}
        if mine["rows"] is None:
            del mine["rows"]
        return next((key for key, value in mine.items() if manifest[key] != value), None)

    def _refuse(self, folder: Path, why: str) -> None:
        if folder.name not in self._warned:
            self._warned.add(folder.name)
            self._warn(f"checkpoint {folder} {why} and is not used")


def _seal(body: bytes) -> bytes:
    return b'{"sha256": "%s", "manifest":' % hashlib.sha256(body).hexdigest().encode()


def _sealed(manifest: Record) -> bytes:
    """The manifest as a JSON file of three lines: SHA-256 of the second, itself, the end."""
    body = json.dumps(manifest).encode()
    return b"\n".join([_seal(body), body, b"}", b""])


def _unsealed(data: bytes) -> Record:
    first, body, *rest = data.split(b"\n")
    if first != _seal(body) or rest != [b"}", b""]:
        raise ValueError("the manifest is damaged")
    manifest: Record = json.loads(body)
    return manifest


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """`tensors` under `prefix`/."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def below(prefix: str, tensors: Mapping[str, Tensor]) -> Tensors:
    """What `prefixed` put under `prefix`/."""
    return {name.removeprefix(f"{prefix}/"): t for name, t in tensors.items() if name.startswith(f"{prefix}/")}


def optimizer_tensors(optimizer: torch.optim.Optimizer | None) -> Tensors:
    """The state of an optimizer that training has made; not its options, which the run file has."""
    if optimizer is None:
        return {}
    state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    return {
        f"{index}.{name}": torch.as_tensor(value)
        for index, values in state.items()
        for name, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer | None, tensors: Mapping[str, Tensor]) -> None:
    """Take back what `optimizer_tensors` gave."""
    if optimizer is None:
        return
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
