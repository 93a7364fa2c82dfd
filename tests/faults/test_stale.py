"""Frames that come twice, too late, or after what was sent later: over real sockets, they change nothing."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from support.runs import BREAST_CANCER, changed
from support.scripted import ScriptedClient, label_party

from cutlayer.common.tensors import matrices_digest
from cutlayer.v1 import training_pb2

PATIENCE = {"reconnect_s": 60, "goodbye_s": 1}
RUN = changed(BREAST_CANCER, {"job.epochs": 1, "label_party.timeouts": PATIENCE})
Code = grpc.StatusCode
Method = "/cutlayer.v1.LabelPartyService/Train"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedClient]:
    """A party that has taken step 1; at the end it takes the others."""
    run = changed(RUN, {})
    with label_party(tmp_path_factory.mktemp("stale"), run) as address:
        scripted = ScriptedClient(address, run)
        scripted.align()
        scripted.take_step(1)
        yield scripted
        for step in range(scripted.link.applied_step + 1, scripted.schedule.steps + 1):
            scripted.take_step(step)
        scripted.leave()


def end_of(client: ScriptedClient) -> tuple[grpc.StatusCode, str]:
    """Status and text of the last call."""
    code, details, _ = client.received[-1][1]
    return code, details


def next_activation(client: ScriptedClient) -> training_pb2.TrainRequest:
    """What comes next."""
    frame = client.activation(client.link.applied_step + 1)
    client.link.activation(frame.activation.step, matrices_digest([frame.activation.matrix]))
    return frame


def accept(client: ScriptedClient, raw: bytes) -> None:
    """Take an answer, which must be the right one."""
    answer = training_pb2.TrainResponse.FromString(raw).answer
    client.link.on_answer(answer.step, answer.history, matrices_digest([answer.gradient]))
    client.link.applied(answer.step)


def test_P02_an_activation_that_comes_twice_gets_the_same_answer_twice(client: ScriptedClient) -> None:
    frame = next_activation(client)
    _, first, second = client.call("Train", client.hello(), frame, frame)
    assert first == second
    accept(client, first)


def test_P02_an_older_activation_after_a_newer_one_is_refused(client: ScriptedClient) -> None:
    older = client.activation(client.link.applied_step)
    client.take_step(client.link.applied_step + 1)
    client.call("Train", client.hello(), older)
    assert end_of(client)[0] == Code.FAILED_PRECONDITION


def numbered(client: ScriptedClient, call: int) -> training_pb2.TrainRequest:
    """A greeting of a process that counts its calls."""
    frame = client.hello()
    frame.hello.process, frame.hello.call = b"one process here", call
    return frame


def test_P02_a_call_that_was_overtaken_does_not_take_the_place_of_the_later_one(client: ScriptedClient) -> None:
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
    later = client.channel.stream_stream(Method, lambda m: m.SerializeToString(), None)(iter(requests.get, None))
    requests.put(numbered(client, 2))
    assert training_pb2.TrainResponse.FromString(next(later)).HasField("welcome")
    client.call("Train", numbered(client, 1))
    assert end_of(client) == (Code.ABORTED, "a newer stream of this party has taken over")
    requests.put(next_activation(client))
    accept(client, next(later))
    requests.put(None)


def test_P02_another_process_may_take_over_whatever_its_number(client: ScriptedClient) -> None:
    client.call("Train", numbered(client, 9))
    other = numbered(client, 1)
    other.hello.process = b"another process!"
    assert client.call("Train", other) != []
