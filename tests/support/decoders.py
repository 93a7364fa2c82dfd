"""What reads a peer's bytes, one function for each message: it accepts them, or raises one of `REFUSALS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from google.protobuf.message import DecodeError, Message

from cutlayer.common import alignment
from cutlayer.common.errors import FrameError, ProtocolError
from cutlayer.common.handshake import PROTOCOL, Greeting, Terms, check_terms
from cutlayer.common.history import next_history
from cutlayer.common.job_keys import JobKeys
from cutlayer.common.tensors import MatrixReader, matrices_digest, to_matrices
from cutlayer.common.wire import greeting_of, hello_of, printable
from cutlayer.label_party.row_messages import read_announcement, read_ids
from cutlayer.label_party.session import LabelPartyLink
from cutlayer.nonlabel_party.answers import GrantedLabels, clean_positive, read_held, shared_metrics
from cutlayer.nonlabel_party.session import NonlabelPartyLink
from cutlayer.v1 import matrix_pb2, session_pb2, training_pb2

REFUSALS = (ProtocolError, DecodeError)

ROWS, WIDTH = 3, 2
SECRET = b"a secret of the parties"
OWN = alignment.OwnIds(["ann", "bob", "eve"], SECRET)
ROWS_DIGEST = alignment.rows_digest(OWN.digests)
JOB_KEYS = JobKeys.of({"name": "test", "cut_layer": {"width": WIDTH}}, SECRET)
TERMS = Terms("lab", bytes(range(32)), WIDTH, ROWS, ROWS_DIGEST, JOB_KEYS)
START = replace(NonlabelPartyLink(TERMS, steps=2).greeting("1.0"), run=bytes(16))
UNALIGNED = Greeting(PROTOCOL, "1.0", "lab", TERMS.job_digest, WIDTH, None, None, 0, b"", (3, 6), JOB_KEYS)
T_BD = torch.arange(6.0).view(ROWS, WIDTH) / 8


@dataclass(frozen=True)
class Decoder:
    """Reads bytes of one message.

    Attributes:
        samples: messages that it accepts.
    """

    samples: tuple[Message, ...]
    read: Callable[[bytes], None]


# What the label party reads.


def _read_hello(data: bytes) -> None:
    greeting = greeting_of(session_pb2.Hello.FromString(data))
    check_terms(
        greeting, TERMS if greeting.rows_count is not None else Terms("lab", TERMS.job_digest, WIDTH, None, None)
    )


def _read_id_digests(data: bytes) -> None:
    requests = iter([training_pb2.AlignRowsRequest.FromString(data)])
    ids = read_ids(read_announcement(requests, SECRET), requests, ())
    assert 1 <= len(ids.digests) <= len(data) // alignment.DIGEST_BYTES


def _read_activation(data: bytes) -> None:
    link: LabelPartyLink[str] = LabelPartyLink(TERMS, steps=2)
    activation = training_pb2.TrainRequest.FromString(data).activation
    link.check_step(activation.step)
    reader = MatrixReader(ROWS, WIDTH, "float32")
    if reader.add(activation.matrix):
        assert bool(reader.tensor().isfinite().all())
        step, rows, history = activation.step, activation.rows_digest, activation.history
        link.on_activation(step, reader.digest(), rows, history, ROWS_DIGEST)


# What a non-label party reads.


def _read_held(data: bytes) -> None:
    responses = _then_no_more(training_pb2.AlignRowsResponse.FromString(data))
    held = read_held(responses.__next__, ROWS, (3, 6), GrantedLabels(per_class=1))
    assert held.mask.shape == (ROWS,)
    assert held.mask.dtype == np.bool_
    assert held.resume_step in (0, 3, 6)
    assert held.run is None or len(held.run) == 16
    assert all(row < held.mask.sum() for row in held.labels)
    assert sorted(held.labels.values()) in ([], [0], [1], [0, 1])


def _then_no_more(message: training_pb2.AlignRowsResponse) -> Iterator[training_pb2.AlignRowsResponse]:
    yield message
    raise FrameError("no more messages")


def _read_welcome(data: bytes) -> None:
    welcome = training_pb2.TrainResponse.FromString(data).welcome
    NonlabelPartyLink(TERMS, steps=2).on_welcome((welcome.protocol_major, welcome.protocol_minor), welcome.next_step)


def _read_answer(data: bytes) -> None:
    answer = training_pb2.TrainResponse.FromString(data).answer
    link = NonlabelPartyLink(TERMS, steps=2)
    link.activation(1, matrices_digest(to_matrices(T_BD, "float32")))
    reader = MatrixReader(ROWS, WIDTH, "float16")
    if reader.add(answer.gradient):
        assert bool(reader.tensor().isfinite().all())
        link.on_answer(answer.step, answer.history, reader.digest())
    knowledge = clean_positive(answer.knowledge, ROWS, WIDTH)
    assert knowledge is None or knowledge.row < ROWS
    assert len(shared_metrics(answer)) <= 64


def _read_goodbye(data: bytes) -> None:
    words = printable(training_pb2.TrainResponse.FromString(data).goodbye.party)
    assert words.isprintable()


def _matrix_reader(encoding: str) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        reader = MatrixReader(ROWS, WIDTH, encoding)
        if reader.add(matrix_pb2.Matrix.FromString(data)):
            assert reader.tensor().shape == (ROWS, WIDTH)

    return read


def _an_activation() -> training_pb2.TrainRequest:
    activation = training_pb2.Activation(step=1, history=START.history, rows_digest=ROWS_DIGEST)
    activation.matrix.CopyFrom(to_matrices(T_BD, "float32")[0])
    return training_pb2.TrainRequest(activation=activation)


def _an_answer() -> training_pb2.TrainResponse:
    (matrix,) = to_matrices(T_BD, "float16")
    z_digest = matrices_digest(to_matrices(T_BD, "float32"))
    history = next_history(START.history, 1, z_digest, matrices_digest([matrix]))
    answer = training_pb2.Answer(step=1, history=history, gradient=matrix, checkpoint=True)
    answer.knowledge.positive_row = 2
    answer.knowledge.clean_gradient = T_BD[2].numpy().tobytes()
    answer.metrics.add(name="test_auc", value=0.75)
    return training_pb2.TrainResponse(answer=answer)


def _ids() -> training_pb2.AlignRowsRequest:
    digests = alignment.digests_to_wire(OWN.digests)
    ids = training_pb2.IdDigests(total=ROWS, digests=digests, secret_check=OWN.check, form=3)
    return training_pb2.AlignRowsRequest(ids=ids)


def _an_answer_to_ids(**labels: Any) -> training_pb2.AlignRowsResponse:
    return training_pb2.AlignRowsResponse(matched=2, held_by_all=b"\5", form=1, resume_step=3, run=bytes(16), **labels)


DECODERS = {
    "hello": Decoder((hello_of(START), hello_of(UNALIGNED)), _read_hello),
    "id_digests": Decoder((_ids(),), _read_id_digests),
    "activation": Decoder((_an_activation(),), _read_activation),
    "held": Decoder((_an_answer_to_ids(), _an_answer_to_ids(labelled_rows=[1, 0], labels=[0, 1])), _read_held),
    "welcome": Decoder(
        (
            training_pb2.TrainResponse(
                welcome=session_pb2.Welcome(protocol_major=PROTOCOL[0], protocol_minor=PROTOCOL[1], next_step=1)
            ),
        ),
        _read_welcome,
    ),
    "answer": Decoder((_an_answer(),), _read_answer),
    "goodbye": Decoder(
        (training_pb2.TrainResponse(goodbye=session_pb2.Goodbye(reason=4, party="bank")),), _read_goodbye
    ),
    **{
        f"matrix_{encoding}": Decoder((to_matrices(T_BD, encoding)[0],), _matrix_reader(encoding))
        for encoding in ("float32", "float16", "bfloat16")
    },
}
