"""The activations that were answered, remembered beyond every checkpoint: a step gets no second answer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from cutlayer.common.files import private_folder, sync_folder, writing

_DIGEST_BYTES = 32
_NOTHING = bytes(_DIGEST_BYTES)


class AnsweredActivations:
    """One file a party in `folder`: at place t - 1 the SHA-256 of the z that was answered at step t, zeros where none.

    What is noted survives the death of this process; `sync` makes it survive a loss of power, too.

    Raises:
        StorageError: the disk is full or refuses. What could not be noted must not be answered.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = private_folder(folder)
        self._files: dict[str, int] = {}
        self._names_unsynced = True

    def note(self, step: int, z_digests: Mapping[str, bytes]) -> None:
        """The answers to these activations, by party, are about to leave."""
        for party, digest in z_digests.items():
            with writing(self._folder / party):
                done = 0
                while done < _DIGEST_BYTES:  # a disk that gets full takes a part, and refuses the rest
                    done += os.pwrite(self._file(party), digest[done:], (step - 1) * _DIGEST_BYTES + done)

    def at(self, party: str, step: int) -> bytes | None:
        """The digest of the activation of `step` that was answered; None where none was."""
        found = os.pread(self._file(party), _DIGEST_BYTES, (step - 1) * _DIGEST_BYTES)
        return None if len(found) < _DIGEST_BYTES or found == _NOTHING else found

    def last(self, party: str) -> int:
        """The last step of which an answer to `party` was noted; 0 where none was."""
        file = self._folder / party
        return file.stat().st_size // _DIGEST_BYTES if file.exists() else 0

    def sync(self) -> None:
        """What was noted so far is safe on the disk when this returns."""
        for party, file in self._files.items():
            with writing(self._folder / party):
                os.fdatasync(file)
        if self._names_unsynced:
            sync_folder(self._folder)
            self._names_unsynced = False

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _file(self, party: str) -> int:
        if party not in self._files:
            self._files[party] = os.open(self._folder / party, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._names_unsynced = True
        return self._files[party]
