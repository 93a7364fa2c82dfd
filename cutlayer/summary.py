"""Puts the parties' results together when all have ended: what each attack found out, measured on the labels.

It runs on the machine that holds all folders: in research, or where the parties agreed to be audited.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cutlayer.common.errors import CutlayerError
from cutlayer.common.files import write_json
from cutlayer.common.job import LABEL_PARTY
from cutlayer.scoring import Figures, Labels, attack_figures


def merge(out: Path) -> dict[str, Any]:
    """Complete `out`/summary.json with the parties' figures and the leak of their attacks; returns the summary.

    Binary tasks get `leak.attacks[party][attack][layer]`: leak AUC by step (mean, p95, max, null_floor, batches,
    skipped), of each epoch as a whole (pooled, pooled_last), and `final`, that of what was guessed at the end, where
    the attack made such a guess. `_flipped` beside each: of an attacker who may turn the score round.

    Raises:
        CutlayerError: a party's files are missing or not whole.
    """
    try:
        return _merge(out)
    except (OSError, ValueError, KeyError) as error:
        raise CutlayerError(f"{out}: the parties' results cannot be put together: {error}") from error


def _merge(out: Path) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    summary["parties"] = {file.parent.name: _party_figures(file) for file in sorted(out.glob("*/party.json"))}
    if summary["task"] == "binary":
        summary["leak"]["attacks"] = {}
        if files := sorted(out.glob("*/attacks/*.parquet")):
            labels = Labels.read(out / LABEL_PARTY / "labels.parquet")
            summary["leak"]["attacks"] = attack_figures(files, labels, summary.get("steps_per_epoch"))
    write_json(out / "summary.json", summary)
    return summary


def _party_figures(file: Path) -> Figures:
    """The figures of party.json, without what is not a figure."""
    return {key: value for key, value in json.loads(file.read_text()).items() if isinstance(value, int | float)}
