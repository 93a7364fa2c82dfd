"""A non-label party as a process: load, align rows, train step by step, leave its results in its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from cutlayer.common import run_files
from cutlayer.common.alignment import OwnIds, rows_digest
from cutlayer.common.certificates import Identity
from cutlayer.common.checkpoints import CheckpointOwner, CheckpointStore
from cutlayer.common.config import RunFile
from cutlayer.common.datasets import load_table
from cutlayer.common.errors import (
    ConfigError,
    Interrupted,
    PeerError,
    RefusedError,
    ReplacedError,
    RolledBack,
    is_lasting,
)
from cutlayer.common.fields import given_address
from cutlayer.common.files import DirectoryLock, private_folder, write_json
from cutlayer.common.handshake import Terms
from cutlayer.common.job import section_of
from cutlayer.common.job_keys import JobKeys
from cutlayer.common.metrics import Metrics, served
from cutlayer.common.models import save_model
from cutlayer.common.process import peak_rss_bytes, run_party
from cutlayer.common.run_state import RunState
from cutlayer.common.schedule import Schedule
from cutlayer.common.tables import Features, Table, prepare
from cutlayer.common.telemetry import Telemetry, make_display
from cutlayer.common.tls import own_certificate
from cutlayer.nonlabel_party.answers import GrantedLabels, Held
from cutlayer.nonlabel_party.client import LabelPartyClient
from cutlayer.nonlabel_party.curiosity import Curiosity
from cutlayer.nonlabel_party.recorder import Recorder
from cutlayer.nonlabel_party.saving import NOTHING_SAVED, SavedStep, restore
from cutlayer.nonlabel_party.steps import Steps
from cutlayer.nonlabel_party.training import BottomTraining
from cutlayer.nonlabel_party.walk import Walk

_LAST_WORD_S = 15.0  # how long a party that has done all steps waits for a label party that has gone, to start again


def command(
    file: Annotated[Path, typer.Argument(help="Run file with a `job` section and this party's own.")],
    name: Annotated[str, typer.Option(help="Name of this party in `job.parties`.")],
    out: Annotated[Path | None, typer.Option(help="Folder for results; default runs/<job name>.")] = None,
    connect: Annotated[str | None, typer.Option(help="Address of the label party instead of the file's.")] = None,
    verbose: Annotated[bool, typer.Option(help="Show tracebacks of internal errors.")] = False,
    events: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run a non-label party: it owns features and a bottom model, and connects to the label party."""

    def body() -> None:
        run_file = run_files.load(file)
        NonlabelParty(run_file, name, out or Path("runs") / run_file.job.name, connect, events=events).run()

    raise typer.Exit(run_party(name, body, verbose=verbose))


