"""The activations that were answered, remembered beyond every checkpoint: a step gets no second answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cutlayer.common.files import private_folder

_DIGEST_BYTES = 32
_NOTHING = bytes(_DIGEST_BYTES)


class AnsweredActivations:
    """One file a party in `folder`: at place t - 1 the SHA-256 of the z that was answered at step t, zeros where none.

    What is noted survives the death of this process; `sync` makes it survive a loss of power, too.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = private_folder(folder)
        self._files: dict[str, int] = {}

    def note(self, step: int, z_digests: Mapping[str, bytes]) -> None:
        """The answers to these activations, by party, are about to leave."""
        for party, digest in z_digests.items():
            os.pwrite(self._file(party), digest, (step - 1) * _DIGEST_BYTES)

    def at(self, party: str, step: int) -> bytes | None:
        """The digest of the activation of `step` that was answered; None where none was."""
        found = os.pread(self._file(party), _DIGEST_BYTES, (step - 1) * _DIGEST_BYTES)
        return None if len(found) < _DIGEST_BYTES or found == _NOTHING else found

    def sync(self) -> None:
        """What was noted so far is safe on the disk when this returns."""
        for file in self._files.values():
            os.fdatasync(file)

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _file(self, party: str) -> int:
        if party not in self._files:
            self._files[party] = os.open(self._folder / party, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._files[party]
