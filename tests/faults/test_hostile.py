"""Frames that no honest party sends get a clear refusal, and harm nobody: the session beside them ends as ever."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from support.runs import BREAST_CANCER, changed
from support.scripted import ScriptedClient, label_party
from support.threads import Parties, train

from cutlayer.common.limits import MAX_ROWS
from cutlayer.v1 import session_pb2, training_pb2, training_pb2_grpc

RUN = changed(BREAST_CANCER, {"job.epochs": 1, "label_party.timeouts": {"reconnect_s": 60, "goodbye_s": 1}})
WIDTH = 8
Code = grpc.StatusCode
Train = training_pb2.TrainRequest


@dataclass
class Session:
    """A label party, and a client that is at step 2."""

    address: str
    client: ScriptedClient
    out: Path


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """One session for all hostile frames of this module; at the end the honest steps go on to the last one."""
    folder = tmp_path_factory.mktemp("hostile")
    run = changed(RUN, {})
    with label_party(folder, run) as address:
        client = ScriptedClient(address, run)
        client.align()
        client.take_step(1)
        yield Session(address, client, folder / "out")
        for step in range(2, client.schedule.steps + 1):
            client.take_step(step)
        client.leave()
    assert (folder / "out" / "label_party" / "model" / "model.safetensors").read_bytes() == _undisturbed(folder)


def _undisturbed(folder: Path) -> bytes:
    """The label party's weights after the same steps with nobody hostile beside them."""
    run = changed(RUN, {})
    with label_party(folder / "undisturbed", run) as address:
        client = ScriptedClient(address, run)
        client.align()
        for step in range(1, client.schedule.steps + 1):
            client.take_step(step)
        client.leave()
    return (folder / "undisturbed" / "out" / "label_party" / "model" / "model.safetensors").read_bytes()


def sent(session: Session, method: str, *frames: object) -> tuple[grpc.StatusCode, str]:
    """Send frames; the status of the end and its text."""
    session.client.call(method, *frames)
    code, details, _ = session.client.received[-1][1]
    return code, details


def matrix(**fields: object) -> Callable[[Train], None]:
    """Changes the matrix of an activation."""

    def change(frame: Train) -> None:
        for name, value in fields.items():
            setattr(frame.activation.matrix, name, value)

    return change


def activation(**fields: object) -> Callable[[Train], None]:
    """Changes an activation."""

    def change(frame: Train) -> None:
        for name, value in fields.items():
            setattr(frame.activation, name, value)

    return change


BAD_ACTIVATIONS = {
    "rows": (matrix(rows=63), Code.INVALID_ARGUMENT, "rows"),
    "no rows": (matrix(rows=0), Code.INVALID_ARGUMENT, "rows"),
    "huge rows": (matrix(rows=2**32 - 1), Code.INVALID_ARGUMENT, "rows"),
    "width": (matrix(width=9), Code.INVALID_ARGUMENT, "width"),
    "huge width": (matrix(width=2**32 - 1), Code.INVALID_ARGUMENT, "width"),
    "short data": (matrix(data=bytes(64 * WIDTH * 4 - 1)), Code.INVALID_ARGUMENT, "length"),
    "no data": (matrix(data=b""), Code.INVALID_ARGUMENT, "length"),
    "offset": (matrix(offset=2**60), Code.INVALID_ARGUMENT, "offset"),
    "encoding": (matrix(encoding=2), Code.INVALID_ARGUMENT, "encoding"),
    "scale": (matrix(scale=float("nan")), Code.INVALID_ARGUMENT, "scale"),
    "step from the future": (activation(step=3), Code.FAILED_PRECONDITION, "step 3 came, expected step 2"),
    "step zero": (activation(step=0), Code.FAILED_PRECONDITION, "expected step 2"),
    "huge step": (activation(step=2**63), Code.FAILED_PRECONDITION, "expected step 2"),
    "other rows": (activation(rows_digest=bytes(32)), Code.FAILED_PRECONDITION, "rows of this batch"),
    "short digest": (activation(rows_digest=b"x"), Code.INVALID_ARGUMENT, "rows_digest"),
    "other history": (activation(history=bytes(32)), Code.FAILED_PRECONDITION, "histories differ"),
    "no matrix": (lambda frame: frame.activation.ClearField("matrix"), Code.INVALID_ARGUMENT, "rows"),
    "nothing": (lambda frame: frame.Clear(), Code.INVALID_ARGUMENT, "expected an activation, got nothing"),
}


