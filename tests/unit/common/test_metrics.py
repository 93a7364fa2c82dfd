"""common/metrics.py: what is counted, how it can be scraped, and that registries do not know each other."""

from __future__ import annotations

import math
import socket
import time
import urllib.request

import pytest
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cutlayer.common.config import MetricsEndpoint
from cutlayer.common.errors import ConfigError, ExtraQueryError, FrameError
from cutlayer.common.metrics import Metrics, served
from cutlayer.common.progress import Progress
from cutlayer.common.waiting import Wait
from cutlayer.label_party.metrics import LabelPartyMetrics
from cutlayer.v1 import matrix_pb2, session_pb2, training_pb2

Values = dict[tuple[str, ...], float]


def values(text: str) -> Values:
    """Sample name and label values -> value."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def of(metrics: Metrics) -> Values:
    return values(generate_latest(metrics.registry).decode())


def test_steps_are_counted_by_kind() -> None:
    metrics = Metrics("job", "lab")
    for step in (1, 2):
        metrics.step(Progress(step=step, steps=9, rows=64, seconds=0.5, waited=0.25))
    metrics.step(Progress(step=3, steps=9, rows=10, seconds=2.0, kind="evaluate"))
    found = of(metrics)
    assert found["cutlayer_steps_total", "train"] == 2
    assert found["cutlayer_steps_total", "evaluate"] == 1
    assert found["cutlayer_samples_total", "train"] == 128
    assert found["cutlayer_samples_total", "evaluate"] == 10
    assert found["cutlayer_step_seconds_sum", "train"] == 1.0
    assert found["cutlayer_step_seconds_bucket", "train", "0.3"] == 0  # labels in the order of their names
    assert found["cutlayer_step_seconds_bucket", "train", "1.0"] == 2
    assert found["cutlayer_wait_seconds_total",] == 0.5
    assert (found["cutlayer_step",], found["cutlayer_planned_steps",]) == (3, 9)


def test_messages_are_counted_by_what_they_carry_and_pass_unchanged() -> None:
    metrics = Metrics()
    matrix = matrix_pb2.Matrix(rows=2, width=2, data=bytes(16))
    messages = [
        training_pb2.TrainRequest(hello=session_pb2.Hello(party="lab")),
        training_pb2.TrainRequest(activation=training_pb2.Activation(step=1, matrix=matrix)),
        training_pb2.TrainRequest(activation=training_pb2.Activation(step=1, matrix=matrix)),
    ]
    assert list(metrics.sent_to("label_party", iter(messages))) == messages
    ids = training_pb2.AlignRowsRequest(ids=training_pb2.IdDigests(total=2, digests=bytes(32)))
    held = training_pb2.AlignRowsResponse(held_by_all=b"\x03")
    answer = training_pb2.TrainResponse(answer=training_pb2.Answer(step=1, gradient=matrix))
    received = [ids, held, answer, training_pb2.TrainResponse(goodbye=session_pb2.Goodbye())]
    assert list(metrics.received_from("lab", iter(received))) == received
    found = of(metrics)
    assert found["cutlayer_sent_bytes_total", "activations", "label_party"] == 32
    overhead = sum(message.ByteSize() for message in messages) - 32
    assert found["cutlayer_sent_bytes_total", "overhead", "label_party"] == overhead
    assert found["cutlayer_received_bytes_total", "row_ids", "lab"] == 33
    assert found["cutlayer_received_bytes_total", "gradients", "lab"] == 16


def test_a_run_that_goes_back_or_on_is_seen() -> None:
    metrics = Metrics()
    metrics.begins(20)
    metrics.saved(30, 0.02)
    assert of(metrics)["cutlayer_durable_step",] == 30
    assert of(metrics)["cutlayer_rollbacks_total",] == 0
    metrics.begins(30)
    metrics.saved(40, 0.2)
    found = of(metrics)
    assert found["cutlayer_rollbacks_total",] == 1
    assert (found["cutlayer_resumed_step",], found["cutlayer_durable_step",]) == (30, 40)
    assert found["cutlayer_checkpoint_seconds_count",] == 2
    assert found["cutlayer_checkpoint_seconds_sum",] == pytest.approx(0.22)


def test_refusals_and_extra_queries_are_counted() -> None:
    metrics = Metrics()
    for error in (FrameError("x"), FrameError("y"), ExtraQueryError("z", "lab")):
        metrics.refused(error)
    metrics.reconnected("lab")
    found = of(metrics)
    assert found["cutlayer_refused_messages_total", "FrameError"] == 2
    assert found["cutlayer_refused_messages_total", "ExtraQueryError"] == 1
    assert found["cutlayer_extra_queries_total", "lab"] == 1
    assert found["cutlayer_reconnects_total", "lab"] == 1


def test_a_wait_grows_until_it_is_over() -> None:
    metrics = Metrics()
    assert of(metrics)["cutlayer_parties_waited_for",] == 0
    metrics.waiting([Wait("lab", "lost", 100, since=time.monotonic() - 40)])
    found = of(metrics)
    assert found["cutlayer_parties_waited_for",] == 1
    assert found["cutlayer_waiting_seconds", "lab"] == pytest.approx(40, abs=5)
    assert found["cutlayer_waiting_left_seconds", "lab"] == pytest.approx(60, abs=5)
    metrics.waiting(())
    assert ("cutlayer_waiting_seconds", "lab") not in of(metrics)


def test_what_follows_from_labels_is_the_label_partys_alone() -> None:
    progress = Progress(step=1, steps=2, rows=8, loss=0.7, leak={"norm": 0.9, "mean": 0.25}, test_auc=0.8)
    record = {"step": 1, "epoch": 1, "test_auc": 0.75, "test_loss": None}
    private = LabelPartyMetrics("job", "label_party")
    assert math.isnan(of(private)["cutlayer_train_loss",])  # not 0, which would be perfect
    for metrics in (Metrics("job", "lab"), private):
        metrics.step(progress)
        metrics.evaluation(record)
    private.bound(None)
    private.bound({"per_step_leak_auc": 0.6, "whole_run_leak_auc": 0.8})
    found = of(private)
    assert found["cutlayer_train_loss",] == 0.7
    assert found["cutlayer_leak_auc", "norm"] == 0.9
    assert (found["cutlayer_leak_auc_flipped", "norm"], found["cutlayer_leak_auc_flipped", "mean"]) == (0.9, 0.75)
    assert found["cutlayer_evaluation", "test_auc"] == 0.75
    assert math.isnan(found["cutlayer_evaluation", "test_loss"])
    assert ("cutlayer_evaluation", "step") not in found
    assert (found["cutlayer_leak_auc_bound", "step"], found["cutlayer_leak_auc_bound", "run"]) == (0.6, 0.8)


def test_registries_are_apart_and_the_global_one_is_left_alone() -> None:
    one, other = Metrics("job", "lab"), Metrics("job", "bank")
    one.reconnected("label_party")
    assert ("cutlayer_reconnects_total", "label_party") not in of(other)
    assert b"cutlayer" not in generate_latest(REGISTRY)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_figures_are_served_while_the_party_runs(host: str) -> None:
    told: list[str] = []
    with served(Metrics("job", "lab"), MetricsEndpoint(listen=f"{host}:0"), "lab.metrics.listen", told.append):
        url = told[0].rpartition(" ")[2]
        with urllib.request.urlopen(url, timeout=10) as response:
            found = values(response.read().decode())
    assert next(key for key in found if key[0] == "cutlayer_party_info")[1:3] == ("job", "lab")
    port = int(url.rpartition(":")[2].partition("/")[0])
    with socket.create_server(("127.0.0.1", port)):  # it is free again
        pass


def test_nothing_is_served_by_default() -> None:
    with served(Metrics(), None, "key", pytest.fail):
        pass


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "no.such.host.invalid:{}", "192.0.2.1:{}"])
def test_an_address_that_cannot_be_bound_is_the_users_error(address: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = MetricsEndpoint(listen=address.format(taken.getsockname()[1]))
        refused = pytest.raises(ConfigError, match="label_party.metrics.listen: cannot listen on")
        with refused as caught, served(Metrics(), endpoint, "label_party.metrics.listen", pytest.fail):
            pass
    assert caught.value.exit_code == 2
