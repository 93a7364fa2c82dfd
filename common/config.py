"""The run file: its sections as pydantic models.

`job` is the same for every party and its digest is compared at the handshake. `label_party` and each entry
of `nonlabel_parties` are private; a party on its own host has only its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SecretStr,
    model_validator,
)

from cutlayer.common import fields
from cutlayer.common.errors import ConfigError
from cutlayer.common.fields import Choice as Choice
from cutlayer.common.fields import Named, Section
from cutlayer.common.id_secret import ID_SECRET_FILE_VARIABLE, ID_SECRET_VARIABLE, environment_secret
from cutlayer.common.job import LABEL_PARTY, Job, section_of
from cutlayer.common.limits import Timeouts


class Optimizer(Section):
    """A torch optimizer."""

    name: Literal["sgd", "adam", "adagrad"] = "adam"
    lr: fields.LearningRate = 0.01
    momentum: fields.Momentum = 0.0
    weight_decay: fields.WeightDecay = 0.0

    @model_validator(mode="after")
    def _check(self) -> Optimizer:
        if self.momentum and self.name != "sgd":
            raise ValueError(f"momentum is an option of sgd, not of {self.name}")
        return self


class DataSource(BaseModel):
    """Where a party's rows come from. Keys that are not listed here are options of the source.

    Attributes:
        source: `csv`, `parquet`, an embedded data set, or `package.module:Class`.
        standardise: scale numeric columns to mean 0 and deviation 1 over the training rows.
        positive: label party, binary: the label value that counts as 1.
        missing_label: label party: refuse rows without a label, or drop them.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    source: str
    standardise: bool = True
    positive: fields.Scalar = None
    missing_label: Literal["error", "drop"] = "error"

    @property
    def options(self) -> dict[str, Any]:
        """The options of the source."""
        return dict(self.model_extra or {})


class TlsFiles(Section):
    """A party's certificate, its key, and the CA that all certificates of the job come from; PEM."""

    ca: Path
    cert: Path
    key: Path


class MetricsEndpoint(Section):
    """Where a party's figures can be scraped by Prometheus; anybody who reaches the address can read them."""

    listen: fields.Address


_SETTING = {"seed", "optimizer", "bottom_model", "top_model", "defense"}
_SETTING_OF_DATA = {"standardise", "positive", "missing_label"}


class PartySection(Section):
    """What both kinds of party have.

    Attributes:
        metrics: serves figures for Prometheus; by default none are served.
        tls: proves who this party is, and encrypts the line; without it only loopback addresses are allowed.
        insecure: allows another address without `tls`.
        id_secret: shared by the parties, keys the id digests; or the environment has it.
        seed: private seed of this party's initial weights; by default they follow from `job.seed`.
        threads: torch threads.
    """

    data: DataSource
    optimizer: Optimizer = Optimizer()
    id_secret: SecretStr | None = None
    seed: fields.Seed | None = None
    threads: fields.Threads = 1
    timeouts: Timeouts = Timeouts()
    tls: TlsFiles | None = None
    insecure: bool = False
    metrics: MetricsEndpoint | None = None

    @model_validator(mode="after")
    def _check(self) -> PartySection:
        if self.tls and self.insecure:
            raise ValueError("tls and insecure: true are given, which contradict each other; remove one")
        return self

    def setting(self, where: str) -> dict[str, Any]:
        """What the party's results follow from beside the job and its table: key of the run file -> value, as JSON.

        Args:
            where: this section in the run file.
        """
        chosen = self.model_dump(mode="json", include=_SETTING)
        of_data = self.data.model_dump(mode="json", include=_SETTING_OF_DATA)
        found = chosen | {f"data.{key}": value for key, value in of_data.items()}
        return {f"{where}.{key}": value for key, value in found.items()}

    def shared_secret(self) -> bytes:
        """The secret for id digests.

        Raises:
            ConfigError: neither the run file nor the environment has one.
        """
        text = self.id_secret.get_secret_value() if self.id_secret else environment_secret()
        if not text:
            raise ConfigError(
                "no shared secret for the row ids: every party sets the same `id_secret: ...` in its own "
                f"section, or the environment variable {ID_SECRET_VARIABLE}, or {ID_SECRET_FILE_VARIABLE}"
            )
        return text.encode()


