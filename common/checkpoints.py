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
from safetensors.torch import load
from torch import Tensor

from cutlayer import __version__
from cutlayer.common.errors import CheckpointError
from cutlayer.common.files import private_folder, sync_folder, write_synced, writing
from cutlayer.common.packing import pack

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
            StorageError: the disk is full or refuses; what was there before is still there, and nothing else.
        """
        target = self._folder / f"step-{step:09d}"
        data = pack(tensors)
        manifest = {"schema": SCHEMA, "cutlayer": __version__, **asdict(self._owner), "step": step, "record": record}
        manifest["sha256"] = {_STATE: hashlib.sha256(data).hexdigest()}
        if not self._folder.is_dir():
            private_folder(self._folder)
        with writing(target):
            self._put(target, {_STATE: data, _MANIFEST: _sealed(manifest)})
            self._prune()

    def _put(self, target: Path, files: Mapping[str, bytes]) -> None:
        """Make the folder `target` of `files`: it is there whole or, also after a loss of power, not at all."""
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir(mode=0o700)
            for name, data in files.items():
                write_synced(temporary / name, data)
            sync_folder(temporary)
            if target.exists():  # damaged: a run that goes back removes those of later steps
                shutil.rmtree(target)
            temporary.rename(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(self._folder)

    def steps(self) -> tuple[int, ...]:
        """The steps whose checkpoints are whole and of this party, job and rows; newest first.

        Raises:
            CheckpointError: one is of a newer version of Cutlayer; it says which.
        """
        return tuple(step for step in self.found() if self._read(step) is not None)

    def load(self, step: int) -> Checkpoint | None:
        """The checkpoint of `step`; None where there is none of step 0, and the run begins.

        Raises:
            CheckpointError: that of a later step is missing, damaged, or of another party, job or rows.
        """
        checkpoint = self._read(step) if step in self.found() else None
        if checkpoint is None and step > 0:
            raise CheckpointError(f"{self._folder}: the checkpoint of step {step} is missing or cannot be used")
        return checkpoint

    def drop_after(self, step: int) -> None:
        """Remove checkpoints of later steps, and what writers that were killed have left; StorageError if refused."""
        if not self._folder.is_dir():
            return
        with writing(self._folder):
            for later in (found for found in self.found() if found > step):
                self._remove(later)
            for left in self._folder.glob(".step-*"):
                shutil.rmtree(left)
            sync_folder(self._folder)

    def found(self) -> list[int]:
        """The steps of all checkpoints, whole or not; newest first."""
        if not self._folder.is_dir():
            return []
        names = (_NAME.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted((int(name.group(1)) for name in names if name), reverse=True)

    def _prune(self) -> None:
        for step in self.found()[self._keep :]:
            self._remove(step)

    def _remove(self, step: int) -> None:
        """Take the name away first: what is half removed is no damaged checkpoint."""
        folder = self._folder / f"step-{step:09d}"
        going = folder.with_name(f".{folder.name}.{os.getpid()}")
        folder.rename(going)
        shutil.rmtree(going)

    def _read(self, step: int) -> Checkpoint | None:
        folder = self._folder / f"step-{step:09d}"
        try:
            manifest = _unsealed((folder / _MANIFEST).read_bytes())
            self._require_known(folder, manifest)
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
        mine = {**asdict(self._owner), "step": step}
        if mine["rows"] is None:
            del mine["rows"]
        return next((key for key, value in mine.items() if manifest[key] != value), None)

    @staticmethod
    def _require_known(folder: Path, manifest: Record) -> None:
        if manifest["schema"] > SCHEMA:
            raise CheckpointError(
                f"{folder} was written by cutlayer {manifest['cutlayer']} in a form that {__version__} cannot read; "
                "go on with that version, or give another --out DIR at every party"
            )

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
