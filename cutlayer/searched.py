"""What must be found by short runs before a run; a process of its own, as the one that starts runs has no torch.

`python -m cutlayer.searched` reads a run file from stdin as JSON, and writes what its defense wants searched, or null.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import redirect_stdout
from dataclasses import asdict

from cutlayer.common.config import RunFile
from cutlayer.common.errors import UserError
from cutlayer.label_party.chosen import make_defense
from cutlayer.label_party.defenses import Search


def search_of(run_file: RunFile) -> Search | None:
    """None too where the defense cannot be made: the label party will say why."""
    try:
        return make_defense(run_file.job, run_file.label_section().defense).search()
    except UserError:
        return None


def _main() -> None:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    with redirect_stdout(sys.stderr):  # what code of the user's prints
        search = search_of(RunFile.model_validate(json.load(sys.stdin)))
    print(json.dumps(search and asdict(search)))


if __name__ == "__main__":
    _main()
