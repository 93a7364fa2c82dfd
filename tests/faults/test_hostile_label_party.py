"""A label party that sends what no honest one does: the other party ends soon, with an error that says what came."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from support.runs import BREAST_CANCER, Run, changed, write
from support.scripted import SECRET

from cutlayer.common import run_files
from cutlayer.common.errors import (
    AlignmentError,
    CheckpointError,
    CutlayerError,
    FrameError,
    OrderError,
    PeerError,
    SkewError,
)
from cutlayer.common.history import next_history
from cutlayer.common.tensors import matrices_digest, to_matrices
from cutlayer.nonlabel_party.process import NonlabelParty
from cutlayer.v1 import session_pb2, training_pb2

ROWS, BATCH, WIDTH = 569, 64, 8
MIB = 1 << 20
Requests = Iterator[Any]
Behaviour = Callable[[Requests, grpc.ServicerContext], Iterator[bytes]]


@contextmanager
def serving(align: Behaviour, train: Behaviour) -> Iterator[str]:
    """A label party of these two methods; gives its address."""
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", -1)])
    handlers = {
        "AlignRows": grpc.stream_stream_rpc_method_handler(align, training_pb2.AlignRowsRequest.FromString),
        "Train": grpc.stream_stream_rpc_method_handler(train, training_pb2.TrainRequest.FromString),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("cutlayer.v1.LabelPartyService", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def outcome(folder: Path, align: Behaviour, train: Behaviour) -> CutlayerError:
    """With which error a real non-label party ends."""
    timeouts = {"connect_s": 3, "reconnect_s": 0.5, "stall_s": 1, "goodbye_s": 0.2}
    with serving(align, train) as address:
        run: Run = changed(
            BREAST_CANCER,
            {
                "nonlabel_parties.lab.connect": address,
                "nonlabel_parties.lab.timeouts": timeouts,
                "nonlabel_parties.lab.id_secret": SECRET,
                "nonlabel_parties.lab.attacks": ["norm", "cosine"],
                "job.knowledge": {"lab": {"clean_positive_gradient": True}},
            },
        )
        with pytest.raises(CutlayerError) as ended:
            NonlabelParty(run_files.load(write(folder, run)), "lab", folder / "out", None, events=False).run()
    assert str(ended.value).isprintable()
    return ended.value


# How to answer.


def saying(*messages: Any) -> Behaviour:
    """Take the first request, then send `messages`, or bytes."""

    def behave(requests: Requests, context: grpc.ServicerContext) -> Iterator[bytes]:
        next(requests)
        for message in messages:
            yield message if isinstance(message, bytes) else message.SerializeToString()

    return behave


def failing(code: grpc.StatusCode, details: str) -> Behaviour:
    """Refuse."""

    def behave(requests: Requests, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.abort(code, details)
        yield b""

    return behave


def silent(requests: Requests, context: grpc.ServicerContext) -> Iterator[bytes]:
    """Take everything, and never answer."""
    yield from (b"" for _ in requests if False)


def held(count: int = ROWS, **fields: Any) -> training_pb2.AlignRowsResponse:
    """All of `count` rows."""
    return training_pb2.AlignRowsResponse(matched=count, held_by_all=b"\xff" * -(-count // 8), form=1, **fields)


def honest_rows(requests: Requests, context: grpc.ServicerContext) -> Iterator[bytes]:
    """Hold all rows that the party has."""
    next(requests)
    yield held().SerializeToString()
    yield from (b"" for _ in requests if False)


def answering(change: Callable[[training_pb2.Answer], None], number: float = 0.5) -> Behaviour:
    """Welcome, then an answer to the first step: a gradient of `number`s that continues the history, then `change`d."""

    def behave(requests: Requests, context: grpc.ServicerContext) -> Iterator[bytes]:
        next(requests)
        yield welcome().SerializeToString()
        sent = next(requests).activation
        (gradient,) = to_matrices(torch.ones(BATCH, WIDTH), "float32")
        gradient.data = torch.full((BATCH, WIDTH), number).numpy().tobytes()
        history = next_history(sent.history, 1, matrices_digest([sent.matrix]), matrices_digest([gradient]))
        answer = training_pb2.Answer(step=1, history=history, gradient=gradient)
        change(answer)
        yield training_pb2.TrainResponse(answer=answer).SerializeToString()

    return behave


def welcome(**fields: Any) -> training_pb2.TrainResponse:
    """The first answer on Train."""
    said = {"protocol_major": 1, "protocol_minor": 0, "next_step": 1} | fields
    return training_pb2.TrainResponse(welcome=session_pb2.Welcome(**said))


def goodbye(**fields: Any) -> training_pb2.TrainResponse:
    return training_pb2.TrainResponse(goodbye=session_pb2.Goodbye(**fields))


def knowing(row: int, gradient: bytes) -> Callable[[training_pb2.Answer], None]:
    def change(answer: training_pb2.Answer) -> None:
        answer.knowledge.positive_row = row
        answer.knowledge.clean_gradient = gradient

    return change


def figures(*names: str) -> Callable[[training_pb2.Answer], None]:
    def change(answer: training_pb2.Answer) -> None:
        for name in names:
            answer.metrics.add(name=name, value=1.0)

    return change


CONTROLS = "\x1b[2J\x1b]0;title\a\nlab: finished\r" + 3_000 * "x"

ALIGNMENTS: dict[str, tuple[Behaviour, type[CutlayerError], str]] = {
    "garbage": (saying(b"\xff" * 100), PeerError, "refused"),
    "nothing in it": (saying(training_pb2.AlignRowsResponse()), FrameError, "wrong length"),
    "too many rows": (saying(held(ROWS + 8)), FrameError, "wrong length"),
    "too few rows": (saying(held(ROWS - 8)), PeerError, "closed the stream"),
    "one row too often": (saying(*(200 * [held(40)])), FrameError, "wrong length"),
    "no row": (saying(training_pb2.AlignRowsResponse(held_by_all=bytes(72))), AlignmentError, "0 of 569 rows"),
    "a checkpoint that is not there": (saying(held(resume_step=7)), FrameError, "after step 7"),
    "a checkpoint of the far future": (saying(held(resume_step=2**64 - 1)), FrameError, "no checkpoint"),
    "a name of the run that is none": (saying(held(run=b"17 bytes of it...")), FrameError, "17 bytes, expected 16"),
    "a message beyond the limit": (saying(held(8 * 4 * MIB)), PeerError, "larger than max"),
    "an end": (saying(), PeerError, "closed the stream"),
    "silence": (silent, PeerError, "answered nothing"),
    "words for a terminal": (failing(grpc.StatusCode.INTERNAL, CONTROLS), PeerError, "finished"),
    "unavailable for ever": (failing(grpc.StatusCode.UNAVAILABLE, "no"), PeerError, "did not come back"),
    "busy for ever": (
        failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!"),
        PeerError,
        "did not come back",
    ),
}


@pytest.mark.parametrize("case", ALIGNMENTS)
def test_P14_hostile_alignment(tmp_path: Path, case: str) -> None:
    align, kind, words = ALIGNMENTS[case]
    error = outcome(tmp_path, align, silent)
    assert type(error) is kind, repr(error)
    _requires(words, error)


TRAININGS: dict[str, tuple[Behaviour, type[CutlayerError], str]] = {
    "garbage": (saying(b"\xff" * 100), PeerError, "refused"),
    "nothing in it": (saying(b""), FrameError, "expected welcome"),
    "an answer first": (saying(training_pb2.TrainResponse(answer=training_pb2.Answer())), FrameError, "got answer"),
    "no next step": (saying(welcome(next_step=None)), FrameError, "no next_step"),
    "another step": (saying(welcome(next_step=9)), OrderError, "expects step 9"),
    "another protocol": (saying(welcome(protocol_major=7)), SkewError, "protocol 7.0"),
    "two welcomes": (saying(welcome(), welcome()), FrameError, "expected answer from the label party, got welcome"),
    "a step of the future": (answering(lambda answer: _set(answer, step=2)), OrderError, "step 2 came"),
    "another history": (answering(lambda answer: _set(answer, history=bytes(32))), SkewError, "does not continue"),
    "no history": (answering(lambda answer: _set(answer, history=b"")), FrameError, "history: expected 32 bytes"),
    "more rows": (answering(lambda answer: _set(answer.gradient, rows=2**32 - 1)), FrameError, "rows: expected 64"),
    "less bytes": (answering(lambda answer: _set(answer.gradient, data=b"x")), FrameError, "length in bytes"),
    "not finite": (answering(lambda answer: None, float("nan")), FrameError, "not finite"),
    "changed": (answering(lambda answer: _set(answer.gradient, data=bytes(2048))), SkewError, "does not continue"),
    "a row outside": (answering(knowing(BATCH, bytes(4 * WIDTH))), FrameError, "does not fit the batch"),
    "half a row": (answering(knowing(0, bytes(4))), FrameError, "does not fit the batch"),
    "a row not finite": (answering(knowing(0, b"\xff" * 4 * WIDTH)), FrameError, "not finite"),
    "many figures": (answering(figures(*(f"f{n}" for n in range(1000)))), FrameError, "1000 figures"),
    "a figure named step": (answering(figures("step")), FrameError, "no proper name"),
    "a figure for a terminal": (answering(figures("\x1b[2J")), FrameError, "no proper name"),
    "lost, for a terminal": (saying(goodbye(reason=4, party=CONTROLS)), PeerError, "lost party"),
    "an unknown reason": (saying(goodbye(reason=99)), PeerError, "has failed"),
    "silence": (silent, PeerError, "answered nothing"),
    "a message beyond the limit": (saying(bytes(8 * MIB)), PeerError, "larger than max"),
}


def test_P16_a_label_party_that_goes_on_with_another_run_gets_nothing(tmp_path: Path) -> None:
    """One of an earlier release compares no runs."""
    named = [bytes([number]) * 16 for number in (1, 2)]
    outcome(tmp_path, saying(held(run=named[0])), saying())
    error = outcome(tmp_path, saying(held(run=named[1])), saying())
    assert type(error) is CheckpointError
    assert "is of run 01010101 of this job, and the label party goes on with run 02020202: start both with" in str(
        error
    )


@pytest.mark.parametrize("case", TRAININGS)
def test_P14_hostile_training(tmp_path: Path, case: str) -> None:
    train, kind, words = TRAININGS[case]
    error = outcome(tmp_path, honest_rows, train)
    assert type(error) is kind, repr(error)
    _requires(words, error)


def test_P14_endless_chunks_take_no_memory(tmp_path: Path) -> None:
    """Of a matrix, of rows: the first one too many ends it."""

    def endless(requests: Requests, context: grpc.ServicerContext) -> Iterator[bytes]:
        next(requests)
        yield from itertools.repeat(held(40).SerializeToString())

    tracemalloc.start()
    try:
        _requires("wrong length", outcome(tmp_path, endless, silent))
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()


def _set(message: Any, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(message, name, value)


def _requires(words: str, error: CutlayerError) -> None:
    assert words in str(error), repr(error)
    assert len(str(error)) < 700
