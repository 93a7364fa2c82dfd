"""Looks for everything that would keep a run file from running, and trains nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable
from itertools import compress
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np
from torch import nn

from cutlayer.common import run_files
from cutlayer.common.alignment import OwnIds
from cutlayer.common.certificates import Identity
from cutlayer.common.config import Choice, LabelPartySection, NonlabelPartySection, PartySection, RunFile
from cutlayer.common.datasets import load_table
from cutlayer.common.errors import AlignmentError, CertificateError, ConfigError, UserError
from cutlayer.common.files import load_secret
from cutlayer.common.id_secret import ID_SECRET_VARIABLE, environment_secret
from cutlayer.common.job import LABEL_PARTY, section_of
from cutlayer.common.labels import Labels, read_labels, require_classes
from cutlayer.common.models import build_bottom, build_optimizer, gives_probabilities
from cutlayer.common.process import print_error
from cutlayer.common.progress import human_bytes
from cutlayer.common.schedule import Schedule
from cutlayer.common.tables import Table, prepare
from cutlayer.common.tls import host_and_port, own_certificate
from cutlayer.common.tls_probe import examine
from cutlayer.label_party.aggregation import aggregate_width
from cutlayer.label_party.chosen import make_defense, make_objective, require_settled
from cutlayer.label_party.defenses import Defense, NoDefense
from cutlayer.label_party.rows import PartyIds, find_common_rows, require_rows
from cutlayer.nonlabel_party.curiosity import make_attack

P = ParamSpec("P")
T = TypeVar("T")

_CONNECT_TIMEOUT_S = 3.0
_LOCAL = "127.0.0.1:0"  # where `run` lets the others connect, whatever the file says
_SEED = 0  # of initial weights that nobody will train
_SECRET = b"compares ids within this process"


def check(file: Path, name: str | None = None) -> int:
    """Check `file` for every party that has a section in it, or for the party `name` alone, on its own host.

    Says on stdout what it finds, and on stderr each problem. Returns 0, or 2 if there is a problem.
    """
    findings = Findings()
    run_file = findings.attempt("", run_files.load, file)
    if run_file is not None:
        job = run_file.job
        print(f"{file}: job {job.name}, task {job.task}, parties {', '.join([LABEL_PARTY, *job.parties])}")
        _check_parties(findings, run_file, name)
    print("no problem found" if not findings.problems else f"problems found: {findings.problems}")
    return 2 if findings.problems else 0


class Findings:
    """Says on stderr what is wrong, and counts it."""

    def __init__(self) -> None:
        self.problems = 0

    def attempt(self, where: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """What `work` returns; None where it raises, which is a problem of the party `where`."""
        try:
            return work(*args, **kwargs)
        except (UserError, AlignmentError) as error:
            found = error.problems if isinstance(error, ConfigError) else (str(error),)
            self.problems += len(found)
            for problem in found:
                print_error(f"{where}: {problem}" if where else problem)
            return None


def _check_parties(findings: Findings, run_file: RunFile, name: str | None) -> None:
    if name is None:
        findings.attempt("", _check_addresses, run_file)
        findings.attempt("row ids", _check_secrets, run_file)
    ids: dict[str, OwnIds] = {}
    for party in (LABEL_PARTY, *run_file.job.parties) if name is None else (name,):
        checked = _Party(findings, run_file, party, alone=name is not None)
        if (own := checked.check()) is not None:
            ids[party] = own
    if len(ids) == 1 + len(run_file.job.parties):
        findings.attempt("row ids", _check_overlap, run_file, ids)


def _check_secrets(run_file: RunFile) -> None:
    """One secret for all, from the file or the variable; or none at all, where `cutlayer run` makes one up."""
    outside = environment_secret()
    given = {
        party: section.id_secret.get_secret_value() if section.id_secret else outside
        for party, section in run_file.sections().items()
    }
    lack = [party for party, secret in given.items() if not secret]
    if lack and any(given.values()):
        raise ConfigError(
            f"{', '.join(lack)}: no `id_secret`, which another party of this file has: give every party the same one, "
            f"or none and set the variable {ID_SECRET_VARIABLE}"
        )
    if len(set(given.values())) > 1:
        raise ConfigError("the parties' `id_secret` differ, so no row would match: give every party the same one")


def _check_addresses(run_file: RunFile) -> None:
    taken: dict[str, str] = {}
    for party, section in run_file.sections().items():
        where = section_of(party)
        own = {f"{where}.listen": section.listen} if isinstance(section, LabelPartySection) else {}
        own |= {f"{where}.metrics.listen": section.metrics.listen} if section.metrics else {}
        for key, address in own.items():
            if address in taken:
                raise ConfigError(f"{key}: {address} is taken by {taken[address]}; give each a port of its own")
            if not address.endswith(":0"):  # any free port
                taken[address] = key


def _check_overlap(run_file: RunFile, ids: dict[str, OwnIds]) -> None:
    own = ids.pop(LABEL_PARTY)
    others = {party: PartyIds(other.digests, other.form) for party, other in ids.items()}
    rows = find_common_rows(own, others)
    print(f"row ids: {require_rows(rows, own, others, LABEL_PARTY)}")
    _schedule(run_file, rows.count)


def _schedule(run_file: RunFile, rows: int) -> Schedule:
    job = run_file.job
    return Schedule.of(job, rows)


class _Party:
    """The checks of one party.

    Args:
        alone: the party runs on this host without the others, so it needs its secret and its way to them.
    """

    def __init__(self, findings: Findings, run_file: RunFile, name: str, *, alone: bool) -> None:
        self._findings = findings
        self._run_file = run_file
        self._job = run_file.job
        self._name = name
        self._alone = alone

    def check(self) -> OwnIds | None:
        """Check all; returns the ids of the party's usable rows, where its data can be read."""
        section = self._attempt(self._section_of, self._name)
        if section is None:
            return None
        if self._alone:
            self._attempt(section.shared_secret)
        if isinstance(section, LabelPartySection):
            return self._check_label_party(section)
        return self._check_nonlabel_party(section)

    def _check_label_party(self, section: LabelPartySection) -> OwnIds | None:
        defense = self._attempt(self._try_defense, section) or NoDefense()
        self._attempt(self._try_top, section, defense)
        self._attempt(_try_noise_secret, section)
        self._attempt(self._own_certificate, section, "label_party.listen", section.listen)
        table = self._attempt(self._read_table, section)
        if table is None:
            return None
        if section.bottom_model is not None:
            self._attempt(self._try_bottom, section, section.bottom_model, table)
        labels = self._attempt(self._read_labels, section, table)
        keep = np.ones(len(table.ids), dtype=bool) if labels is None else labels.keep
        return self._attempt(OwnIds, list(compress(table.ids, keep)), _SECRET)

    def _check_nonlabel_party(self, section: NonlabelPartySection) -> OwnIds | None:
        limits = self._job.limits(self._name)
        self._say(
            f"sends {limits.rows} x {limits.width} numbers a step, at most {human_bytes(limits.matrix_bytes)}, in "
            f"frames of at most {human_bytes(limits.frame_bytes)}, and receives as much"
        )
        for choice in section.attacks:
            self._attempt(make_attack, self._job, self._name, choice)
        where, reached = f"{section_of(self._name)}.connect", section.connect if self._alone else _LOCAL
        self._attempt(self._own_certificate, section, where, reached)
        if self._alone:
            self._say(_reachability(section.connect))
        table = self._attempt(self._read_table, section)
        if table is None:
            return None
        self._attempt(self._try_bottom, section, section.bottom_model, table)
        return self._attempt(OwnIds, table.ids, _SECRET)

    def _own_certificate(self, section: PartySection, where: str, address: str) -> None:
        """Whether the line is protected; for a party alone also whether TLS to the label party works."""
        own = own_certificate(section, Identity(self._job.name, self._name), where, address, self._say)
        if own is None:
            return
        self._say(f"certificate {own.files.cert} is for {own.owner} and expires in {own.days_left} days")
        if self._alone and isinstance(section, NonlabelPartySection) and (problem := examine(address, own)):
            raise CertificateError(problem)

    def _section_of(self, name: str) -> LabelPartySection | NonlabelPartySection:
        try:
            return self._run_file.label_section() if name == LABEL_PARTY else self._run_file.nonlabel_section(name)
        except ConfigError as error:
            if self._alone:
                raise
            raise ConfigError(
                f"{error}; `cutlayer run` needs all. For a party on its own host: `cutlayer check FILE --name NAME`"
            ) from error

    def _read_table(self, section: PartySection) -> Table:
        table = load_table(section.data)
        self._say(f"{table.origin}: {len(table.ids)} rows, {table.columns.num_columns} feature columns", *table.notes)
        return table

    def _read_labels(self, section: LabelPartySection, table: Table) -> Labels:
        data, job = section.data, self._job
        labels = read_labels(
            table, task=job.task, classes=job.classes, positive=data.positive, missing_label=data.missing_label
        )
        require_classes(labels.y[labels.keep], job.task)
        self._say(f"{table.origin}: labels fit task {job.task}", *labels.notes)
        return labels

    def _try_defense(self, section: LabelPartySection) -> Defense:
        defense = make_defense(self._job, section.defense)
        self._say(f"defense {defense!r}")
        if (search := defense.search()) is None:
            return defense
        if self._alone:
            require_settled(self._job, section.defense)
        option = {search.option: search.values[0]}
        return make_defense(self._job, section.defense.model_copy(update=option))

    def _try_top(self, section: LabelPartySection, defense: Defense) -> None:
        own_features = section.bottom_model is not None
        objective = make_objective(self._job, section, defense, own_features=own_features, train_rows=1)
        build_optimizer(section.optimizer, objective.parameters())
        width = aggregate_width(self._job.cut_layer, self._job.parties, own_features=own_features)
        chosen = "top model" if section.top_model is None else f"top model {section.top_model.name}"
        self._say(f"{chosen}: {width} numbers a row, {_weights(objective.model)} weights")

    def _try_bottom(self, section: PartySection, choice: Choice, table: Table) -> None:
        order = np.arange(len(table.ids))
        features = prepare(table, order, _schedule(self._run_file, len(order)).train_rows, section.data.standardise)
        width = self._job.cut_layer.width_of(self._name)
        model = build_bottom(choice, features.spec, width, _SEED)  # tries it on two made-up rows
        build_optimizer(section.optimizer, model.parameters())
        self._say(
            f"bottom model {choice.name}: {features.spec.width} columns to {width}, {_weights(model)} weights",
            *features.notes,
        )
        if self._takes_probabilities() and gives_probabilities(choice) is False:
            raise ConfigError(
                f"bottom_model {choice.name}: its activations may be below 0 or above 1, and the label party's defense "
                "takes them for probabilities; let it end in a sigmoid, as mlp does with `output: sigmoid`, or write "
                "`activations: logits` under label_party.defense"
            )

    def _takes_probabilities(self) -> bool:
        """Whether the label party's defense does, as far as this file says; its own problems are told elsewhere."""
        section = self._run_file.label_party
        try:
            return section is not None and make_defense(self._job, section.defense).takes_probabilities()
        except UserError:
            return False

    def _attempt(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        return self._findings.attempt(self._name, work, *args, **kwargs)

    def _say(self, *lines: str) -> None:
        for line in lines:
            print(f"{self._name}: {line}")


def _try_noise_secret(section: LabelPartySection) -> None:
    if section.noise_secret is not None and section.noise_secret.exists():
        load_secret(section.noise_secret)


def _weights(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def _reachability(address: str) -> str:
    """Whether somebody listens at `address`, host:port; the label party may be started later."""
    try:
        socket.create_connection(host_and_port(address), timeout=_CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        return f"warning: the label party at {address} cannot be reached now: {error}"
    return f"the label party at {address} can be reached"