@pytest.mark.parametrize("case", BAD_ACTIVATIONS)
def test_P14_bad_activation(session: Session, case: str) -> None:
    change, code, words = BAD_ACTIVATIONS[case]
    frame = session.client.activation(2)
    change(frame)
    found, details = sent(session, "Train", session.client.hello(), frame)
    assert found == code
    assert words in details


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_P14_numbers_that_are_not_finite(session: Session, number: float) -> None:
    z_Bd = torch.zeros(64, WIDTH)
    z_Bd[5, 3] = 123.0
    frame = session.client.activation(2, z_Bd)
    place = (5 * WIDTH + 3) * 4
    raw = bytearray(frame.activation.matrix.data)
    raw[place : place + 4] = torch.tensor([number]).numpy().tobytes()
    frame.activation.matrix.data = bytes(raw)
    code, details = sent(session, "Train", session.client.hello(), frame)
    assert code == Code.INVALID_ARGUMENT
    assert "row 5 of the batch" in details


def test_P14_data_beyond_the_limit_of_a_frame(session: Session) -> None:
    frame = session.client.activation(2)
    frame.activation.matrix.data = bytes(4 << 20)
    code, _ = sent(session, "Train", session.client.hello(), frame)
    assert code == Code.RESOURCE_EXHAUSTED


def test_P14_frames_without_hello(session: Session) -> None:
    for method, frame in (("Train", session.client.activation(2)), ("AlignRows", training_pb2.AlignRowsRequest())):
        code, details = sent(session, method, frame)
        assert code == Code.INVALID_ARGUMENT
        assert details == "the first message of a stream must be Hello"
        assert sent(session, method)[0] == Code.INVALID_ARGUMENT


BAD_HELLOS: dict[str, tuple[dict[str, object], grpc.StatusCode, str]] = {
    "unknown party": ({"party": "stranger"}, Code.PERMISSION_DENIED, "no party of this job"),
    "the label party itself": ({"party": "label_party"}, Code.PERMISSION_DENIED, "no party of this job"),
    "another job": ({"job_digest": bytes(32)}, Code.FAILED_PRECONDITION, "`job` sections differ"),
    "short digest": ({"job_digest": b"x"}, Code.INVALID_ARGUMENT, "job_digest"),
    "another width": ({"cut_width": 9}, Code.FAILED_PRECONDITION, "cut widths differ"),
    "another protocol": ({"protocol_major": 9}, Code.FAILED_PRECONDITION, "same release of cutlayer"),
    "a step of the future": ({"applied_step": 7}, Code.FAILED_PRECONDITION, "applied step 7"),
    "another history": ({"history": bytes(32)}, Code.FAILED_PRECONDITION, "histories differ"),
    "short name of a run": ({"run": b"x"}, Code.INVALID_ARGUMENT, "run: expected 16 bytes"),
    "short history": ({"history": b""}, Code.INVALID_ARGUMENT, "history"),
}


@pytest.mark.parametrize("case", BAD_HELLOS)
def test_P11_P14_bad_hello(session: Session, case: str) -> None:
    fields, code, words = BAD_HELLOS[case]
    frame = session.client.hello()
    for name, value in fields.items():
        setattr(frame.hello, name, value)
    found, details = sent(session, "Train", frame)
    assert found == code
    assert words in details


@pytest.mark.parametrize("field", ["protocol_major", "protocol_minor", "cut_width"])
def test_P14_hello_without_a_field(session: Session, field: str) -> None:
    frame = session.client.hello()
    frame.hello.ClearField(field)
    assert sent(session, "Train", frame) == (Code.INVALID_ARGUMENT, f"Hello without {field}")


def test_P14_bytes_that_are_no_message(session: Session) -> None:
    for method in ("Train", "AlignRows"):
        multi: Any = session.client.channel.stream_stream(f"/cutlayer.v1.LabelPartyService/{method}", None, None)
        with pytest.raises(grpc.RpcError):
            list(multi(iter([b"\xff" * 200]), timeout=10))


def test_P14_method_that_does_not_exist(session: Session) -> None:
    assert sent(session, "Steal", session.client.hello())[0] == Code.UNIMPLEMENTED


