"""The folder of a sweep: a run file and a folder of results for each run, and which of them have finished."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cutlayer.common.errors import CheckpointError, UserError
from cutlayer.common.files import DirectoryLock, write_atomically, write_json
from cutlayer.common.run_state import RunState
from cutlayer.sweep.plan import PlannedRun

_SCHEMA = 1
_LEFTOVERS_S = 30.0  # how long parties of a sweep that was killed may take to stop
_PRIVATE = 0o600


class SweepFolder:
    """`path`, which is made if missing.

        results.parquet     figures of all finished runs
        sweep.json          name of each run -> what is varied in it
        runs/<name>.yaml    the whole run file
        runs/<name>/        what the run writes

    Raises:
        UserError: it cannot be made, or holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results = path / "results.parquet"
        self._list = path / "sweep.json"
        self._runs = path / "runs"
        try:
            strange = path.exists() and any(path.iterdir()) and not self._list.exists()
            self._runs.mkdir(parents=True, exist_ok=True) if not strange else None
        except OSError as error:
            raise UserError(f"{path}: cannot be used as a folder ({error.strerror}); give another --out DIR") from error
        if strange:
            raise UserError(f"--out {path}: not empty, and no sweep was begun in it; give a new folder or remove it")

    def run_file(self, name: str) -> Path:
        """The run file of a run."""
        return self._runs / f"{name}.yaml"

    def of(self, name: str) -> Path:
        """The results of a run."""
        return self._runs / name

    def prepare(self, runs: Sequence[PlannedRun]) -> None:
        """Write the run files and the list of runs.

        Raises:
            UserError: a run was begun here with another run file, or with other axes.
        """
        self._require_axes(list(runs[0].varied))
        for run in runs:
            if self.of(run.name).exists() and self._written(run.name) != run.content:
                raise UserError(
                    f"{self.of(run.name)} holds a run of another run file: what the sweep's runs have in common was "
                    "changed; give another --out DIR, or remove that folder to have the run again"
                )
        write_json(self._list, {"schema": _SCHEMA, "runs": {run.name: dict(run.varied) for run in runs}})
        for run in runs:
            if not self.of(run.name).exists():
                text = yaml.safe_dump(run.content, sort_keys=False, allow_unicode=True)
                write_atomically(self.run_file(run.name), text, _PRIVATE)

    def others(self, runs: Sequence[PlannedRun]) -> list[str]:
        """Names of runs whose folders are here and that are none of `runs`."""
        return sorted({path.name for path in self._runs.iterdir() if path.is_dir()} - {run.name for run in runs})

    def finished(self, run: PlannedRun) -> bool:
        """Whether a run has left complete results; one that cannot be told is not, and says why when it is started."""
        folder = self.of(run.name)
        try:
            return (folder / "summary.json").exists() and RunState(folder, run.run_file.job.digest()).finished
        except CheckpointError:
            return False

    def summary(self, name: str) -> Mapping[str, Any]:
        """The summary of a finished run."""
        found: dict[str, Any] = json.loads((self.of(name) / "summary.json").read_text())
        return found

    def await_leftovers(self, runs: Sequence[PlannedRun], timeout_s: float = _LEFTOVERS_S) -> None:
        """Wait until no party of a sweep that was killed is left: it has been told to end, and saves its last step.

        Raises:
            UserError: one still runs after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        for lock in (lock for run in runs for lock in self.of(run.name).glob("*/lock")):
            while True:
                try:
                    with DirectoryLock(lock.parent):
                        break
                except UserError:
                    if time.monotonic() >= deadline:
                        raise
                    time.sleep(0.1)

    def _require_axes(self, axes: list[str]) -> None:
        """With other axes all runs have other names, and would begin anew beside the old ones."""
        for name, varied in self._listed().items():
            if list(varied) != axes and self.of(name).exists():
                raise UserError(
                    f"--out {self.path}: a sweep over {', '.join(varied)} was begun in it, and this grid is over "
                    f"{', '.join(axes)}: no run could be kept; give another --out DIR"
                )

    def _listed(self) -> Mapping[str, Mapping[str, Any]]:
        try:
            found: dict[str, dict[str, Any]] = json.loads(self._list.read_text(encoding="utf-8"))["runs"]
            return found
        except (OSError, ValueError, KeyError, TypeError):
            return {}  # it is written anew

    def _written(self, name: str) -> Any:
        try:
            return yaml.safe_load(self.run_file(name).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError):
            return None
