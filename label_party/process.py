"""The label party as a process: listen, load, agree on rows, train step by step, leave results behind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import torch
import typer

from cutlayer.common import run_files
from cutlayer.common.alignment import OwnIds
from cutlayer.common.certificates import Identity
from cutlayer.common.checkpoints import CheckpointOwner, CheckpointStore
from cutlayer.common.config import RunFile
from cutlayer.common.datasets import load_table
from cutlayer.common.errors import AlignmentError, ConfigError, Interrupted, PeerError, RolledBack, is_lasting
from cutlayer.common.fields import given_address
from cutlayer.common.files import DirectoryLock, load_secret, private_folder, write_json
from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.labels import Labels, read_labels, require_classes
from cutlayer.common.metrics import served
from cutlayer.common.models import save_model
from cutlayer.common.parquet import write_table
from cutlayer.common.process import peak_rss_bytes, run_party
from cutlayer.common.run_state import RunState, new_run
from cutlayer.common.schedule import Schedule
from cutlayer.common.tables import Features, Table, prepare
from cutlayer.common.telemetry import Telemetry, make_display
from cutlayer.common.tls import OwnCertificate, own_certificate
from cutlayer.label_party.answered import AnsweredActivations
from cutlayer.label_party.chosen import require_settled
from cutlayer.label_party.exchange import Exchange
from cutlayer.label_party.listener import Listener
from cutlayer.label_party.metrics import LabelPartyMetrics
from cutlayer.label_party.notices import worse_than_chance
from cutlayer.label_party.peers import admit_anyone, admit_by_certificate
from cutlayer.label_party.results import RunFigures, run_record, summary_record
from cutlayer.label_party.row_messages import HeldRows
from cutlayer.label_party.rows import CommonRows, PartyIds, find_common_rows, require_rows
from cutlayer.label_party.same_run import SameRun
from cutlayer.label_party.saving import common_step
from cutlayer.label_party.server import LabelPartyServicer, PartyExchange
from cutlayer.label_party.training import LabelTraining
from cutlayer.label_party.walk import Walk


def command(
    file: Annotated[Path, typer.Argument(help="Run file with a `job` and a `label_party` section.")],
    out: Annotated[Path | None, typer.Option(help="Folder for results; default runs/<job name>.")] = None,
    listen: Annotated[str | None, typer.Option(help="Address to listen on instead of the file's.")] = None,
    verbose: Annotated[bool, typer.Option(help="Show tracebacks of internal errors.")] = False,
    events: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the label party: it owns the labels and the top model, and serves the other parties."""

    def body() -> None:
        run_file = run_files.load(file)
        LabelParty(run_file, out or Path("runs") / run_file.job.name, listen, events=events).run()

    raise typer.Exit(run_party(LABEL_PARTY, body, verbose=verbose))


