"""The label party as a process: listen, load, agree on rows, train step by step, leave results behind."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import typer

from cutlayer.common import run_files
from cutlayer.common.alignment import OwnIds
from cutlayer.common.certificates import Identity
from cutlayer.common.config import LABEL_PARTY, RunFile
from cutlayer.common.datasets import load_table
from cutlayer.common.errors import AlignmentError, ConfigError, Interrupted, PeerError
from cutlayer.common.files import DirectoryLock, load_secret, private_folder, write_atomically, write_json
from cutlayer.common.labels import Labels, read_labels, require_classes
from cutlayer.common.models import save_model
from cutlayer.common.process import peak_rss_bytes, run_party
from cutlayer.common.schedule import Schedule, Step
from cutlayer.common.tables import Features, Table, prepare
from cutlayer.common.telemetry import Telemetry, make_display
from cutlayer.common.tls import OwnCertificate, own_certificate
from cutlayer.label_party.exchange import Exchange
from cutlayer.label_party.listener import Listener
from cutlayer.label_party.peers import admit_anyone, admit_by_certificate
from cutlayer.label_party.results import RunFigures, run_record, summary_record
from cutlayer.label_party.row_messages import HeldRows
from cutlayer.label_party.rows import CommonRows, PartyIds, find_common_rows, require_rows
from cutlayer.label_party.server import LabelPartyServicer, PartyExchange
from cutlayer.label_party.training import LabelTraining, Received, Release


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
        self._out = out
        self._listen = listen or self._section.listen
        self._folder = private_folder(out / LABEL_PARTY)
        display = make_display(events)
        self._telemetry = Telemetry(
            LABEL_PARTY, self._folder, display, metrics_file=out / "metrics.jsonl", tensorboard=True
        )

    def run(self) -> None:
        """Everything from start to end; raises what ends the run."""
        torch.set_num_threads(self._section.threads)
        with DirectoryLock(self._folder), self._telemetry:
            secret = self._section.shared_secret()
            exchange: PartyExchange = Exchange(self._job.parties, self._section.timeouts, self._telemetry.info)
            own = self._own_certificate()
            admit = admit_anyone if own is None else admit_by_certificate(self._job.name)
            servicer = LabelPartyServicer(self._job, exchange, secret, self._telemetry, admit)
            server = Listener(self._job, self._section, self._listen, servicer, own)
            try:
                self._telemetry.listening(server.address)
                table, labels = self._load()
                server.ready()
                rows, held = self._agree_on_rows(exchange, table, labels, secret)
                training = self._prepare(table, labels, rows)
                servicer.open_training(training.schedule, rows.count, rows.digest)
                exchange.publish(0, held)
                figures = self._train(exchange, training)
                self._finish(exchange)
                self._write_results(training, figures, servicer, table, rows)
            except BaseException as error:
                exchange.close(*_farewell(error))
                raise
            finally:
                server.stop()

    def _own_certificate(self) -> OwnCertificate | None:
        owner = Identity(self._job.name, LABEL_PARTY)
        warn = self._telemetry.warning
        return own_certificate(self._section, owner, "label_party.listen", self._listen, warn)

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
    ) -> tuple[CommonRows, dict[str, HeldRows]]:
        own = OwnIds(list(compress(table.ids, labels.keep)), secret)
        others = {party: ids for party, ids in exchange.collect(0).items() if isinstance(ids, PartyIds)}
        rows = find_common_rows(own, others)
        held = {party: HeldRows(mask, own.form) for party, mask in rows.held.items()}
        try:
            self._telemetry.info(require_rows(rows, own, others, table.origin))
        except AlignmentError:
            exchange.publish(0, held)  # so that the others can say the same
            raise
        return replace(rows, order=np.flatnonzero(labels.keep)[rows.order]), held

    def _prepare(self, table: Table, labels: Labels, rows: CommonRows) -> LabelTraining:
        job = self._job
        schedule = Schedule(job.seed, rows.count, job.test_fraction, job.batch_size, job.epochs)
        y_N = torch.from_numpy(labels.y[rows.order])
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

    def _train(self, exchange: PartyExchange, training: LabelTraining) -> RunFigures:
        """The training loop: the walk of a mini-batch as the label party sees it."""
        schedule, figures = training.schedule, RunFigures()
        for number in range(1, schedule.steps + 1):
            step = schedule.at(number)
            received = {party: r for party, r in exchange.collect(number).items() if isinstance(r, Received)}
            figures.start()
            releases, test = self._one_step(training, figures, step, received)
            exchange.publish(number, releases)
            self._telemetry.step(figures.progress(step, schedule, self._job.epochs))
            if number % schedule.steps_per_epoch == 0:
                self._telemetry.evaluation(figures.end_epoch(step, test, training))
        figures.stop()
        return figures

    def _one_step(
        self, training: LabelTraining, figures: RunFigures, step: Step, received: dict[str, Received]
    ) -> tuple[dict[str, Release], dict[str, float | None]]:
        if step.kind == "train":
            loss, releases, leak = training.step(step, received)
            figures.trained(len(step.rows), loss, leak)
            return releases, {}
        test = training.evaluate(step, received)
        shared = {k: v for k, v in test.items() if v is not None} if self._job.privacy.share_metrics else None
        return {party: Release(metrics=shared) for party in received}, test

    def _finish(self, exchange: PartyExchange) -> None:
        if missing := exchange.await_finish():
            self._telemetry.warning(f"{', '.join(missing)} did not confirm the last step")
        exchange.close("FINISHED")

    def _write_results(
        self,
        training: LabelTraining,
        figures: RunFigures,
        servicer: LabelPartyServicer,
        table: Table,
        rows: CommonRows,
    ) -> None:
        save_model(self._folder / "model", training.models)
        ids = np.asarray(table.ids, dtype=object)[rows.order]
        _write_table(
            self._folder / "labels.parquet", pa.table({"row_id": pa.array(ids), "label": training.labels.numpy()})
        )
        _write_table(self._folder / "audit.parquet", training.audit.table())
        history = {party: link.session.history.hex() for party, link in servicer.links.items()}
        party = {"pid": os.getpid(), "peak_rss_bytes": peak_rss_bytes(), "seconds": figures.seconds}
        write_json(self._folder / "party.json", party | {"history": history})
        summary = summary_record(self._run_file, training, figures, servicer.links)
        write_json(self._out / "summary.json", summary)
        self._telemetry.done(f"finished; results are in {self._out}")


def _write_table(path: Path, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    write_atomically(path, sink.getvalue().to_pybytes())


def _farewell(error: BaseException) -> tuple[str, str]:
    """How the other parties are told of `error`: only that, never why."""
    if isinstance(error, Interrupted):
        return "STOPPED", ""
    if isinstance(error, PeerError):
        return "PARTY_LOST", error.party
    return "FAILED", ""
