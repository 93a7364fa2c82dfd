"""What a folder of results is of: which job, which rows, which run, and whether that has finished."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from cutlayer import __version__
from cutlayer.common.errors import AlignmentError, CheckpointError
from cutlayer.common.files import write_json
from cutlayer.common.limits import RUN_BYTES

_SCHEMA = 2  # 1 had neither `run` nor `setting`
_MOST_SHOWN = 200  # characters of a value
WHERE_LOST = "where that folder is lost or damaged, give another --out DIR at every party, and the job another `seed`"
WHERE_MIXED = f"start both with the --out DIR with which they began the same run; {WHERE_LOST}"


@dataclass(frozen=True)
class _Content:
    job: str
    rows: str | None = None
    run: str | None = None
    finished: bool = False
    computed_with: dict[str, str] = field(default_factory=dict)
    setting: dict[str, Any] | None = None
    schema: int = _SCHEMA


def new_run() -> bytes:
    """A name for the run that begins, which tells it from every other run of the same job."""
    return os.urandom(RUN_BYTES)


def short(run: bytes) -> str:
    """A run as messages name it: the first digits of `run` in the `state.json` of its folders."""
    return run.hex()[:8]


class RunState:
    """The file `state.json` of a folder.

    Args:
        folder: exists.
        job: digest of the job that is about to run here.
        setting: what results follow from beside the job, by key of the run file, as JSON; None: that is not looked at.

    Raises:
        CheckpointError: the folder is of another job, another setting or a newer version, or the file cannot be read.
        StorageError: from any method that writes.
    """

    def __init__(self, folder: Path, job: bytes, setting: Mapping[str, Any] | None = None) -> None:
        self._folder = folder
        self._path = folder / "state.json"
        fresh = _Content(job.hex(), setting=None if setting is None else dict(setting))
        self._content = found = self._read() or fresh
        if found.job != job.hex() and not found.rows and not found.finished:
            self._content = fresh  # nothing was agreed on yet, as where the other party refused the job
        elif found.job != job.hex():
            raise CheckpointError(
                f"{folder} holds a run of another job: its `job` section was a different one; give another --out DIR, "
                "or remove the folder if that run is not needed any more"
            )
        elif found.setting is None or not (found.rows or found.finished):  # the former of an earlier release
            self._content = replace(found, setting=fresh.setting)
        elif setting is not None and found.setting != fresh.setting:
            self._refuse(found.setting, setting)

    def _refuse(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        changed = [
            f"{key} was {_shown(before.get(key))}, is {_shown(now.get(key))}"
            for key in sorted(before.keys() | now.keys())
            if before.get(key) != now.get(key)
        ]
        raise CheckpointError(
            f"{self._folder} holds a run with other choices: {'; '.join(changed)}. Write there again what the run "
            "began with, or give another --out DIR at every party"
        )

    @property
    def finished(self) -> bool:
        """Whether the results are complete."""
        return self._content.finished

    @property
    def run(self) -> bytes | None:
        """The name of the run; None where no rows are agreed on yet, or an earlier release began it."""
        return bytes.fromhex(self._content.run) if self._content.run else None

    @property
    def begun(self) -> bool:
        """Whether a run was begun here."""
        return self._path.exists()

    def begin(self, threads: int | None = None) -> str | None:
        """A run of this job begins here, or goes on.

        Args:
            threads: of torch, where this process computes.

        Returns:
            a warning where the last bits of what is computed may not be those of before; else None.
        """
        now = {} if threads is None else _computed_with(threads)
        if not self.begun or not self._content.rows:
            self._write(replace(self._content, computed_with=now))
        before = self._content.computed_with
        changed = [
            f"{name} {value}, before {before[name]}" for name, value in now.items() if before.get(name, value) != value
        ]
        if not changed:
            return None
        return (
            f"the run goes on with {', '.join(changed)}: what is computed may differ in the last bits, and a step that "
            "is repeated is answered only for the same activations; if it is refused, go back to what it began with"
        )

    def of_rows(self, digest: bytes, run: bytes | None) -> None:
        """The rows that the parties have agreed on, and the run, where the label party has named it.

        Raises:
            CheckpointError: the folder is of another run. AlignmentError: the rows are not those that it began with.
        """
        if self.run not in (None, run):
            raise CheckpointError(
                f"{self._folder} is of run {short(self.run)} of this job, and the label party goes on with "
                f"{f'run {short(run)}' if run else 'one that has no name'}: {WHERE_MIXED}"
            )
        if self._content.rows not in (None, digest.hex()):
            raise AlignmentError(
                f"the rows that all parties hold are not those that the run in {self._folder} began with: a party's "
                "table or the id secret has changed; bring the old ones back, or give another --out DIR at every party"
            )
        agreed = replace(self._content, rows=digest.hex(), run=run.hex() if run else None)
        if agreed != self._content:
            self._write(agreed)

    def finish(self) -> None:
        """The results are complete."""
        self._write(replace(self._content, finished=True))

    def _write(self, content: _Content) -> None:
        content = replace(content, schema=_SCHEMA)
        write_json(self._path, {**asdict(content), "cutlayer": __version__})
        self._content = content

    def _read(self) -> _Content | None:
        try:
            found = json.loads(self._path.read_bytes())
            version = found.pop("cutlayer", None)
            if found["schema"] <= _SCHEMA:
                return _Content(**found)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(f"{self._path}: cannot be read; give another --out DIR") from error
        raise CheckpointError(
            f"{self._folder} holds a run of cutlayer {version}, in a form that {__version__} cannot read; "
            "go on with that version, or give another --out DIR"
        )


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _computed_with(threads: int) -> dict[str, str]:
    """What the last bits depend on."""
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:  # vendored without metadata
        torch = "unknown"
    return {"cutlayer": __version__, "torch": torch, "threads": str(threads)}