class LabelPartySection(PartySection):
    """The label party's private section.

    Attributes:
        top_model: where none is given, the defense's own, or `mlp`.
        bottom_model: given where the label party holds features too.
        noise_secret: file of 32 random bytes for the defense noise; by default one is made for each run.
        samples: of how many batches the gradients are kept, exact and perturbed, for the report; 0: of none.
    """

    listen: fields.Address = "127.0.0.1:50051"
    top_model: Named | None = None
    bottom_model: Named | None = None
    defense: Named = Choice(name="none")
    noise_secret: Path | None = None
    samples: fields.Count = 16


class Capture(Section):
    """What a curious party records, to run attacks on it after training.

    Attributes:
        max_mb: at most so many MB of steps; no more is recorded when they are full.
        every: each so many steps.
        from_step, to_step: the first and the last step that may be recorded.
        first_layer: also the gradient at the first layer.
        features: also the party's own features, once.
    """

    max_mb: fields.Megabytes = 1000
    every: fields.Steps = 1
    from_step: fields.Steps = 1
    to_step: fields.Steps | None = None
    first_layer: bool = True
    features: bool = True


def _capture(value: Any) -> Any:
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


class NonlabelPartySection(PartySection):
    """A non-label party's private section.

    Attributes:
        capture: true, or options of a capture.
    """

    connect: fields.Address = "127.0.0.1:50051"
    bottom_model: Named = Choice(name="mlp")
    attacks: tuple[Named, ...] = ()
    capture: Annotated[Capture | None, BeforeValidator(_capture)] = None


class RunFile(Section):
    """A whole run file.

    Attributes:
        restarts: how often `cutlayer run` starts a party again that was killed or failed by an internal error.
    """

    job: Job
    label_party: LabelPartySection | None = None
    nonlabel_parties: dict[str, NonlabelPartySection] = {}
    restarts: fields.Count = 3

    @model_validator(mode="after")
    def _check(self) -> RunFile:
        for name in sorted(set(self.nonlabel_parties) - set(self.job.parties)):
            raise ValueError(f"nonlabel_parties.{name} is not in job.parties: {', '.join(self.job.parties)}")
        return self

    def sections(self) -> dict[str, PartySection]:
        """party -> its section, of those that the file has; the label party first."""
        label = {} if self.label_party is None else {LABEL_PARTY: self.label_party}
        return {**label, **self.nonlabel_parties}

    def label_section(self) -> LabelPartySection:
        """The label party's section, or a ConfigError where the file has none."""
        if self.label_party is None:
            raise ConfigError("the file has no `label_party` section, which the label party needs")
        return self.label_party

    def nonlabel_section(self, name: str) -> NonlabelPartySection:
        """The section of `name`, or a ConfigError where the file has none."""
        if name not in self.job.parties:
            raise ConfigError(f"{name!r} is not in job.parties; there are: {', '.join(self.job.parties)}")
        if name not in self.nonlabel_parties:
            raise ConfigError(f"the file has no `nonlabel_parties.{name}` section")
        return self.nonlabel_parties[name]

    def setting(self, party: str | None = None) -> dict[str, Any]:
        """What the results of `party`, or of all, follow from beside the job and the tables; key -> value."""
        sections = self.sections() if party is None else {party: self.sections()[party]}
        found: dict[str, Any] = {}
        for name, section in sections.items():
            found |= section.setting(section_of(name))
        return found

    def public_dump(self) -> dict[str, Any]:
        """The resolved file for `run.json`; secrets are masked."""
        return self.model_dump(mode="json")
