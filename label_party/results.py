"""What the label party reports while it trains and leaves behind when it ends."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cutlayer import __version__
from cutlayer.common.config import RunFile
from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.leakage import null_floor
from cutlayer.common.process import peak_rss_bytes
from cutlayer.common.schedule import Step
from cutlayer.common.telemetry import Progress
from cutlayer.label_party.audit import BatchLeak
from cutlayer.label_party.links import Link
from cutlayer.label_party.training import LabelTraining

Figures = dict[str, float | int | None]
_LEAK_FIGURES = ("mean", "mean_flipped", "p95", "max", "pooled", "pooled_flipped", "null_floor", "skipped")
_OF_THIS_PROCESS = ("began", "_ended", "_seconds_before")
_PACKAGES = ("grpcio", "numpy", "protobuf", "torch")


@dataclass
class RunFigures:
    """Loss, speed and evaluation figures of a run as it goes on."""

    began: float | None = None
    trained_rows: int = 0
    loss: float | None = None
    utility: Figures = field(default_factory=dict)
    leak: dict[str, float] = field(default_factory=dict)
    chance: dict[str, float] = field(default_factory=dict)
    stated: dict[str, float] = field(default_factory=dict)  # by defenses and objective, of the last training step
    _epoch_loss: float = 0.0
    _epoch_rows: int = 0
    _seconds_before: float = 0.0
    _ended: float | None = None
    evaluations: list[Figures] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """What a checkpoint must hold, as values of JSON."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _OF_THIS_PROCESS}
        return found | {"_seconds_before": self.seconds}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> RunFigures:
        """What `record` gave."""
        return cls(**record)

    def trained(self, rows: int, loss: float, leak: Mapping[str, BatchLeak], training: LabelTraining) -> None:
        """A training step of `rows` rows is done."""
        parties = len(training.job.parties)
        self.trained_rows += rows
        self.loss = loss
        known = {attack: found for attack, found in leak.items() if found.auc is not None}
        self.leak = {attack: found.auc for attack, found in known.items() if found.auc is not None}
        self.chance = {attack: null_floor(*found.sizes, parties) for attack, found in known.items()}
        self._epoch_loss += loss * rows
        self._epoch_rows += rows
        self.stated = training.telemetry()

    def end_epoch(self, step: Step, test: Mapping[str, float | None], training: LabelTraining) -> Figures:
        """The record of an epoch for `metrics.jsonl`."""
        self.utility = {**test, "train_loss": self._epoch_loss / max(self._epoch_rows, 1)}
        self._epoch_loss, self._epoch_rows = 0.0, 0
        record: Figures = {"step": step.number, "epoch": step.epoch, **self.utility}
        for attack, figures in training.audit.end_epoch().items():
            record |= {f"leak_{attack}_{name}": figures[name] for name in _LEAK_FIGURES}
        if training.bound.stated:
            record |= {"bound_step": training.bound.per_step, "bound_run": training.bound.whole_run}
        record |= self.stated  # not what they state now: a process that was started after that step has no last one
        record |= {f"objective_{name}": value for name, value in training.objective.end_epoch().items()}
        self.evaluations.append(record)
        return record

    @property
    def seconds(self) -> float:
        """Time since the first step, when all parties had sent it, without what was lost by going back."""
        now = self._ended or time.monotonic()
        return self._seconds_before + now - (self.began or now)

    def start(self) -> None:
        """Called at every step; the first one of this process starts the clock."""
        self.began = self.began or time.monotonic()

    def stop(self) -> None:
        """Training has ended."""
        self._ended = time.monotonic()

    def progress(self, step: Step, training: LabelTraining, epochs: int) -> Progress:
        """What the display shows."""
        schedule, bound = training.schedule, training.bound
        return Progress(
            step=step.number,
            steps=schedule.steps,
            epoch=step.epoch,
            epochs=epochs,
            loss=self.loss,
            samples_per_second=self.trained_rows / max(self.seconds, 1e-9),
            eta_seconds=self.seconds / step.number * (schedule.steps - step.number),
            leak=self.leak,
            chance=self.chance,
            bound={"step": bound.per_step, "run": bound.whole_run} if bound.stated else None,
            exact_steps=training.unprotected.exact_steps or None,
            test_auc=self.utility.get("test_auc"),
            kind=step.kind,
            rows=len(step.rows),
        )


def run_record(run_file: RunFile) -> dict[str, Any]:
    """`run.json`: the resolved file without secrets, and the versions it ran on."""
    return {
        "schema": 1,
        "config": run_file.public_dump(),
        "job_digest": run_file.job.digest().hex(),
        "versions": {"cutlayer": __version__, "python": platform.python_version()} | _versions(),
    }


def summary_record(
    run_file: RunFile, training: LabelTraining, figures: RunFigures, links: Mapping[str, Link]
) -> dict[str, Any]:
    """`summary.json`, but for what only the non-label parties know."""
    job, section = run_file.job, run_file.label_section()
    objective = training.objective.summary()
    return {
        "schema": 1,
        "job": job.name,
        "task": job.task,
        "defense": {"name": section.defense.name, **section.defense.options},
        **({"objective": objective} if objective else {}),
        "utility": figures.utility,
        "leak": {"audit": training.audit.summary()},
        "knowledge": {party: granted.model_dump() for party, granted in job.knowledge.items()},
        "bound": training.bound.summary(),
        "releases": training.releases(),
        "steps": training.schedule.train_steps,
        "steps_per_epoch": training.schedule.steps_per_epoch,
        "epochs": job.epochs,
        "rows": len(training.schedule.train_rows),
        "test_rows": len(training.schedule.test_rows),
        "seconds": figures.seconds,
        "samples_per_second": figures.trained_rows / max(figures.seconds, 1e-9),
        "bytes": _bytes(links),
        "parties": {LABEL_PARTY: {"pid": os.getpid(), "peak_rss_bytes": peak_rss_bytes()}},
    }


def _bytes(links: Mapping[str, Link]) -> dict[str, int]:
    kinds = ("activations", "gradients", "overhead")
    return {kind: sum(getattr(link.traffic, kind) for link in links.values()) for kind in kinds}


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # vendored without metadata
            found[package] = "unknown"
    return found
