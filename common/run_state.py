"""What a folder of results is of: which job, which rows, and whether the run has finished."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from cutlayer.common.errors import AlignmentError, CheckpointError
from cutlayer.common.files import write_json

_SCHEMA = 1


@dataclass(frozen=True)
class _Content:
    job: str
    rows: str | None = None
    finished: bool = False
    schema: int = _SCHEMA


class RunState:
    """The file `state.json` of a folder.

    Args:
        folder: exists.
        job: digest of the job that is about to run here.

    Raises:
        CheckpointError: the folder is of another job, or the file cannot be read.
    """

    def __init__(self, folder: Path, job: bytes) -> None:
        self._folder = folder
        self._path = folder / "state.json"
        self._content = self._read() or _Content(job.hex())
        if self._content.job != job.hex():
            raise CheckpointError(
                f"{folder} holds a run of another job: its `job` section was a different one; give another --out DIR, "
                "or remove the folder if that run is not needed any more"
            )

    @property
    def finished(self) -> bool:
        """Whether the results are complete."""
        return self._content.finished

    @property
    def begun(self) -> bool:
        """Whether a run was begun here."""
        return self._path.exists()

    def begin(self) -> None:
        """A run of this job begins here."""
        if not self.begun:
            self._write(self._content)

    def of_rows(self, digest: bytes) -> None:
        """The rows that the parties have agreed on.

        Raises:
            AlignmentError: they are not those that the run began with.
        """
        if self._content.rows not in (None, digest.hex()):
            raise AlignmentError(
                f"the rows that all parties hold are not those that the run in {self._folder} began with: a party's "
                "table or the id secret has changed; bring the old ones back, or give another --out DIR at every party"
            )
        if self._content.rows is None:
            self._write(_Content(self._content.job, digest.hex()))

    def finish(self) -> None:
        """The results are complete."""
        self._write(_Content(self._content.job, self._content.rows, finished=True))

    def _write(self, content: _Content) -> None:
        write_json(self._path, asdict(content))
        self._content = content

    def _read(self) -> _Content | None:
        try:
            return _Content(**json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"{self._path}: cannot be read; give another --out DIR") from error
