"""What a party tells while it runs, and what can show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from cutlayer.common.leakage import flipped

Level = Literal["info", "warning", "error"]
Record = Mapping[str, float | int | None]

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_DETAILS = ("_max", "_skipped", "_pooled", "_flipped", "_null_floor")  # of the leak figures, kept for the file
_LEAK = "leak (flipped, chance)"


@dataclass(frozen=True)
class Progress:
    """How far a party is.

    Attributes:
        loss: mean loss of the last training batch.
        samples_per_second: training rows per second.
        leak: leak AUC of the last batch by attack, between 0 and 1; the largest is shown, beside the largest of those
            who may turn their scores round.
        chance: what a score that knows nothing reaches on that batch, by attack.
        bound: what no leak AUC exceeds by the defense's model, of a `step` and of the `run` so far.
        exact_steps: releases so far that left as they were; None where there is none.
        test_auc: of the last evaluation.
        kind: `train` or `evaluate`; of this step, as all that follows.
        rows: of the batch.
        seconds: from the end of the step before; `waited` of them for other parties.
    """

    step: int
    steps: int
    epoch: int | None = None
    epochs: int | None = None
    loss: float | None = None
    samples_per_second: float | None = None
    eta_seconds: float | None = None
    leak: Mapping[str, float] | None = None
    chance: Mapping[str, float] | None = None
    bound: Mapping[str, float] | None = None
    exact_steps: int | None = None
    test_auc: float | None = None
    kind: str = "train"
    rows: int = 0
    seconds: float = 0.0
    waited: float = 0.0

    @property
    def finished(self) -> bool:
        """Whether this is the last step."""
        return self.step >= self.steps


class Display(Protocol):
    """Shows what parties tell. One display may show several parties."""

    def message(self, party: str, level: Level, text: str) -> None:
        """A line of the log."""

    def listening(self, party: str, address: str) -> None:
        """The party accepts connections at `address`, host:port."""

    def progress(self, party: str, progress: Progress) -> None:
        """The newest step."""

    def evaluation(self, party: str, record: Record) -> None:
        """The figures of an evaluation point."""

    def done(self, party: str, text: str) -> None:
        """The party has finished its work."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def message_text(party: str, level: Level, text: str) -> str:
    """A log line for a person."""
    return f"{party}: {text}" if level == "info" else f"{party}: {level}: {text}"


def progress_figures(progress: Progress) -> dict[str, str]:
    """The figures of `progress` that are known, heading -> text, in the order to show them."""
    figures = {"step": f"{progress.step}/{progress.steps}"}
    if progress.epoch is not None:
        figures["epoch"] = f"{progress.epoch}/{progress.epochs}" if progress.epochs else f"{progress.epoch}"
    if progress.loss is not None:
        figures["loss"] = f"{progress.loss:.4g}"
    if progress.test_auc is not None:
        figures["AUC"] = f"{progress.test_auc:.3f}"
    if progress.leak:
        figures[_LEAK] = _leak_text(progress.leak, progress.chance or {})
    if progress.bound:
        figures["bound (run)"] = "{step:.2f} ({run:.2f})".format(**progress.bound)
    if progress.exact_steps:
        figures["as is"] = f"{progress.exact_steps}"
    if progress.samples_per_second is not None:
        figures["samples/s"] = f"{progress.samples_per_second:,.0f}"
    if progress.eta_seconds is not None:
        figures["ETA"] = duration(progress.eta_seconds)
    return figures


def _leak_text(leak: Mapping[str, float], chance: Mapping[str, float]) -> str:
    worst = max(leak, key=leak.__getitem__)
    others = [max(flipped(auc) for auc in leak.values()), *([chance[worst]] if worst in chance else [])]
    return f"{leak[worst]:.2f} ({', '.join(f'{value:.2f}' for value in others)})"


def progress_text(party: str, progress: Progress) -> str:
    """`progress` as one line."""
    return f"{party}: " + ", ".join(f"{heading} {text}" for heading, text in progress_figures(progress).items())


def evaluation_text(party: str, record: Record) -> str:
    """The main figures of an evaluation point as one line; figures that no one has are left out."""
    shown = {key: f"{key} {value:.4g}" for key, value in record.items() if value is not None and not _is_detail(key)}
    for key in shown:
        if (turned := record.get(f"{key}_flipped")) is not None:
            shown[key] += f" (flipped {turned:.4g})"
        if (chance := record.get(f"{key.removesuffix('_p95')}_null_floor")) is not None:
            shown[key] += f" (chance {chance:.4g})"
    return f"{party}: " + ", ".join(shown.values())


def _is_detail(key: str) -> bool:
    return key.startswith("defense_") or (key.startswith("leak_") and key.endswith(_DETAILS))


def duration(seconds: float) -> str:
    """Seconds as m:ss or h:mm:ss."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def human_bytes(count: float) -> str:
    """A number of bytes with three digits: `11.6 MB`."""
    power = 0
    while count >= 999.5 and power < len(_UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.3g} {_UNITS[power]}"
