"""Steps with wide gradients, in a process of their own: by how much its memory grows, in megabytes.

    python -m support.wide_steps label_party|lab FOLDER

Shape suffixes: B rows of the batch, D width of the layer.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import torch

from cutlayer.common.config import Choice
from cutlayer.common.job import Job
from cutlayer.label_party.audit import Audit, Reference, batch_leaks
from cutlayer.nonlabel_party.attacks import attacks
from cutlayer.nonlabel_party.curiosity import Curiosity
from cutlayer.nonlabel_party.view import CleanPositive, FirstLayer, StepView

ROWS, WIDTH = 128, 8192
_WARM_UP, _STEPS = 20, 120
_LIMIT = 6 << 30  # bytes of address space: should memory grow, the machine must not suffer
_KNOWLEDGE = {"clean_positive_gradient": True, "labelled_rows": 5}


def label_party(folder: Path) -> Callable[[int], None]:
    """The leak audit."""
    audit = Audit(multiclass=False)
    y_B = torch.arange(ROWS) % 2

    def step(number: int) -> None:
        g_BD = torch.randn(ROWS, WIDTH)
        leaks = batch_leaks(g_BD, torch.randn(ROWS, WIDTH), y_B, Reference(1, g_BD[1].clone()), multiclass=False)
        audit.record(number, 1, {"lab": leaks})

    return step


def lab(folder: Path) -> Callable[[int], None]:
    """All attacks, at both layers."""
    job = Job.model_validate(
        {"name": "wide", "epochs": 1, "batch_size": ROWS, "cut_layer": {"width": WIDTH}, "parties": ["lab"]}
        | {"knowledge": {"lab": _KNOWLEDGE}}
    )
    chosen = [Choice(name=name) for name in attacks.names() if attacks.get(name).needs <= job.granted("lab").kinds()]

    def fail(text: str) -> None:
        raise AssertionError(text)

    curiosity = Curiosity(job, "lab", chosen, folder, fail)
    row_ids = tuple(f"r{row}" for row in range(ROWS))
    known_labels = {row_id: row % 2 for row, row_id in enumerate(row_ids[:10])}

    def step(number: int) -> None:
        g_BD, first_BD = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
        curiosity.observe(
            StepView(
                step=number,
                row_ids=row_ids,
                x_BF=torch.zeros(ROWS, 1),
                z_Bd=torch.randn(ROWS, WIDTH),
                g_Bd=g_BD,
                clean_positive=CleanPositive(1, g_BD[1].clone()),
                granted=frozenset(_KNOWLEDGE),
                known_labels=known_labels,
                first=FirstLayer(first_BD, first_BD[1].clone()),
            )
        )

    return step


def main() -> None:
    """Take the steps, and print how much memory they took."""
    resource.setrlimit(resource.RLIMIT_AS, (_LIMIT, _LIMIT))
    torch.set_num_threads(1)
    take = {"label_party": label_party, "lab": lab}[sys.argv[1]](Path(sys.argv[2]))
    process, before = psutil.Process(), 0
    for number in range(1, _STEPS + 1):
        take(number)
        if number == _WARM_UP:
            before = process.memory_info().rss
    print((process.memory_info().rss - before) // 1_000_000)


if __name__ == "__main__":
    main()
