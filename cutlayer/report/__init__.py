"""`cutlayer report`: one HTML page about a run, many runs or a sweep, that needs nothing from elsewhere."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from cutlayer.common.errors import StorageError, UserError
from cutlayer.common.files import write_atomically
from cutlayer.common.progress import human_bytes
from cutlayer.report.page import render
from cutlayer.report.runs import Runs

_PRIVATE = 0o600


def report(folders: Sequence[Path], out: Path | None = None) -> None:
    """Write the page about the runs in `folders` to `out`, by default report.html in the first folder.

    Raises:
        UserError: a folder holds no run or a damaged one, or `out` cannot be written; or a figure's file is damaged:
            the page is written then, and says so in the figure's place.
    """
    out = out or folders[0] / "report.html"
    found = Runs(folders)
    command = shlex.join(["cutlayer", "report", *map(str, folders), "--out", str(out)])
    try:
        page = render(found, command)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        names = ", ".join(str(run.folder) for run in found.runs)
        raise UserError(f"the results are damaged or of another version ({type(error).__name__}): {names}") from error
    try:
        write_atomically(out, page, _PRIVATE)
    except StorageError as error:
        raise UserError(f"--out {out}: cannot be written: {error.strerror}") from error
    runs = "1 run" if len(found.runs) == 1 else f"{len(found.runs)} runs"
    print(f"{out}: {runs}, {human_bytes(len(page.encode()))}; it tells labels, so it is for the label party alone")
    for name, reason in found.unfinished.items():
        print(f"not in it: {name}: {reason}")
    if damaged := sorted(file for run in found.runs for file in run.damaged):
        raise UserError("\n".join(f"{file}: damaged; the page does without its figures" for file in damaged))
