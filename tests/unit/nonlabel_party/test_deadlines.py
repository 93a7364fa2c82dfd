"""A label party that takes calls and answers none: every call of the other side ends in time, and says where it was."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from cutlayer.common.alignment import OwnIds
from cutlayer.common.displays import make_display
from cutlayer.common.errors import PeerError
from cutlayer.common.handshake import Terms
from cutlayer.common.limits import Limits, Timeouts
from cutlayer.common.telemetry import Telemetry
from cutlayer.common.tensors import to_matrices
from cutlayer.nonlabel_party import client as client_module
from cutlayer.nonlabel_party.client import LabelPartyClient
from cutlayer.v1 import training_pb2_grpc

BRIEF = Timeouts(connect_s=0.3, reconnect_s=0.3, stall_s=0.3, goodbye_s=0.3)
TERMS = Terms("lab", bytes(32), 8, 2, bytes(32))


class Silent(training_pb2_grpc.LabelPartyServiceServicer):
    """Answers nothing until it is over."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def _wait(self, request: object, context: grpc.ServicerContext) -> Iterator[object]:
        self.over.wait()
        yield from ()

    AlignRows = Train = _wait

    def Leave(self, request: object, context: grpc.ServicerContext) -> None:
        self.over.wait()


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabelPartyClient]:
    """A party that is connected to such a label party."""
    monkeypatch.setattr(client_module, "_REPORT_EVERY_S", 0.1)
    server, silent = grpc.server(futures.ThreadPoolExecutor(4)), Silent()
    training_pb2_grpc.add_LabelPartyServiceServicer_to_server(silent, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with Telemetry("lab", tmp_path, make_display(events=False)) as telemetry:
        made = LabelPartyClient(f"127.0.0.1:{port}", TERMS, Limits(2, 8), BRIEF, "float32", telemetry)
        yield made
        made.close()
    silent.over.set()
    server.stop(0).wait()


def test_P08_align_rows(client: LabelPartyClient) -> None:
    with pytest.raises(PeerError, match="connected but answered nothing while rows were being aligned for 0.9 s"):
        client.align(OwnIds(["1", "2"], b"secret"), "here", ())


def test_P08_train(client: LabelPartyClient) -> None:
    import torch

    client.begin_training(TERMS, 3, None)
    with pytest.raises(PeerError, match="connected but answered nothing at step 1 for 0.9 s"):
        client.exchange(1, bytes(32), to_matrices(torch.zeros(2, 8), "float32"), 2)


def test_P08_the_last_word(client: LabelPartyClient) -> None:
    client.begin_training(TERMS, 3, None)
    with pytest.raises(PeerError, match="connected but did not confirm the last step"):
        client.finish()


def test_P08_leave(client: LabelPartyClient) -> None:
    began = time.monotonic()
    client.leave("FAILED")
    assert time.monotonic() - began < 20  # of 0.3; a call without a deadline would wait for ever
