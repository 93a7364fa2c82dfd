"""The non-label party's end of the wire: align rows, then send a step, wait for its answer, reopen if broken."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import grpc

from cutlayer import __version__
from cutlayer.common import alignment
from cutlayer.common.channel import BROKEN
from cutlayer.common.errors import AlignmentError, FrameError, PeerError, RolledBack
from cutlayer.common.history import LinkState
from cutlayer.common.limits import Limits, Timeouts
from cutlayer.common.process import end_requested
from cutlayer.common.session import PROTOCOL, Greeting, NonlabelPartyLink, Terms
from cutlayer.common.tensors import MatrixReader, matrices_digest
from cutlayer.common.tls import OwnCertificate
from cutlayer.common.wire import hello_of
from cutlayer.nonlabel_party.connection import Connection
from cutlayer.nonlabel_party.stream import Held, Stream, id_frames, read_held
from cutlayer.nonlabel_party.watchdog import Watchdog
from cutlayer.v1 import matrix_pb2, session_pb2, training_pb2

_REPORT_EVERY_S = 5.0


@dataclass(frozen=True)
class Answer:
    """What the label party returned for a step: the gradient of a training step, knowledge, shared metrics."""

    gradient: MatrixReader | None
    knowledge: training_pb2.Knowledge | None
    metrics: dict[str, float]
    checkpoint: bool = False  # the label party has saved this step, and so must this party


@dataclass
class Traffic:
    """Time spent waiting for the label party, and how often the stream was reopened."""

    wait_seconds: float = 0.0
    reopened: int = 0


class LabelPartyClient:
    """A non-label party's connection to the label party.

    Args:
        address: host:port of the label party.
        terms: what both sides must mean; without rows until `align` has run.
        report: told in words when this party has to wait.
        own: this party's certificate; None for plaintext.
    """

    def __init__(
        self,
        address: str,
        terms: Terms,
        limits: Limits,
        timeouts: Timeouts,
        encoding: str,
        report: Callable[[str], None],
        own: OwnCertificate | None = None,
    ) -> None:
        self._address = address
        self._terms = terms
        self._limits = limits
        self._timeouts = timeouts
        self._encoding = encoding
        self._report = report
        self._connection = Connection(address, limits.frame_bytes, timeouts, own, report)
        self._watchdog = Watchdog(end_requested, timeouts.goodbye_s)
        self._aligning: Stream | None = None
        self._training: Stream | None = None
        self._link: NonlabelPartyLink | None = None
        self.traffic = Traffic()

    @property
    def history(self) -> bytes:
        """History digest after the last applied step."""
        assert self._link is not None
        return self._link.history

    def align(
        self,
        own: alignment.OwnIds,
        origin: str,
        durable_steps: tuple[int, ...],
        patience_s: float | None = None,
        granted_labels: int = 0,
    ) -> Held:
        """Which of this party's sorted ids all parties hold, and the step after which all go on.

        Args:
            durable_steps: of which this party holds a checkpoint.
            patience_s: how long to wait for the label party in place of `connect_s`.
            granted_labels: how many labels of each class the job grants this party.

        Raises:
            AlignmentError: none is held by all. PeerError: the label party is not there or ended the session.
            CertificateError: TLS to the label party cannot work.
        """
        self._forget()
        lost_at = float("-inf")
        while True:
            self._connection.await_label_party(patience_s or self._timeouts.connect_s)
            opened = time.monotonic()
            stream = Stream(self._connection.stub.AlignRows, self._watchdog, self._timeouts.connect_s)
            try:
                greeting = replace(self._greeting(), durable_steps=durable_steps)
                stream.send(training_pb2.AlignRowsRequest(hello=hello_of(greeting)), *id_frames(own))
                held = read_held(stream, len(own.digests), granted_labels)
            except grpc.RpcError as error:
                if opened - lost_at > self._timeouts.reconnect_s:  # not one of a row of attempts that break at once
                    lost_at = time.monotonic()
                self._wait_or_give_up(error, "while rows were being aligned", lost_at)
                continue
            self._aligning = stream  # stays open until training begins, so that this party is seen alive
            if not held.mask.any():
                raise AlignmentError(alignment.explain_no_match(own.form, held.form, len(own.digests), [], origin))
            return held

    def begin_training(self, terms: Terms, steps: int, state: LinkState | None) -> None:
        """The rows are known: `terms` has their count and digest, `steps` is the number of the last step.

        Args:
            state: where the link goes on; None for the beginning.
        """
        self._link = NonlabelPartyLink(terms, steps, state)

    def exchange(self, step: int, rows_digest: bytes, matrices: list[matrix_pb2.Matrix], rows: int) -> Answer:
        """Send the activations of `step`, wait for the answer; reopen the stream as long as that makes sense.

        Raises:
            PeerError: the label party is lost, has ended the session, or refused a message.
            RolledBack: begin again with `align`.
            CertificateError: the line broke, and TLS cannot bring it back.
        """
        assert self._link is not None
        history = self._link.activation(step, matrices_digest(matrices))
        frames = [
            training_pb2.TrainRequest(
                activation=training_pb2.Activation(step=step, history=history, rows_digest=rows_digest, matrix=m)
            )
            for m in matrices
        ]
        began, lost_at = time.monotonic(), None
        while True:
            try:
                stream = self._training or self._open()
                stream.send(*frames)
                answer = self._read_answer(stream, step, rows)
                self.traffic.wait_seconds += time.monotonic() - began
                return answer
            except grpc.RpcError as error:
                self._training = None
                lost_at = lost_at or time.monotonic()
                self._wait_or_give_up(error, f"at step {step}", lost_at)

    def applied(self, step: int) -> None:
        """The optimizer step of `step` is done."""
        assert self._link is not None
        self._link.applied(step)

    @property
    def trains(self) -> bool:
        """Whether the rows are known and there is a link."""
        return self._link is not None

    def link_state(self) -> LinkState:
        """Where the link stands, for a checkpoint."""
        assert self._link is not None
        return self._link.state()

    def finish(self) -> None:
        """Tell the label party that the last step is done, and wait until all parties can say so.

        Raises:
            RolledBack: another party could not, or the label party was lost: begin again with `align`.
            PeerError: the label party has ended the session.
        """
        goodbye = session_pb2.Goodbye(reason=session_pb2.REASON_FINISHED)
        call = self._connection.stub.Leave.future(
            training_pb2.LeaveRequest(hello=hello_of(self._greeting()), goodbye=goodbye)
        )
        while True:
            try:
                if call.result(timeout=_REPORT_EVERY_S).again:
                    raise RolledBack
                return
            except grpc.FutureTimeoutError:
                self._report("waiting for the other parties to finish")
            except grpc.RpcError as error:
                if error.code() in BROKEN:
                    raise RolledBack from None
                raise self._refused(error) from None

    def leave(self, reason: str) -> None:
        """Tell the label party that this one ends; `reason` is FINISHED, STOPPED or FAILED. Never raises."""
        goodbye = session_pb2.Goodbye(reason=f"REASON_{reason}")
        request = training_pb2.LeaveRequest(hello=hello_of(self._greeting()), goodbye=goodbye)
        try:
            self._connection.stub.Leave(request, timeout=self._timeouts.goodbye_s)
        except grpc.RpcError:
            return  # it is gone, and that is what it was to be told

    def close(self) -> None:
        """End all streams and the connection."""
        for stream in (self._aligning, self._training):
            if stream:
                stream.end()
        self._connection.close()

    def _forget(self) -> None:
        """What an earlier attempt of the session has left."""
        for stream in (self._aligning, self._training):
            if stream:
                stream.end()
        self._aligning = self._training = self._link = None

    def _greeting(self) -> Greeting:
        if self._link is not None:
            return self._link.greeting(__version__)
        terms = self._terms
        return Greeting(PROTOCOL, __version__, terms.party, terms.job_digest, terms.cut_width, None, None, 0, b"")

    def _open(self) -> Stream:
        assert self._link is not None
        limits = self._timeouts  # the label party itself may have to wait for another party this long
        patience_s = limits.stall_s + limits.reconnect_s + limits.goodbye_s
        stream = Stream(self._connection.stub.Train, self._watchdog, patience_s)
        stream.send(training_pb2.TrainRequest(hello=hello_of(self._greeting())))
        welcome = self._next(stream, "welcome")
        if not welcome.HasField("next_step"):
            raise FrameError("the label party's Welcome has no next_step")
        self._link.on_welcome((welcome.protocol_major, welcome.protocol_minor), welcome.next_step)
        self._training = stream
        if self._aligning:
            self._aligning.end()
            self._aligning = None
        return stream

    def _read_answer(self, stream: Stream, step: int, rows: int) -> Answer:
        assert self._link is not None
        first = answer = self._next(stream, "answer")
        reader = None
        if first.HasField("gradient"):
            reader = MatrixReader(rows, self._limits.width, self._encoding)
            while not reader.add(answer.gradient):
                answer = self._next(stream, "answer")
        self._link.on_answer(first.step, first.history, reader.digest() if reader else matrices_digest([]))
        knowledge = first.knowledge if first.HasField("knowledge") else None
        return Answer(reader, knowledge, {m.name: m.value for m in first.metrics}, first.checkpoint)

    def _next(self, stream: Stream, kind: str) -> Any:
        response = stream.receive()
        found = response.WhichOneof("message")
        if found == "goodbye" and response.goodbye.reason == session_pb2.REASON_ROLLBACK:
            raise RolledBack
        if found == "goodbye":
            ended = _ENDED.get(response.goodbye.reason, "has failed; its log says why")
            raise PeerError(f"the label party {ended.format(party=response.goodbye.party)}")
        if found != kind:
            raise FrameError(f"expected {kind} from the label party, got {found or 'nothing'}")
        return getattr(response, kind)

    def _wait_or_give_up(self, error: grpc.RpcError, when: str, lost_at: float) -> None:
        if error.code() not in BROKEN:
            raise self._refused(error) from None
        if end_requested():
            raise PeerError(f"the label party was lost {when}")
        lost_for = time.monotonic() - lost_at
        if lost_for > self._timeouts.reconnect_s:
            raise PeerError(
                f"the label party at {self._address} was lost {when} "
                f"and did not come back within {self._timeouts.reconnect_s:g} s"
            ) from None
        if lost_for < 0.01:
            self._report(f"lost the label party {when}; reconnecting")
        self._connection.after_break()
        self.traffic.reopened += 1
        time.sleep(min(0.1 + lost_for, 1.0))

    @staticmethod
    def _refused(error: grpc.RpcError) -> PeerError:
        return PeerError(f"the label party refused: {error.details()}")


_ENDED = {
    session_pb2.REASON_FINISHED: "has finished before this party",
    session_pb2.REASON_STOPPED: "was stopped",
    session_pb2.REASON_PARTY_LOST: "ended the session: it lost party {party!r}",
}