def test_P14_ids_in_bad_form(session: Session) -> None:
    hello = training_pb2.AlignRowsRequest(hello=session.client.hello().hello)
    hello.hello.durable_steps.append(0)
    good: dict[str, Any] = {"total": 1, "digests": bytes(16), "secret_check": session.client.own.check}
    cases: list[tuple[dict[str, Any], grpc.StatusCode, str]] = [
        ({"total": MAX_ROWS + 1}, Code.INVALID_ARGUMENT, "rows announced"),
        ({"total": 2**63}, Code.INVALID_ARGUMENT, "rows announced"),
        ({"total": 0}, Code.INVALID_ARGUMENT, "rows announced"),
        ({"digests": bytes(32)}, Code.INVALID_ARGUMENT, "more id digests than announced"),
        ({"total": 2, "digests": bytes(32)}, Code.INVALID_ARGUMENT, "ascending order"),
        ({"secret_check": bytes(16)}, Code.FAILED_PRECONDITION, "`id_secret`"),
    ]
    for fields, code, words in cases:
        ids = training_pb2.AlignRowsRequest(ids=training_pb2.IdDigests(**(good | fields)))
        found, details = sent(session, "AlignRows", hello, ids)
        assert found == code
        assert words in details


def test_P14_garbage_on_the_raw_socket(session: Session) -> None:
    host, _, port = session.address.rpartition(":")
    for garbage in (bytes(range(200)), b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 200):
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(garbage)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(1 << 12):
                pass


def test_P16_a_stream_in_another_run_is_sent_back_to_the_rows(session: Session) -> None:
    hello = session.client.hello()
    hello.hello.run = bytes(16)
    (answer,) = session.client.call("Train", hello, session.client.activation(2))
    assert training_pb2.TrainResponse.FromString(answer).goodbye.reason == session_pb2.REASON_ROLLBACK


def test_P16_a_second_answer_with_another_activation_is_refused(session: Session) -> None:
    """Step 1 is answered; its z changed by one number is another query."""
    frame = session.client.activation(1)
    z_Bd = torch.zeros(64, WIDTH)
    again = session.client.activation(1, z_Bd)
    again.activation.rows_digest = frame.activation.rows_digest
    code, details = sent(session, "Train", session.client.hello(), again)
    assert code == Code.FAILED_PRECONDITION
    assert "one activation a step is answered" in details


def test_no_refusal_speaks_of_labels(session: Session) -> None:
    """All that was refused so far: closed texts, nothing of the label party's data."""
    texts = [what[1] or "" for _, what in session.client.received if isinstance(what, tuple)]
    assert len(texts) > 20
    for text in texts:
        for word in ("label=", "class", "positive", "loss", "Traceback"):
            assert word not in text


def test_P14_refused_frames_do_not_touch_the_stream_of_the_true_party(tmp_path: Path) -> None:
    """A stranger who calls itself lab, but does not know the job, while the real lab trains."""
    run = changed(BREAST_CANCER, {"job.epochs": 60})
    undisturbed = train(tmp_path / "undisturbed", run).require_success()
    parties = Parties(tmp_path / "disturbed", run)
    refusals = 0
    at_once = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100)]  # it comes early
    with grpc.insecure_channel(parties.address, at_once) as channel:
        stranger = training_pb2_grpc.LabelPartyServiceStub(channel)  # type: ignore[no-untyped-call]
        while any(thread.is_alive() for thread in parties.threads):
            hello = session_pb2.Hello(
                party="lab", protocol_major=1, protocol_minor=0, cut_width=8, job_digest=bytes(32)
            )
            for method, frame in (
                (stranger.Train, training_pb2.TrainRequest(hello=hello)),
                (stranger.AlignRows, training_pb2.AlignRowsRequest(hello=hello)),
            ):
                with pytest.raises(grpc.RpcError) as refused:
                    list(method(iter([frame]), timeout=5))
                refusals += refused.value.code() == Code.FAILED_PRECONDITION
    outcome = parties.wait().require_success()
    assert refusals > 5
    for party in ("label_party", "lab"):
        assert outcome.weights(party) == undisturbed.weights(party)
    assert json.loads((outcome.out / "lab" / "party.json").read_text())["reopened"] == 0
