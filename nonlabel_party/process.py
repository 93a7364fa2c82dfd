"""A non-label party as a process: load, align rows, train step by step, leave its results in its folder."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from cutlayer.common import run_files
from cutlayer.common.alignment import OwnIds, rows_digest
from cutlayer.common.certificates import Identity
from cutlayer.common.config import RunFile
from cutlayer.common.datasets import load_table
from cutlayer.common.errors import ConfigError, Interrupted
from cutlayer.common.files import DirectoryLock, private_folder, write_json
from cutlayer.common.models import save_model
from cutlayer.common.process import peak_rss_bytes, run_party
from cutlayer.common.schedule import Schedule
from cutlayer.common.session import Terms
from cutlayer.common.tables import Features, Table, prepare
from cutlayer.common.telemetry import Progress, Telemetry, make_display
from cutlayer.common.tls import own_certificate
from cutlayer.nonlabel_party.client import LabelPartyClient
from cutlayer.nonlabel_party.curiosity import Curiosity
from cutlayer.nonlabel_party.training import BottomTraining
from cutlayer.nonlabel_party.walk import Walk


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
        self._folder = private_folder(out / name)
        self._telemetry = Telemetry(name, self._folder, make_display(events))
        self._address = connect or self._section.connect
        self._began = time.monotonic()

    def run(self) -> None:
        """Everything from start to end; raises what ends the run."""
        torch.set_num_threads(self._section.threads)
        with DirectoryLock(self._folder), self._telemetry:
            self._client = self._make_client()
            try:
                self._run()
                self._client.leave("FINISHED")
            except BaseException as error:
                self._client.leave("STOPPED" if isinstance(error, Interrupted) else "FAILED")
                raise
            finally:
                self._client.close()

    def _make_client(self) -> LabelPartyClient:
        owner, where = Identity(self._job.name, self._name), f"nonlabel_parties.{self._name}.connect"
        return LabelPartyClient(
            self._address,
            self._terms(None, None),
            self._job.limits(self._name),
            self._section.timeouts,
            self._job.cut_layer.encoding,
            self._telemetry.info,
            own_certificate(self._section, owner, where, self._address, self._telemetry.warning),
        )

    def _run(self) -> None:
        curiosity = Curiosity(
            self._job, self._name, self._section.attacks, self._folder / "attacks", self._telemetry.warning
        )
        table = load_table(self._section.data)
        for note in table.notes:
            self._telemetry.info(note)
        own = OwnIds(table.ids, self._section.shared_secret())
        held = self._client.align(own, table.origin)
        order = own.order[held]
        self._telemetry.info(f"{len(order)} rows matched; {len(table.ids) - len(order)} of {table.origin} dropped")
        schedule = Schedule(self._job.seed, len(order), self._job.test_fraction, self._job.batch_size, self._job.epochs)
        training = BottomTraining(self._job, self._name, self._section, self._features(table, order, schedule))
        self._client.begin_training(self._terms(len(order), rows_digest(own.digests[held])), schedule.steps)
        walk = Walk(
            training,
            self._client,
            schedule,
            curiosity,
            self._name,
            np.asarray(table.ids, dtype=object)[order],
            self._job,
        )
        self._train(walk)
        self._write_results(training, walk)

    def _features(self, table: Table, order: np.ndarray, schedule: Schedule) -> Features:
        features = prepare(table, order, schedule.train_rows, standardise=self._section.data.standardise)
        if features.spec.width == 0:
            raise ConfigError(f"{table.origin} has no feature columns; party {self._name!r} needs at least one")
        for note in features.notes:
            self._telemetry.info(note)
        return features

    def _train(self, walk: Walk) -> None:
        self._began = time.monotonic()
        schedule = walk.schedule
        for number in range(1, schedule.steps + 1):
            step = schedule.at(number)
            answer = walk.step(step)
            self._telemetry.step(Progress(step=number, steps=schedule.steps, epoch=step.epoch, epochs=self._job.epochs))
            if answer.metrics:
                self._telemetry.evaluation({"step": number, "epoch": step.epoch, **answer.metrics})

    def _write_results(self, training: BottomTraining, walk: Walk) -> None:
        seconds = time.monotonic() - self._began
        walk.curiosity.finish()
        save_model(self._folder / "model", training.model)
        wait = self._client.traffic.wait_seconds
        record = {
            "pid": os.getpid(),
            "peak_rss_bytes": peak_rss_bytes(),
            "seconds": seconds,
            "wait_seconds": wait,
            "compute_seconds": seconds - wait,
            "reopened": self._client.traffic.reopened,
            "history": self._client.history.hex(),
        }
        write_json(self._folder / "party.json", record)
        self._telemetry.done(f"finished; results are in {self._folder}")

    def _terms(self, count: int | None, digest: bytes | None) -> Terms:
        job = self._job
        return Terms(self._name, job.digest(), job.cut_layer.width_of(self._name), count, digest)
