"""A party's figures for Prometheus; what depends on labels is added by the label party alone.

Each party of a process has a registry of its own. Counters count what this process has done, also steps that it
repeats after going back; they begin at 0 in a process that was started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from google.protobuf.message import Message
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, start_http_server
from prometheus_client.core import GaugeMetricFamily

from cutlayer import __version__
from cutlayer.common.config import MetricsEndpoint
from cutlayer.common.errors import ConfigError, ExtraQueryError
from cutlayer.common.progress import Progress, Record
from cutlayer.common.tls import OwnCertificate
from cutlayer.common.waiting import Wait

M = TypeVar("M", bound=Message)

_STEP_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
_SAVE_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
_PAYLOADS = {  # message on the wire -> its field that holds the bulk, and what that is called
    "activation": ("matrix.data", "activations"),
    "answer": ("gradient.data", "gradients"),
    "ids": ("digests", "row_ids"),
}


class Metrics:
    """What any party shows."""

    def __init__(self, job: str = "", party: str = "") -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        Info("cutlayer_party", "Whose figures these are.", registry=registry).info(
            {"job": job, "party": party, "version": __version__}
        )
        self._steps = self._counter("steps", "Steps done.", "kind")
        self._samples = self._counter("samples", "Rows of the steps done.", "kind")
        self._step_seconds = Histogram(
            "cutlayer_step_seconds", "Time of a step, with waiting.", ["kind"], buckets=_STEP_BUCKETS, registry=registry
        )
        self._wait_seconds = self._counter("wait_seconds", "Time spent waiting for other parties within steps.")
        self._step = self._gauge("step", "The last step done.")
        self._planned = self._gauge("planned_steps", "The number of the last step of the run.")
        self._sent = self._counter("sent_bytes", "Bytes of messages sent, before TLS and HTTP/2.", "peer", "kind")
        self._received = self._counter("received_bytes", "Bytes of messages received.", "peer", "kind")
        self._reconnects = self._counter("reconnects", "How often the peer was lost and is back.", "peer")
        self._refused = self._counter("refused_messages", "Messages of peers that were refused.", "error")
        self._extra_queries = self._counter("extra_queries", "Refused second activations for a step.", "peer")
        self._save_seconds = Histogram(
            "cutlayer_checkpoint_seconds", "Time to save a checkpoint.", buckets=_SAVE_BUCKETS, registry=registry
        )
        self._durable = self._gauge("durable_step", "The last step that is safe on the disk.")
        self._begun_at = self._gauge("resumed_step", "The step after which this process began; 0: at the beginning.")
        self._rollbacks = self._counter("rollbacks", "How often the run went back to a checkpoint in this process.")
        self._begun = False
        self._waits: Sequence[Wait] = ()
        registry.register(self)

    # What the party tells.

    def begins(self, step: int) -> None:
        """Training begins after `step`: the first time in this process, or because the run goes back."""
        if self._begun:
            self._rollbacks.inc()
        self._begun = True
        for gauge in (self._begun_at, self._durable, self._step):
            gauge.set(step)

    def step(self, progress: Progress) -> None:
        """A step is done."""
        self._step.set(progress.step)
        self._planned.set(progress.steps)
        self._steps.labels(progress.kind).inc()
        self._samples.labels(progress.kind).inc(progress.rows)
        self._step_seconds.labels(progress.kind).observe(progress.seconds)
        self._wait_seconds.inc(progress.waited)

    def evaluation(self, record: Record) -> None:
        """The figures of an evaluation point, which follow from labels: not for this class."""

    def saved(self, step: int, seconds: float) -> None:
        """The checkpoint of `step` is on the disk."""
        self._save_seconds.observe(seconds)
        self._durable.set(step)

    def reconnected(self, peer: str) -> None:
        """A peer that was lost is back."""
        self._reconnects.labels(peer).inc()

    def refused(self, error: Exception) -> None:
        """A message of a peer was refused."""
        self._refused.labels(type(error).__name__).inc()
        if isinstance(error, ExtraQueryError):
            self._extra_queries.labels(error.party).inc()

    def waiting(self, waits: Sequence[Wait]) -> None:
        """The party waits for these, from now on."""
        self._waits = tuple(waits)

    def certificate(self, own: OwnCertificate | None) -> None:
        """This party has a certificate, unless it speaks plaintext; its end is asked for at each scrape."""
        if own is not None:
            gauge = self._gauge("certificate_expiry_timestamp_seconds", "When this party's certificate ends.")
            gauge.set_function(lambda: own.current().certificate.not_valid_after_utc.timestamp())

    def sent_to(self, peer: str, messages: Iterable[M]) -> Iterator[M]:
        """`messages`, counted as they are sent."""
        for message in messages:
            self._count(self._sent, peer, message)
            yield message

    def received_from(self, peer: str, messages: Iterable[M]) -> Iterator[M]:
        """`messages`, counted as they come."""
        for message in messages:
            self._count(self._received, peer, message)
            yield message

    # How it is shown.

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Asked by the registry at each scrape: for whom the party waits now."""
        waits = self._waits
        yield GaugeMetricFamily("cutlayer_parties_waited_for", "Parties waited for, for 3 s or more.", len(waits))
        seconds = GaugeMetricFamily("cutlayer_waiting_seconds", "How long this peer is waited for.", labels=["peer"])
        left = GaugeMetricFamily("cutlayer_waiting_left_seconds", "Time until this party gives up.", labels=["peer"])
        for wait in waits:
            seconds.add_metric([wait.peer], wait.seconds)
            left.add_metric([wait.peer], wait.left)
        yield from (seconds, left)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Asked by the registry once, for the names."""
        return self.collect()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"cutlayer_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"cutlayer_{name}", text, labels, registry=self.registry)

    @staticmethod
    def _count(counter: Counter, peer: str, message: Message) -> None:
        kind, payload = _payload(message)
        if payload:
            counter.labels(peer, kind).inc(payload)
        counter.labels(peer, "overhead").inc(message.ByteSize() - payload)


@contextmanager
def served(metrics: Metrics, endpoint: MetricsEndpoint | None, key: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Serve `metrics` over HTTP at `endpoint`, where there is one, while the context lasts.

    Args:
        key: of the endpoint in the run file, for messages.
        tell: told the URL in words.

    Raises:
        ConfigError: the address cannot be bound.
    """
    if endpoint is None:
        yield
        return
    host, _, port = endpoint.listen.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]"), metrics.registry)
    except OSError as error:
        raise ConfigError(
            f"{key}: cannot listen on {endpoint.listen}: the port is taken, or it is no address of this machine "
            f"({error.strerror or error})"
        ) from error
    tell(f"figures for Prometheus at http://{host}:{server.server_port}/metrics")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _payload(message: Any) -> tuple[str, int]:
    """What the bulk of a message is, and how many bytes."""
    if "held_by_all" in message.DESCRIPTOR.fields_by_name:
        return "row_ids", len(message.held_by_all)
    which = message.WhichOneof("message")
    if which not in _PAYLOADS:
        return "overhead", 0
    path, kind = _PAYLOADS[which]
    value = getattr(message, which)
    for name in path.split("."):
        value = getattr(value, name)
    return kind, len(value)
