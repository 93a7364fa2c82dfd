"""Attacks on what curious parties have recorded: the same views, attacks and measure as beside training."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
import yaml
from rich.console import Console

from cutlayer.closing import console, leak_table
from cutlayer.common.config import Choice
from cutlayer.common.errors import UserError
from cutlayer.common.files import write_json
from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.schedule import Schedule
from cutlayer.nonlabel_party.attacks import attacks
from cutlayer.nonlabel_party.capture import Captured
from cutlayer.nonlabel_party.curiosity import Curiosity
from cutlayer.scoring import Labels, attack_figures

Leaks = dict[str, dict[str, dict[str, Any]]]


def run_attacks(folders: Sequence[Path], wanted: Sequence[str] | None, labels: Path | None, out: Path | None) -> None:
    """Run attacks on each of the captures in `folders`, and show what they found out.

    Args:
        wanted: attacks as NAME[:k=v]; None for all that fit each capture.
        labels: a label party's `labels.parquet`; by default that of the results around a capture, if it is there.
        out: gets `<party>/attacks/<attack>.parquet` and, with labels, `attacks.json`.

    Raises:
        UserError: a capture, an attack or the labels cannot be used, or there is neither `out` nor labels.
    """
    chosen = None if wanted is None else [parse_attack(text) for text in wanted]
    captures = {folder: Captured.open(folder) for folder in folders}
    files = {folder: labels or _labels_beside(folder) for folder in folders}
    if out is None and None in files.values():
        raise UserError(
            "no labels to measure with, and no folder for the guesses: give --labels FILE, --out DIR, or both"
        )
    if out is not None and out.exists() and any(out.iterdir()):
        raise UserError(f"--out {out}: not empty, and results are not overwritten; give a new folder or remove it")
    screen = console()
    with ExitStack() as stack:
        place = out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cutlayer-attack-")))
        found: Leaks = {}
        for name, (folder, captured) in zip(_names(captures), captures.items(), strict=True):
            _note(captured, folder, screen)
            attack_capture(captured, chosen, place / name, screen.print)
            if (file := files[folder]) is not None:
                found |= measure(captured, place / name, file, screen.print)
        if out is not None and found:
            write_json(out / "attacks.json", found)
    if found:
        screen.print(leak_table({"audit": {}, "attacks": found}))
    if out is not None:
        screen.print(f"files: {out}")


def parse_attack(text: str) -> Choice:
    """NAME[:k=v[:k=v]], where a value is YAML: `hint_cosine:hints=3`, `my_plugins:Centre:layers=[cut]`.

    Raises:
        UserError: not of that form.
    """
    parts = text.split(":")
    options = [part for part in parts if "=" in part]
    name = ":".join(part for part in parts if "=" not in part)
    try:
        if not all(name.split(":")):
            raise ValueError("a part of the name is empty")
        values = {key: yaml.safe_load(value) for key, _, value in (option.partition("=") for option in options)}
        return Choice(name=name, **values)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise UserError(f"--attack {text}: expected NAME or NAME:option=value, such as hint_cosine:hints=3") from error


def attack_capture(captured: Captured, chosen: Sequence[Choice] | None, folder: Path, warn: Any) -> None:
    """Let attacks look at a capture; their guesses go to `folder`/attacks.

    Raises:
        PluginError: an attack does not exist, does not fit the task, or needs knowledge that was not granted.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(captured.threads)
    try:
        choices = [_at_layers(captured, choice) for choice in (_battery(captured) if chosen is None else chosen)]
        curiosity = Curiosity(captured.job, captured.party, choices, folder / "attacks", warn)
        last = 0
        for view in captured.views():
            curiosity.observe(view)
            last = view.step
        curiosity.finish(captured.last_step or last)
        curiosity.clean()
    finally:
        torch.set_num_threads(before)


def measure(captured: Captured, folder: Path, labels: Path, say: Callable[[str], None]) -> Leaks:
    """The leak figures of the guesses in `folder`/attacks; `say` is told where rows have no label.

    Raises:
        UserError: the labels cannot be read, are not of two classes, or of other rows.
    """
    if captured.job.task != "binary":
        raise UserError(f"guesses of task {captured.job.task} have no leak AUC; give --out DIR, and no --labels")
    job = captured.job
    schedule = Schedule.of(job, len(captured.row_ids))
    try:
        truth = Labels.read(labels)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{labels}: expected a label party's labels.parquet with columns row_id and label: {error}"
        ) from error
    known = int((truth.of(pa.array(captured.row_ids, pa.string())) >= 0).sum())
    if not known:
        raise UserError(f"{labels}: has the label of no row of this capture; give that of the same run")
    if known < len(captured.row_ids):
        say(f"{labels}: has the labels of {known:,} of {len(captured.row_ids):,} rows; the others are not measured")
    return attack_figures(sorted((folder / "attacks").glob("*.parquet")), truth, schedule.steps_per_epoch)


def _battery(captured: Captured) -> list[Choice]:
    """All attacks that fit the task and the granted knowledge."""
    granted = captured.job.granted(captured.party).kinds()
    known = {name: attacks.get(name) for name in attacks.names()}
    return [Choice(name=n) for n, kind in known.items() if captured.job.task in kind.tasks and kind.needs <= granted]


def _at_layers(captured: Captured, choice: Choice) -> Choice:
    """`choice` at the layers that were recorded, unless it names others itself."""
    if captured.first_layer or "layers" in choice.options or not hasattr(attacks.get(choice.name), "layers"):
        return choice
    return Choice(name=choice.name, **choice.options, layers=["cut"])


def _labels_beside(folder: Path) -> Path | None:
    """The labels of the results that the capture <results>/<party>/capture is part of."""
    file = folder.resolve().parent.parent / LABEL_PARTY / "labels.parquet"
    return file if file.is_file() else None


def _names(captures: dict[Path, Captured]) -> list[str]:
    """What to call each capture: by its party; where two are of one, a number is added."""
    names: list[str] = []
    for captured in captures.values():
        numbered = [captured.party, *(f"{captured.party}-{n}" for n in range(2, len(captures) + 1))]
        names.append(next(name for name in numbered if name not in names))
    return names


def _note(captured: Captured, folder: Path, screen: Console) -> None:
    if captured.full_at is not None:
        screen.print(f"{folder}: was full at step {captured.full_at}; the figures are of the steps before")
    if captured.last_step is None:
        screen.print(
            f"{folder}: the run has not finished; the figures are of what was recorded up to its last checkpoint"
        )
