"""The non-label party's end of the wire: align rows, then send a step, wait for its answer, reopen if broken."""

from __future__ import annotations

import itertools
import os
import time
from dataclasses import dataclass, replace
from typing import Any

import grpc

from cutlayer import __version__
from cutlayer.common import alignment
from cutlayer.common.channel import is_broken
from cutlayer.common.errors import AlignmentError, FrameError, PeerError, RolledBack
from cutlayer.common.handshake import PROCESS_BYTES, PROTOCOL, Greeting, Terms, difference_of_releases
from cutlayer.common.history import LinkState
from cutlayer.common.limits import Limits, Timeouts
from cutlayer.common.telemetry import Telemetry
from cutlayer.common.tensors import MatrixReader, matrices_digest
from cutlayer.common.tls import OwnCertificate
from cutlayer.common.wire import hello_of
from cutlayer.nonlabel_party.answers import NO_LABELS, GrantedLabels, Held, read_held, shared_metrics
from cutlayer.nonlabel_party.line import Line
from cutlayer.nonlabel_party.refusals import ended, refusal
from cutlayer.nonlabel_party.session import NonlabelPartyLink
from cutlayer.nonlabel_party.stream import Stream, id_frames
from cutlayer.v1 import matrix_pb2, session_pb2, training_pb2