class NonlabelParty:
    """One run of a non-label party.

    Args:
        out: folder of the run; this party writes its private folder inside and nothing else.
        connect: address in place of the file's.
    """

    def __init__(self, run_file: RunFile, name: str, out: Path, connect: str | None, *, events: bool) -> None:
        self._job = run_file.job
        self._name = name
        self._section = run_file.nonlabel_section(name)
        self._setting = run_file.setting(name)
        self._folder = private_folder(out / name)
        metrics = Metrics(self._job.name, name)
        self._telemetry = Telemetry(name, self._folder, make_display(events), prometheus=metrics)
        self._address = given_address("--connect", connect) or self._section.connect
        owner = CheckpointOwner(name, self._job.digest().hex())
        self._store = CheckpointStore(self._folder, owner, self._job.checkpoint.keep, self._telemetry.warning)
        self._state: RunState
        self._curiosity: Curiosity
        self._steps: Steps | None = None

    def run(self) -> None:
        """Everything from start to end; raises what ends the run."""
        torch.set_num_threads(self._section.threads)
        with DirectoryLock(self._folder), self._telemetry:
            self._state = RunState(self._folder, self._job.digest(), self._setting)
            if self._state.finished:
                self._telemetry.done(f"this run is finished; results are in {self._folder}")
                return
            if warning := self._state.begin(self._section.threads):
                self._telemetry.warning(warning)
            where = f"{section_of(self._name)}.metrics.listen"
            with served(self._telemetry.prometheus, self._section.metrics, where, self._telemetry.info):
                self._take_part()

    def _take_part(self) -> None:
        self._client = self._make_client()
        try:
            self._run()
        except BaseException as error:
            self._save_on_the_way_out(error)
            if (reason := _farewell(error)) is not None:
                self._client.leave(reason)
            raise
        finally:
            self._client.close()

    def _make_client(self) -> LabelPartyClient:
        owner, where = Identity(self._job.name, self._name), f"{section_of(self._name)}.connect"
        own = own_certificate(self._section, owner, where, self._address, self._telemetry.warning)
        self._telemetry.prometheus.certificate(own)
        return LabelPartyClient(
            self._address,
            self._terms(None, None),
            self._job.limits(self._name),
            self._section.timeouts,
            self._job.cut_layer.encoding,
            self._telemetry,
            own,
        )

    def _make_curiosity(self) -> Curiosity:
        job, name, section, warn = self._job, self._name, self._section, self._telemetry.warning
        recorder = None
        if section.capture is not None:
            recorder = Recorder(job, name, section.capture, section.threads, self._folder / "capture", warn)
        return Curiosity(job, name, section.attacks, self._folder / "attacks", warn, recorder)

    def _run(self) -> None:
        self._curiosity = self._make_curiosity()
        table = load_table(self._section.data)
        for note in table.notes:
            self._telemetry.info(note)
        own = OwnIds(table.ids, self._section.shared_secret())
        while not self._align_and_train(table, own):
            self._telemetry.info("beginning again: the session goes on from a checkpoint")

    def _align_and_train(self, table: Table, own: OwnIds) -> bool:
        """From the rows to the end; False where all have to begin again."""
        written = (self._folder / "party.json").exists()
        patience_s = min(_LAST_WORD_S, self._section.timeouts.connect_s) if written else None
        saved, granted, run = self._store.steps(), self._granted(), self._state.run
        try:
            held = self._client.align(own, table.origin, saved, patience_s, granted, run)
        except PeerError as error:
            if not written:
                raise
            self._end_alone(error)
            return True
        return self._train_to_the_end(table, own, held)

    def _granted(self) -> GrantedLabels:
        return GrantedLabels(self._job.granted(self._name).labelled_rows, self._job.classes)

    def _end_alone(self, error: PeerError) -> None:
        """Every step is done and the results are written, but the label party has gone: most likely it has finished."""
        self._telemetry.warning(f"the label party did not confirm the end: {error}")
        self._telemetry.done(
            f"every step is done; results are in {self._folder}. If another party still waits for this one, "
            "start it again with the same --out"
        )

    def _train_to_the_end(self, table: Table, own: OwnIds, held: Held) -> bool:
        try:
            steps = self._prepare(table, own, held)
            steps.save_last()  # step 0, where the run begins
            if steps.left:
                (self._folder / "party.json").unlink(missing_ok=True)  # it says that every step is done
            steps.run()
            self._write_results(steps)
            self._client.finish()
        except RolledBack:
            return False
        self._state.finish()  # before what going back needs is removed
        self._curiosity.clean()
        self._telemetry.done(f"finished; results are in {self._folder}")
        return True

    def _prepare(self, table: Table, own: OwnIds, held: Held) -> Steps:
        order = own.order[held.mask]
        self._telemetry.info(f"{len(order)} rows matched; {len(table.ids) - len(order)} of {table.origin} dropped")
        digest = rows_digest(own.digests[held.mask])
        self._state.of_rows(digest, held.run)
        self._store.of_rows(digest)
        schedule = Schedule.of(self._job, len(order))
        training = BottomTraining(self._job, self._name, self._section, self._features(table, order, schedule))
        saved = self._go_back(training, held.resume_step)
        self._client.begin_training(self._terms(len(order), digest), schedule.steps, saved.link)
        ids = np.asarray(table.ids, dtype=object)[order]
        known = {str(ids[row]): label for row, label in held.labels.items()}
        self._curiosity.begin(ids, training.features, known)
        walk = Walk(training, self._client, schedule, self._curiosity, self._name, ids, self._job, known)
        self._steps = Steps(walk, self._client, self._store, self._telemetry, self._job.epochs, saved)
        return self._steps

    def _go_back(self, training: BottomTraining, step: int) -> SavedStep:
        """Put training and attacks where they stood after `step`; what is saved of it, if anything at the beginning."""
        self._telemetry.prometheus.begins(step)
        self._steps, saved = None, NOTHING_SAVED
        checkpoint = self._store.load(step)
        if checkpoint is None:
            self._curiosity.go_back(0, {}, None)
        else:
            self._telemetry.info(f"going on from the checkpoint of step {step}")
            saved = restore(checkpoint, training, self._curiosity)
        self._store.drop_after(step)
        return saved

    def _features(self, table: Table, order: np.ndarray, schedule: Schedule) -> Features:
        features = prepare(table, order, schedule.train_rows, standardise=self._section.data.standardise)
        if features.spec.width == 0:
            raise ConfigError(f"{table.origin} has no feature columns; party {self._name!r} needs at least one")
        for note in features.notes:
            self._telemetry.info(note)
        return features

    def _save_on_the_way_out(self, error: BaseException) -> None:
        """Where the run may be taken up again, lose none of its steps."""
        if self._steps is None or not isinstance(error, Interrupted | PeerError):
            return
        try:
            self._steps.save_last()
        except OSError as failure:
            self._telemetry.warning(f"the last step could not be saved: {failure}")

    def _write_results(self, steps: Steps) -> None:
        seconds, walk = steps.seconds, steps.walk
        walk.curiosity.finish(walk.schedule.steps)
        save_model(self._folder / "model", walk.training.model)
        wait = self._client.traffic.wait_seconds
        record = {
            "pid": os.getpid(),
            "peak_rss_bytes": peak_rss_bytes(),
            "seconds": seconds,
            "wait_seconds": wait,
            "compute_seconds": max(seconds - wait, 0.0),
            "reopened": self._client.traffic.reopened,
            "history": self._client.history.hex(),
        }
        write_json(self._folder / "party.json", record)

    def _terms(self, count: int | None, digest: bytes | None) -> Terms:
        job = self._job
        keys = JobKeys.of(job.model_dump(mode="json"), self._section.shared_secret())
        return Terms(self._name, job.digest(), job.cut_layer.width_of(self._name), count, digest, keys)


def _farewell(error: BaseException) -> str | None:
    """How the label party is told of `error`; None where this process may be started again."""
    if isinstance(error, Interrupted):
        return "STOPPED"
    if isinstance(error, RefusedError):  # the label party waits for the right one
        return None
    if isinstance(error, ReplacedError):  # who speaks under this name now has not failed
        return None
    return "FAILED" if is_lasting(error) else None
