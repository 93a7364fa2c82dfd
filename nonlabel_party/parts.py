"""A folder of parts, one for each stretch between two checkpoints: a run that goes back has no step twice."""

from __future__ import annotations

import os
import re
from pathlib import Path

from cutlayer.common.files import sync_folder


class Parts:
    """`folder`, made if missing, with parts `part-<first step>.<suffix>`; one grows under another name."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self._folder = folder
        self._suffix = suffix
        self._first_step = 1  # of the part that grows
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def growing(self) -> Path:
        """The file of the part that grows."""
        return self._folder / "growing.part"

    def end(self, step: int, *, wrote: bool) -> None:
        """The part that grows ends with `step`; what is in its file, if anything was written, gets its name, synced."""
        if wrote:
            with open(self.growing, "rb+") as file:
                os.fsync(file.fileno())
            self.growing.rename(self._folder / f"part-{self._first_step:09d}.{self._suffix}")
            sync_folder(self._folder)
        self._first_step = step + 1

    def go_back(self, step: int) -> None:
        """Forget what came after `step`, which is one that ended a part, or 0; the growing file must be closed."""
        self.growing.unlink(missing_ok=True)
        for first_step, part in self._found():
            if first_step > step:
                part.unlink()
        self._first_step = step + 1

    def paths(self) -> list[Path]:
        """The parts that have ended, in order."""
        return [path for _, path in self._found()]

    def _found(self) -> list[tuple[int, Path]]:
        name = re.compile(rf"part-(\d+)\.{self._suffix}")
        found = ((name.fullmatch(path.name), path) for path in self._folder.iterdir())
        return sorted((int(match.group(1)), path) for match, path in found if match)