_REPORT_EVERY_S = 5.0
_ALIGNING = "while rows were being aligned"


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
        telemetry: told when this party has to wait, and what crosses the wire.
        own: this party's certificate; None for plaintext.
    """

    def __init__(
        self,
        address: str,
        terms: Terms,
        limits: Limits,
        timeouts: Timeouts,
        encoding: str,
        telemetry: Telemetry,
        own: OwnCertificate | None = None,
    ) -> None:
        self._terms = terms
        self._limits = limits
        self._timeouts = timeouts
        self._encoding = encoding
        self._telemetry = telemetry
        self._line = Line(terms.party, address, limits.frame_bytes, timeouts, telemetry, own)
        self._aligning: Stream | None = None
        self._training: Stream | None = None
        self._link: NonlabelPartyLink | None = None
        self._process = os.urandom(PROCESS_BYTES)
        self._calls = itertools.count(1)
        self._run = b""
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
        granted: GrantedLabels = NO_LABELS,
        run: bytes | None = None,
    ) -> Held:
        """Which of this party's sorted ids all parties hold, and the step after which all go on.

        Args:
            durable_steps: of which this party holds a checkpoint.
            patience_s: how long to wait for the label party in place of `connect_s`.
            granted: labels that the job grants this party.
            run: the name of the run that this party's folder is of, where it has one.

        Raises:
            AlignmentError: none is held by all. PeerError: the label party is not there or ended the session.
            CertificateError: TLS to the label party cannot work.
        """
        self._forget()
        self._run = run or b""
        deadline = self._deadline(self._timeouts.connect_s)
        while True:
            self._line.await_label_party(patience_s or self._timeouts.connect_s)
            stream = self._line.stream(self._line.stub.AlignRows, self._timeouts.connect_s, _ALIGNING)
            self._aligning = stream  # stays open until training begins, so that this party is seen alive
            stream.opened = time.monotonic()  # it is answered only when all parties are there
            try:
                greeting = replace(self._greeting(), durable_steps=durable_steps)
                stream.send(training_pb2.AlignRowsRequest(hello=hello_of(greeting)), *id_frames(own))
                held = read_held(stream.receive, len(own.digests), durable_steps, granted)
            except grpc.RpcError as error:
                self._line.mend(error, stream, deadline, greeted=False)
                self.traffic.reopened += 1
                continue
            self._line.absence.over()
            self._run = held.run or b""
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
            RefusedError: the label party does not admit this party any more.
        """
        assert self._link is not None
        when, deadline = f"at step {step}", self._deadline(self._timeouts.stall_s)
        history = self._link.activation(step, matrices_digest(matrices))
        frames = [
            training_pb2.TrainRequest(
                activation=training_pb2.Activation(step=step, history=history, rows_digest=rows_digest, matrix=m)
            )
            for m in matrices
        ]
        began = time.monotonic()
        while True:
            try:
                stream = self._training or self._open(when)
                stream.when = when
                stream.send(*frames)
                answer = self._read_answer(stream, step, rows)
                self.traffic.wait_seconds += time.monotonic() - began
                self._line.absence.over()
                return answer
            except grpc.RpcError as error:
                broken, self._training = self._training, None
                assert broken is not None
                self._line.mend(error, broken, deadline, greeted=True)
                self.traffic.reopened += 1

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
            PeerError: the label party has ended the session, or says nothing.
        """
        deadline = self._deadline(2 * self._timeouts.stall_s)  # the label party waits for the others, and writes
        call = self._line.stub.Leave.future(self._leaving("FINISHED"))
        while True:
            try:
                if call.result(timeout=_REPORT_EVERY_S).again:
                    raise RolledBack
                return
            except grpc.FutureTimeoutError:
                self._telemetry.info("waiting for the other parties to finish")
                if time.monotonic() > deadline:
                    call.cancel()
                    raise PeerError("the label party is connected but did not confirm the last step") from None
            except grpc.RpcError as error:
                if is_broken(error):
                    raise RolledBack from None
                raise refusal(error, self._terms.party, "after the last step") from None

    def leave(self, reason: str) -> None:
        """Tell the label party that this one ends; `reason` is FINISHED, STOPPED or FAILED. Never raises."""
        try:
            early = not self.trains  # then the label party may be about to listen
            self._line.stub.Leave(self._leaving(reason), timeout=self._timeouts.goodbye_s, wait_for_ready=early)
        except grpc.RpcError:
            return  # it is gone, and that is what it was to be told

    def close(self) -> None:
        """End all streams and the connection."""
        self._forget()
        self._line.close()

    def _forget(self) -> None:
        """What an earlier attempt of the session has left."""
        for stream in (self._aligning, self._training):
            if stream:
                stream.end()
        self._aligning = self._training = self._link = None

    def _greeting(self) -> Greeting:
        if self._link is not None:
            greeting = self._link.greeting(__version__)
        else:
            greeting = Greeting(PROTOCOL, __version__, applied_step=0, history=b"", **vars(self._terms))
        return replace(greeting, process=self._process, call=next(self._calls), run=self._run)

    def _leaving(self, reason: str) -> training_pb2.LeaveRequest:
        goodbye = session_pb2.Goodbye(reason=f"REASON_{reason}")
        return training_pb2.LeaveRequest(hello=hello_of(self._greeting()), goodbye=goodbye)

    def _deadline(self, for_label_party_s: float) -> float:
        """Until when to try; the last line that broke may have been waited for in full."""
        return time.monotonic() + self._line.patience_s(for_label_party_s) + self._timeouts.reconnect_s

    def _open(self, when: str) -> Stream:
        assert self._link is not None
        stream = self._training = self._line.stream(self._line.stub.Train, self._timeouts.stall_s, when)
        stream.send(training_pb2.TrainRequest(hello=hello_of(self._greeting())))
        welcome = self._next(stream, "welcome")
        if not welcome.HasField("next_step"):
            raise FrameError("the label party's Welcome has no next_step")
        self._link.on_welcome((welcome.protocol_major, welcome.protocol_minor), welcome.next_step)
        if difference := difference_of_releases("the label party", welcome.package_version[:64]):
            self._telemetry.warning(difference)
        if self._aligning:
            self._aligning.end()
            self._aligning = None
        return stream

    def _read_answer(self, stream: Stream, step: int, rows: int) -> Answer:
        assert self._link is not None
        first = answer = self._next(stream, "answer")
        self._link.check_answer(first.step)
        reader = None
        if first.HasField("gradient"):
            reader = MatrixReader(rows, self._limits.width, self._encoding)
            while not reader.add(answer.gradient):
                answer = self._next(stream, "answer")
        self._link.on_answer(first.step, first.history, reader.digest() if reader else matrices_digest([]))
        knowledge = first.knowledge if first.HasField("knowledge") else None
        return Answer(reader, knowledge, shared_metrics(first), first.checkpoint)

    def _next(self, stream: Stream, kind: str) -> Any:
        response = stream.receive()
        found = response.WhichOneof("message")
        if found == "goodbye" and response.goodbye.reason == session_pb2.REASON_ROLLBACK:
            self._line.absence.over()
            raise RolledBack
        if found == "goodbye":
            raise ended(response.goodbye)
        if found != kind:
            raise FrameError(f"expected {kind} from the label party, got {found or 'nothing'}")
        return getattr(response, kind)
