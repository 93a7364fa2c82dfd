"""Makes every plugin of the runs of a sweep once; a process of its own, as the one that starts runs has no torch.

`python -m cutlayer.sweep.plugin_check` reads run files from stdin, name -> content as JSON, and writes a JSON list of
pairs: the name of a run, what is wrong with it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import partial
from typing import Any

from cutlayer.common.config import RunFile
from cutlayer.common.datasets import datasets
from cutlayer.common.errors import UserError
from cutlayer.common.job import LABEL_PARTY, section_of
from cutlayer.label_party.chosen import require_settled
from cutlayer.nonlabel_party.curiosity import make_attack


def problems(contents: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What is wrong with the run files; the same problem only once, at the first run that has it."""
    seen: dict[str, str] = {}
    for name, content in contents.items():
        for where, make in _plugins(RunFile.model_validate(content)):
            try:
                make()
            except UserError as error:
                seen.setdefault(f"{where}: {error}", name)
    return [(name, problem) for problem, name in seen.items()]


def _plugins(run_file: RunFile) -> Iterator[tuple[str, Callable[[], object]]]:
    """Where a plugin is named, and what makes it."""
    job, label = run_file.job, run_file.label_section()
    yield f"{LABEL_PARTY}.defense", partial(require_settled, job, label.defense)
    yield f"{LABEL_PARTY}.data", partial(datasets.create, label.data.source, label.data.options)
    for party in job.parties:
        section, where = run_file.nonlabel_section(party), section_of(party)
        yield f"{where}.data", partial(datasets.create, section.data.source, section.data.options)
        for choice in section.attacks:
            yield f"{where}.attacks", partial(make_attack, job, party, choice)


def _main() -> None:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    with redirect_stdout(sys.stderr):  # what code of the user's prints
        found = problems(json.load(sys.stdin))
    print(json.dumps(found))


if __name__ == "__main__":
    _main()
