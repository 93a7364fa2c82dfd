"""The label party's gRPC service: streams in, sessions, streams out. It computes nothing.

One thread serves one stream. It checks what comes in, hands it to the training loop through the exchange,
waits, and sends what the loop released.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from cutlayer import __version__
from cutlayer.common.config import Job
from cutlayer.common.errors import CutlayerError, FrameError, NotAllowedError, SkewError
from cutlayer.common.schedule import Schedule
from cutlayer.common.session import (
    PROTOCOL,
    AnswerAgain,
    Compute,
    Greeting,
    LabelPartyLink,
    Terms,
    check_terms,
)
from cutlayer.common.telemetry import Telemetry
from cutlayer.common.tensors import MatrixReader, matrices_digest, to_matrices
from cutlayer.common.wire import greeting_of
from cutlayer.label_party.exchange import Closed, Exchange, Stream, StreamGone
from cutlayer.label_party.peers import Admission, admit_anyone
from cutlayer.label_party.row_messages import HeldRows, held_frames, read_ids
from cutlayer.label_party.rows import PartyIds
from cutlayer.label_party.training import Received, Release
from cutlayer.v1 import matrix_pb2, session_pb2, training_pb2, training_pb2_grpc

_REFUSED = "the label party ended the session; its own log says why"

PartyExchange = Exchange[PartyIds | Received, HeldRows | Release]


@dataclass
class Traffic:
    """Bytes of a link: tensors in, tensors out, and everything around them."""

    activations: int = 0
    gradients: int = 0
    overhead: int = 0


@dataclass
class Link:
    """What the server keeps of one party while it trains."""

    session: LabelPartyLink[list[training_pb2.TrainResponse]]
    lock: threading.Lock = field(default_factory=threading.Lock)
    traffic: Traffic = field(default_factory=Traffic)


class LabelPartyServicer(training_pb2_grpc.LabelPartyServiceServicer):
    """Serves the non-label parties of one job.

    Args:
        secret: the shared secret of the row ids.
        admit: raises unless the peer of a call may be the party that it says it is.
    """

    def __init__(
        self, job: Job, exchange: PartyExchange, secret: bytes, telemetry: Telemetry, admit: Admission = admit_anyone
    ) -> None:
        self._job = job
        self._exchange = exchange
        self._secret = secret
        self._telemetry = telemetry
        self._admit = admit
        self._schedule: Schedule | None = None
        self.links: dict[str, Link] = {}

    def open_training(self, schedule: Schedule, rows_count: int, rows_digest: bytes) -> None:
        """Accept Train streams from now on: the rows are known."""
        self._schedule = schedule
        for party in self._job.parties:
            terms = self._terms(party, rows_count, rows_digest)
            self.links[party] = Link(LabelPartyLink(terms, schedule.steps))

    # The three methods of the service.

    def AlignRows(
        self, request_iterator: Iterator[training_pb2.AlignRowsRequest], context: grpc.ServicerContext
    ) -> Iterator[training_pb2.AlignRowsResponse]:
        """Takes a party's id digests; answers which of them all parties hold."""
        with self._boundary(context):
            greeting = self._greeting(_first(request_iterator), context)
            check_terms(greeting, self._terms(greeting.party, None, None))
            with self._stream(greeting.party, context) as stream:
                self._telemetry.info(f"{greeting.party} has connected (version {greeting.package_version})")
                self._exchange.submit(stream, 0, read_ids(request_iterator, self._secret))
                held = self._exchange.wait_answer(stream, 0)
                assert isinstance(held, HeldRows)
                yield from held_frames(held)
                for _ in request_iterator:  # the party keeps this stream open until it trains, to be seen alive
                    raise FrameError("unexpected message after the id digests")

    def Train(
        self, request_iterator: Iterator[training_pb2.TrainRequest], context: grpc.ServicerContext
    ) -> Iterator[training_pb2.TrainResponse]:
        """Takes one activation after another; answers each with what the training loop released."""
        with self._boundary(context):
            greeting = self._greeting(_first(request_iterator), context)
            link = self._link(greeting.party)
            with link.lock:  # before the stream takes over: who is refused must not end the stream of the true party
                next_step = link.session.on_greeting(greeting)
            with self._stream(greeting.party, context) as stream:
                try:
                    yield training_pb2.TrainResponse(welcome=_welcome(next_step))
                    for frame in request_iterator:
                        yield from self._on_activation(link, stream, frame, request_iterator)
                except Closed as closed:
                    yield training_pb2.TrainResponse(goodbye=_goodbye(closed))

    def Leave(self, request: training_pb2.LeaveRequest, context: grpc.ServicerContext) -> training_pb2.LeaveResponse:
        """Notes that a party ends."""
        with self._boundary(context):
            greeting = self._greeting(request.hello, context)
            check_terms(greeting, self._terms(greeting.party, None, None))
            self._exchange.leave(greeting.party, _LEAVING.get(request.goodbye.reason, "has failed"))
        return training_pb2.LeaveResponse()

    # One activation.

    def _on_activation(
        self,
        link: Link,
        stream: Stream,
        frame: training_pb2.TrainRequest,
        more: Iterator[training_pb2.TrainRequest],
    ) -> Iterator[training_pb2.TrainResponse]:
        first = _activation(frame)
        reader = self._read_matrix(link, first, more)
        received = Received(reader.tensor(), reader.digest())
        with link.lock:
            outcome = link.session.on_activation(
                step=first.step,
                z_digest=received.z_digest,
                rows_digest=first.rows_digest,
                history=first.history,
                expected_rows_digest=self._rows_digest(first.step),
            )
        if isinstance(outcome, AnswerAgain):
            yield from outcome.answer
            return
        if isinstance(outcome, Compute):
            link.traffic.activations += reader.payload_bytes
        self._exchange.submit(stream, first.step, received)  # again where an earlier stream broke off before it could
        release = self._exchange.wait_answer(stream, first.step)
        assert isinstance(release, Release)
        yield from self.answer(link, first.step, release)

    def answer(self, link: Link, step: int, release: Release) -> list[training_pb2.TrainResponse]:
        """The frames that answer `step`; made once, kept by the session, sent as often as they are asked for."""
        with link.lock:
            kept = link.session.last_answer
            if link.session.answered_step == step and kept is not None:
                return kept
            matrices = to_matrices(release.gradient.g_Bd, self._job.cut_layer.encoding) if release.gradient else []
            history = link.session.seal(step, matrices_digest(matrices))
            frames = _answer_frames(step, history, matrices, release)
            link.session.answered(step, frames)
            payload = sum(len(m.data) for m in matrices)
            link.traffic.gradients += payload
            link.traffic.overhead += sum(f.ByteSize() for f in frames) - payload
        return frames

    def _read_matrix(
        self, link: Link, first: training_pb2.Activation, more: Iterator[training_pb2.TrainRequest]
    ) -> MatrixReader:
        assert self._schedule is not None
        with link.lock:
            link.session.check_step(first.step)
        width = self._job.cut_layer.width_of(link.session.terms.party)
        reader = MatrixReader(len(self._schedule.rows_of(first.step)), width, self._job.cut_layer.encoding)
        chunk = first
        while not reader.add(chunk.matrix):
            chunk = _activation(next(more, training_pb2.TrainRequest()))
            if chunk.step != first.step:
                raise FrameError(f"a chunk of step {chunk.step} inside step {first.step}")
        link.traffic.overhead += first.ByteSize() - len(first.matrix.data)
        return reader

    def _rows_digest(self, step: int) -> bytes:
        assert self._schedule is not None
        return self._schedule.rows_digest(step)

    # Who is there, and what may cross the wire.

    def _greeting(self, hello: session_pb2.Hello, context: grpc.ServicerContext) -> Greeting:
        greeting = greeting_of(hello)
        self._admit(context, greeting.party)
        return greeting

    def _terms(self, party: str, rows_count: int | None, rows_digest: bytes | None) -> Terms:
        if party not in self._job.parties:
            raise NotAllowedError("this name is no party of this job; see job.parties")
        return Terms(party, self._job.digest(), self._job.cut_layer.width_of(party), rows_count, rows_digest)

    def _link(self, party: str) -> Link:
        self._terms(party, None, None)
        if party not in self.links:
            raise SkewError("the rows are not aligned yet; call AlignRows first")
        return self.links[party]

    @contextmanager
    def _stream(self, party: str, context: grpc.ServicerContext) -> Iterator[Stream]:
        stream = self._exchange.arrive(party)
        context.add_callback(lambda: self._exchange.depart(stream))
        try:
            yield stream
        finally:
            self._exchange.depart(stream)

    @contextmanager
    def _boundary(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Let errors cross the wire only if their class says so; the rest is for the label party's log."""
        try:
            yield
        except StreamGone:
            context.abort(grpc.StatusCode.ABORTED, "a newer stream of this party has taken over")
        except Closed:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, _REFUSED)
        except grpc.RpcError:  # the peer has ended the stream; there is nobody to answer
            raise
        except Exception as error:
            status = error.wire_status if isinstance(error, CutlayerError) else None
            if status is None:
                self._telemetry.error(f"a stream failed: {type(error).__name__}: {error}")
                context.abort(grpc.StatusCode.INTERNAL, "see the label party's log")
            self._telemetry.warning(f"refused a message: {error}")
            context.abort(grpc.StatusCode[status], str(error))


