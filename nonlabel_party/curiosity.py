"""Runs a party's attacks beside its training, and keeps their guesses in the party's private folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from torch import Tensor

from cutlayer.common.checkpoints import Tensors, below, prefixed
from cutlayer.common.config import Choice
from cutlayer.common.errors import PluginError, StorageError
from cutlayer.common.job import Job
from cutlayer.nonlabel_party.attacks import Attack, attacks
from cutlayer.nonlabel_party.guesses import Guesses
from cutlayer.nonlabel_party.recorder import Recorder
from cutlayer.nonlabel_party.view import StepView

FINAL = 0  # in place of a step: what is guessed when training has ended


class Curiosity:
    """The attacks of one party.

    Args:
        chosen: the attacks of the run file.
        folder: where `<attack>.parquet` goes.
        warn: told in words when an attack fails; training goes on without it.
        recorder: keeps the views for attacks after training.

    Raises:
        PluginError: an attack does not exist, does not fit the task, or needs knowledge that is not granted.
    """

    def __init__(
        self,
        job: Job,
        party: str,
        chosen: Sequence[Choice],
        folder: Path,
        warn: Callable[[str], None],
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._warn = warn
        self._make = [partial(make_attack, job, party, choice) for choice in chosen]
        self._names = [choice.name for choice in chosen]
        self._folder = folder
        self._running: dict[str, tuple[Attack, Guesses]] = {}
        self._all_guesses: list[Guesses] = []
        self._start()

    def _start(self) -> None:
        """All attacks as they are at the beginning."""
        made = [make() for make in self._make]
        self._running = {}
        for wanted, attack in zip(self._names, made, strict=True):
            name = _free_name(wanted, self._running)
            self._running[name] = (attack, Guesses(self._folder / f"{name}.parquet"))
        self._all_guesses = [guesses for _, guesses in self._running.values()]

    @property
    def awake(self) -> bool:
        """Whether anyone is looking."""
        return bool(self._running) or self._recorder is not None

    @property
    def looks_at_first_layer(self) -> bool:
        """Whether an attack or the recorder wants the gradient at the first layer."""
        recorded = self._recorder is not None and self._recorder.looks_at_first_layer
        return recorded or any("first" in getattr(attack, "layers", ()) for attack, _ in self._running.values())

    def begin(self, row_ids: npt.NDArray[np.object_], x_NF: Tensor, known_labels: Mapping[str, int]) -> None:
        """The rows are known: ids (N,), features (N, F), and labels that the job grants."""
        if self._recorder is not None:
            self._recorder.begin(row_ids, x_NF, known_labels)

    def observe(self, view: StepView) -> None:
        """Show one training step to the recorder and to every attack."""
        if self._recorder is not None:
            self._recorder.add(view)
        for name in list(self._running):
            attack, guesses = self._running[name]
            try:
                guesses.add(view.step, attack.observe(view))
            except StorageError:  # of the guesses: the party must end, not the attack
                raise
            except Exception as error:
                self._warn(f"attack {name!r} failed at step {view.step} and is off from now on: {error!r}")
                del self._running[name]

    def save(self, step: int) -> tuple[Tensors, list[str]]:
        """Make all guesses up to `step` safe; what a checkpoint must hold of the attacks, and which still look."""
        tensors: Tensors = {}
        if self._recorder is not None:
            self._recorder.end_part(step)
        for name, (attack, guesses) in self._running.items():
            guesses.end_part(step)
            tensors |= prefixed(name, attack.state())
        return tensors, list(self._running)

    def go_back(self, step: int, tensors: Mapping[str, Tensor], looking: Sequence[str] | None) -> None:
        """Go on after `step` with what `save` gave then; `looking` is None at the beginning."""
        self._start()
        if self._recorder is not None:
            self._recorder.go_back(step)
        for name in list(self._running):
            attack, guesses = self._running[name]
            guesses.go_back(step)
            if looking is not None and name not in looking:
                del self._running[name]
            elif looking is not None:
                attack.restore(below(name, tensors))

    def finish(self, step: int) -> None:
        """Let the attacks draw their conclusions, and write what they guessed; `step` was the last one."""
        if self._recorder is not None:
            self._recorder.finish(step)
        for attack, guesses in self._running.values():
            guesses.end_part(step)
            guesses.add(FINAL, attack.infer())
            guesses.merge(step + 1)

    def clean(self) -> None:
        """Remove what only a run that goes back needs."""
        for guesses in self._all_guesses:  # also of attacks that are off
            guesses.drop_parts()


def make_attack(job: Job, party: str, choice: Choice) -> Attack:
    """The attack of a run file, by `party`.

    Raises:
        PluginError: it does not fit the task, or needs knowledge that the job does not grant.
    """
    attack = attacks.create(choice.name, choice.options)
    if job.task not in attack.tasks:
        raise PluginError(f"attack {choice.name!r} is for task {', '.join(sorted(attack.tasks))}, not {job.task}")
    if missing := attack.needs - job.granted(party).kinds():
        value = "5" if min(missing) == "labelled_rows" else "true"
        raise PluginError(f"attack {choice.name!r} needs job.knowledge.{party}: {{{min(missing)}: {value}}}")
    return attack


def _free_name(name: str, taken: dict[str, tuple[Attack, Guesses]]) -> str:
    plain = name.replace(":", ".")
    candidates = [plain, *(f"{plain}-{n}" for n in range(2, len(taken) + 2))]
    return next(candidate for candidate in candidates if candidate not in taken)