class LabelParty:
    """One run of the label party.

    Args:
        out: folder of the run. This party's private folder is made inside, beside the run's own files.
        listen: address in place of the file's.
    """

    def __init__(self, run_file: RunFile, out: Path, listen: str | None, *, events: bool) -> None:
        self._run_file = run_file
        self._job = run_file.job
        self._section = run_file.label_section()
        require_settled(self._job, self._section.defense)
        self._out = out
        self._listen = given_address("--listen", listen) or self._section.listen
        self._folder = private_folder(out / LABEL_PARTY)
        self._metrics = LabelPartyMetrics(self._job.name, LABEL_PARTY)
        self._telemetry = Telemetry(
            LABEL_PARTY,
            self._folder,
            make_display(events),
            metrics_file=out / "metrics.jsonl",
            tensorboard=True,
            prometheus=self._metrics,
        )
        owner = CheckpointOwner(LABEL_PARTY, self._job.digest().hex())
        self._store = CheckpointStore(self._folder, owner, self._job.checkpoint.keep, self._telemetry.warning)
        self._state: RunState
        self._walk: Walk | None = None

    def run(self) -> None:
        """Everything from start to end; raises what ends the run."""
        torch.set_num_threads(self._section.threads)
        with DirectoryLock(self._folder), self._telemetry:
            self._state = RunState(self._folder, self._job.digest(), self._run_file.setting(LABEL_PARTY))
            if self._state.finished:
                self._telemetry.done(f"this run is finished; results are in {self._out}")
                return
            if warning := self._state.begin(self._section.threads):
                self._telemetry.warning(warning)
            endpoint = served(self._metrics, self._section.metrics, "label_party.metrics.listen", self._telemetry.info)
            with endpoint, closing(AnsweredActivations(self._folder / "answered")) as answered:
                self._serve(answered)

    def _serve(self, answered: AnsweredActivations) -> None:
        secret = self._section.shared_secret()
        exchange: PartyExchange = Exchange(
            self._job.parties, self._section.timeouts, self._telemetry.waiting, self._telemetry.reconnected
        )
        self._metrics.watch(lambda: exchange.connected, lambda: exchange.unanswered)
        own = self._own_certificate()
        admit = admit_anyone if own is None else admit_by_certificate(self._job.name)
        same_run = SameRun(answered, self._store.found, lambda: self._state.run)
        servicer = LabelPartyServicer(self._job, exchange, secret, self._telemetry, answered, same_run, admit)
        server = Listener(self._job, self._section, self._listen, servicer, own)
        try:
            self._telemetry.listening(server.address)
            table, labels = self._load()
            server.ready()
            while not self._agree_and_train(exchange, servicer, table, labels, secret):
                servicer.close_training()
                self._telemetry.info("a party that was lost has come back: all begin again from a checkpoint")
        except BaseException as error:
            self._save_on_the_way_out(error)
            if (farewell := _farewell(error)) is not None:
                exchange.close(*farewell)
            raise
        finally:
            server.stop()

    def _own_certificate(self) -> OwnCertificate | None:
        owner = Identity(self._job.name, LABEL_PARTY)
        warn = self._telemetry.warning
        own = own_certificate(self._section, owner, "label_party.listen", self._listen, warn)
        self._metrics.certificate(own)
        return own

    def _agree_and_train(
        self, exchange: PartyExchange, servicer: LabelPartyServicer, table: Table, labels: Labels, secret: bytes
    ) -> bool:
        """From the rows to the results; False where all have to begin again."""
        try:
            rows, held, resume_step = self._agree_on_rows(exchange, table, labels, secret)
            checkpoint = self._store.load(resume_step)
            training = self._prepare(table, labels, rows)
            walk = Walk(
                self._job, exchange, servicer, training, self._store, self._telemetry, self._metrics, checkpoint
            )
            self._store.drop_after(resume_step)
            servicer.open_training(training.schedule, rows, walk.links)
            self._walk = walk
            walk.save_last_step()  # step 0, where the run begins: nothing is answered that no folder knows of
            exchange.publish(0, self._with_labels(held, training))
            walk.run()
            if (warning := worse_than_chance(walk.figures.utility)) is not None:
                self._telemetry.warning(warning)
            missing = exchange.await_finish()
        except RolledBack:
            return False
        self._write_results(training, walk.figures, servicer, table, rows)
        for party, why in missing.items():
            raise PeerError(
                f"party {party!r} {why} after the last step, and its results may be missing; those of the label party "
                "are written. Start every party again with its --out DIR: no step is repeated",
                party,
            )
        self._state.finish()
        exchange.confirm()
        exchange.close("FINISHED")
        self._telemetry.done(f"finished; results are in {self._out}")
        return True

    def _save_on_the_way_out(self, error: BaseException) -> None:
        """Where the run may be taken up again, lose none of its steps."""
        if self._walk is None or not isinstance(error, Interrupted | PeerError):
            return
        try:
            self._walk.save_last_step()
        except OSError as failure:
            self._telemetry.warning(f"the last step could not be saved: {failure}")

    def _load(self) -> tuple[Table, Labels]:
        table = load_table(self._section.data)
        data = self._section.data
        labels = read_labels(
            table,
            task=self._job.task,
            classes=self._job.classes,
            positive=data.positive,
            missing_label=data.missing_label,
        )
        for note in [*table.notes, *labels.notes]:
            self._telemetry.info(note)
        return table, labels

    def _agree_on_rows(
        self, exchange: PartyExchange, table: Table, labels: Labels, secret: bytes
    ) -> tuple[CommonRows, dict[str, HeldRows], int]:
        """The common rows, what to tell each party, and the step after which all go on."""
        own = OwnIds(list(compress(table.ids, labels.keep)), secret)
        others = {party: ids for party, ids in exchange.collect(0).items() if isinstance(ids, PartyIds)}
        rows = find_common_rows(own, others)
        held = {party: HeldRows(mask, own.form) for party, mask in rows.held.items()}
        try:
            self._telemetry.info(require_rows(rows, own, others, table.origin))
        except AlignmentError:
            exchange.publish(0, held)  # so that the others can say the same
            raise
        run = self._state.run or new_run()
        self._state.of_rows(rows.digest, run)
        self._store.of_rows(rows.digest)
        common = common_step(self._store, others)
        if common is not None:
            self._telemetry.info(f"all parties go on from the checkpoint of step {common}")
        elif any(self._store.found()):  # that of step 0 alone is no loss
            self._telemetry.warning("no checkpoint is held by all parties: all begin at step 1 again")
        resume_step = common or 0
        held = {party: replace(one, resume_step=resume_step, run=run) for party, one in held.items()}
        return replace(rows, order=np.flatnonzero(labels.keep)[rows.order]), held, resume_step

    def _with_labels(self, held: Mapping[str, HeldRows], training: LabelTraining) -> dict[str, HeldRows]:
        """`held` with the labels that the job grants to each party."""
        return {party: replace(one, labels=training.labels_for(party)) for party, one in held.items()}

    def _prepare(self, table: Table, labels: Labels, rows: CommonRows) -> LabelTraining:
        job = self._job
        schedule = Schedule.of(job, rows.count)
        y_N = torch.from_numpy(labels.y[rows.order])
        if job.row_fraction < 1:
            used = len(schedule.train_rows) + len(schedule.test_rows)
            self._telemetry.info(f"row_fraction {job.row_fraction:g}: {used} of the {rows.count} rows are used")
        require_classes(y_N[schedule.train_rows].numpy(), job.task)
        features = self._own_features(table, rows, schedule)
        secret = load_secret(self._section.noise_secret or self._folder / "noise_secret")
        training = LabelTraining(job, self._section, schedule, features, y_N, secret)
        write_json(self._out / "run.json", run_record(self._run_file))
        return training

    def _own_features(self, table: Table, rows: CommonRows, schedule: Schedule) -> Features | None:
        if self._section.bottom_model is None:
            return None
        features = prepare(table, rows.order, schedule.train_rows, standardise=self._section.data.standardise)
        if features.spec.width == 0:
            raise ConfigError("label_party.bottom_model is given, but label_party.data has no feature columns")
        for note in features.notes:
            self._telemetry.info(note)
        return features

    def _write_results(
        self,
        training: LabelTraining,
        figures: RunFigures,
        servicer: LabelPartyServicer,
        table: Table,
        rows: CommonRows,
    ) -> None:
        self._telemetry.sync()
        save_model(self._folder / "model", training.models)
        ids = np.asarray(table.ids, dtype=object)[rows.order]
        write_table(
            self._folder / "labels.parquet", pa.table({"row_id": pa.array(ids), "label": training.labels.numpy()})
        )
        write_table(self._folder / "audit.parquet", training.audit.table())
        training.samples.write(self._folder)
        history = {party: link.session.history.hex() for party, link in servicer.links.items()}
        party = {"pid": os.getpid(), "peak_rss_bytes": peak_rss_bytes(), "seconds": figures.seconds}
        write_json(self._folder / "party.json", party | {"history": history})
        summary = summary_record(self._run_file, training, figures, servicer.links)
        write_json(self._out / "summary.json", summary)


def _farewell(error: BaseException) -> tuple[str, str] | None:
    """How the other parties are told of `error`: only that, never why; None where this process may be started again."""
    if isinstance(error, Interrupted):
        return "STOPPED", ""
    if isinstance(error, PeerError):
        return "PARTY_LOST", error.party
    return ("FAILED", "") if is_lasting(error) else None
