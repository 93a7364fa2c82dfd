"""A disk of its own for a folder, which a test fills and frees; needs the right to mount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class SmallDisk:
    """A file system in memory at `folder`."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no room, not even for a name."""
        with open(self._ballast, "wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))
        number = 0
        with suppress(OSError):
            while True:
                (self._ballast.parent / f"ballast-{number}").touch(exist_ok=False)
                number += 1

    def free(self) -> None:
        """Give the room back."""
        for file in self._ballast.parent.glob("ballast*"):
            file.unlink()


@contextmanager
def small_disk(folder: Path, size: str = "4m") -> Iterator[SmallDisk]:
    """`folder`, which is made, as a small disk while the context lasts; skips the test where nobody may mount."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size},nr_inodes=300,mode=0700"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk needs the right to mount: {os.fsdecode(mounted.stderr).strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