_LEAVING = {
    session_pb2.REASON_FINISHED: "has finished",
    session_pb2.REASON_STOPPED: "was stopped",
    session_pb2.REASON_FAILED: "has failed",
}


def _first(requests: Iterator[Any]) -> session_pb2.Hello:
    first = next(requests, None)
    if first is None or first.WhichOneof("message") != "hello":
        raise FrameError("the first message of a stream must be Hello")
    hello: session_pb2.Hello = first.hello
    return hello


def _activation(frame: training_pb2.TrainRequest) -> training_pb2.Activation:
    if frame.WhichOneof("message") != "activation":
        raise FrameError(f"expected an activation, got {frame.WhichOneof('message') or 'nothing'}")
    return frame.activation


def _answer_frames(
    step: int, history: bytes, matrices: list[matrix_pb2.Matrix], release: Release
) -> list[training_pb2.TrainResponse]:
    answers = [training_pb2.Answer(step=step, history=history, gradient=m) for m in matrices]
    answers = answers or [training_pb2.Answer(step=step, history=history)]
    if (reference := release.clean_positive) is not None:
        answers[0].knowledge.positive_row = reference.row
        answers[0].knowledge.clean_gradient = reference.g_d.numpy().astype("<f4").tobytes()
    for name, value in (release.metrics or {}).items():
        answers[0].metrics.add(name=name, value=value)
    return [training_pb2.TrainResponse(answer=answer) for answer in answers]


def _welcome(next_step: int) -> session_pb2.Welcome:
    return session_pb2.Welcome(
        protocol_major=PROTOCOL[0], protocol_minor=PROTOCOL[1], package_version=__version__, next_step=next_step
    )


def _goodbye(closed: Closed) -> session_pb2.Goodbye:
    return session_pb2.Goodbye(reason=f"REASON_{closed.reason}", party=closed.party)
