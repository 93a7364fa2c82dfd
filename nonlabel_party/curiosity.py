"""Runs a party's attacks beside its training, and keeps their guesses in the party's private folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cutlayer.common.config import Choice, GrantedKnowledge, Job
from cutlayer.common.errors import PluginError
from cutlayer.nonlabel_party.attacks import Attack, attacks
from cutlayer.nonlabel_party.view import LabelGuess, StepView

FINAL = 0  # in place of a step: what is guessed when training has ended
_ROWS_PER_GROUP = 1 << 18

_SCHEMA = pa.schema([("step", pa.int64()), ("layer", pa.string()), ("row_id", pa.string()), ("score", pa.float64())])


class Curiosity:
    """The attacks of one party.

    Args:
        chosen: the attacks of the run file.
        folder: where `<attack>.parquet` goes.
        warn: told in words when an attack fails; training goes on without it.

    Raises:
        PluginError: an attack does not exist, does not fit the task, or needs knowledge that is not granted.
    """

    def __init__(
        self, job: Job, party: str, chosen: Sequence[Choice], folder: Path, warn: Callable[[str], None]
    ) -> None:
        self._warn = warn
        self._running: dict[str, tuple[Attack, _Guesses]] = {}
        made = [(choice.name, make_attack(job, job.granted(party), choice)) for choice in chosen]
        if made:
            folder.mkdir(exist_ok=True)
        for wanted, attack in made:
            name = _free_name(wanted, self._running)
            self._running[name] = (attack, _Guesses(folder / f"{name}.parquet"))

    @property
    def awake(self) -> bool:
        """Whether any attack is looking."""
        return bool(self._running)

    @property
    def looks_at_first_layer(self) -> bool:
        """Whether an attack wants the gradient at the first layer."""
        return any("first" in getattr(attack, "layers", ()) for attack, _ in self._running.values())

    def observe(self, view: StepView) -> None:
        """Show one training step to every attack."""
        for name in list(self._running):
            attack, guesses = self._running[name]
            try:
                guesses.add(view.step, attack.observe(view))
            except Exception as error:
                self._warn(f"attack {name!r} failed at step {view.step} and is off from now on: {error!r}")
                del self._running[name]

    def finish(self) -> None:
        """Let the attacks draw their conclusions, and write what they guessed."""
        for attack, guesses in self._running.values():
            guesses.add(FINAL, attack.infer())
            guesses.close()


def make_attack(job: Job, granted: GrantedKnowledge, choice: Choice) -> Attack:
    """The attack of a run file.

    Raises:
        PluginError: it does not fit the task, or needs knowledge that the job does not grant.
    """
    attack = attacks.create(choice.name, choice.options)
    if job.task not in attack.tasks:
        raise PluginError(f"attack {choice.name!r} is for task {', '.join(sorted(attack.tasks))}, not {job.task}")
    if missing := attack.needs - granted.kinds():
        raise PluginError(f"attack {choice.name!r} needs job.knowledge.<party>: {{{min(missing)}: true}}")
    return attack


class _Guesses:
    """A Parquet file that grows as guesses come; it gets its name when it is whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._growing = path.with_suffix(".part")
        self._writer = pq.ParquetWriter(self._growing, _SCHEMA)
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, step: int, guesses: Sequence[LabelGuess]) -> None:
        for guess in guesses:
            count = len(guess.row_ids)
            columns = [
                pa.array([step] * count, pa.int64()),
                pa.array([guess.layer] * count, pa.string()),
                pa.array(guess.row_ids, pa.string()),
                pa.array(guess.score_B.detach().double().numpy(), pa.float64()),
            ]
            self._batches.append(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
            self._rows += count
        if self._rows > _ROWS_PER_GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()
        self._growing.rename(self._path)

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._batches, schema=_SCHEMA))
        self._batches, self._rows = [], 0


def _free_name(name: str, taken: dict[str, tuple[Attack, _Guesses]]) -> str:
    plain = name.replace(":", ".")
    candidates = [plain, *(f"{plain}-{n}" for n in range(2, len(taken) + 2))]
    return next(candidate for candidate in candidates if candidate not in taken)
