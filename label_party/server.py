"""The label party's gRPC service: streams in, sessions, streams out. It computes nothing.

One thread serves one stream. It checks what comes in, hands it to the training loop through the exchange,
waits, and sends what the loop released.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import grpc

from cutlayer.common.errors import FrameError, NotAllowedError
from cutlayer.common.handshake import Greeting, Terms, check_terms, difference_of_releases
from cutlayer.common.job import Job
from cutlayer.common.job_keys import JobKeys
from cutlayer.common.schedule import Schedule
from cutlayer.common.telemetry import Telemetry
from cutlayer.common.tensors import MatrixReader, matrices_digest, to_matrices
from cutlayer.common.wire import greeting_of
from cutlayer.label_party.answered import AnsweredActivations
from cutlayer.label_party.boundary import Boundary
from cutlayer.label_party.door import Door
from cutlayer.label_party.exchange import Closed, Exchange, Stream
from cutlayer.label_party.links import Frames, Link, SavedLink
from cutlayer.label_party.newest import Newest
from cutlayer.label_party.peers import Admission, admit_anyone
from cutlayer.label_party.row_messages import HeldRows, held_frames, read_announcement, read_ids
from cutlayer.label_party.rows import CommonRows, PartyIds
from cutlayer.label_party.same_run import SameRun
from cutlayer.label_party.session import AnswerAgain, Compute, LabelPartyLink
from cutlayer.label_party.train_messages import activation_of, answer_frames, goodbye, hello_from, welcome
from cutlayer.label_party.training import Received, Release
from cutlayer.v1 import session_pb2, training_pb2, training_pb2_grpc

PartyExchange = Exchange[PartyIds | Received, HeldRows | Frames]


class LabelPartyServicer(training_pb2_grpc.LabelPartyServiceServicer):
    """Serves the non-label parties of one job.

    Args:
        secret: the shared secret of the row ids.
        answered: the activations that were answered, also before the session went back.
        same_run: whether a party that connects takes part in this run.
        admit: raises unless the peer of a call may be the party that it says it is.
    """

    def __init__(
        self,
        job: Job,
        exchange: PartyExchange,
        secret: bytes,
        telemetry: Telemetry,
        answered: AnsweredActivations,
        same_run: SameRun,
        admit: Admission = admit_anyone,
    ) -> None:
        self._job = job
        self._exchange = exchange
        self._secret = secret
        self._job_keys = JobKeys.of(job.model_dump(mode="json"), secret)
        self._telemetry = telemetry
        self._answered = answered
        self._same_run = same_run
        self._admit = admit
        self._boundary = Boundary(telemetry)
        self.door = Door()
        self._newest = Newest()
        self._schedule: Schedule | None = None
        self.links: dict[str, Link] = {}

    def open_training(self, schedule: Schedule, rows: CommonRows, states: Mapping[str, SavedLink]) -> None:
        """Accept Train streams from now on: the rows are known.

        Args:
            states: where the links go on; those of parties without a state start at the beginning.
        """
        self._schedule = schedule
        for party in self._job.parties:
            terms = self._terms(party, rows.count, rows.digest)
            saved = states.get(party, SavedLink())
            known = partial(self._answered.at, party)
            self.links[party] = Link(LabelPartyLink(terms, schedule.steps, saved.state, known), traffic=saved.traffic)

    def close_training(self) -> None:
        """Send Train streams back to AlignRows from now on."""
        self.links = {}

    # The training loop's part in an answer.

    def seal(self, step: int, releases: Mapping[str, Release], *, checkpoint: bool) -> dict[str, Frames]:
        """The frames that answer `step`, by party, with the history sealed in them. Nobody gets them yet."""
        return {
            party: self._seal(self.links[party], step, release, checkpoint=checkpoint)
            for party, release in releases.items()
        }

    def answered(self, step: int, answers: Mapping[str, Frames], z_digests: Mapping[str, bytes]) -> None:
        """Keep the sealed answers, which are about to be sent and may be asked for again."""
        self._answered.note(step, z_digests)
        for party, frames in answers.items():
            link = self.links[party]
            with link.lock:
                link.session.answered(step, frames)

    def saved_links(self) -> dict[str, SavedLink]:
        """What a checkpoint must hold of the links after the step that is sealed."""
        return {
            party: SavedLink(link.session.sealed_state(), replace(link.traffic)) for party, link in self.links.items()
        }

    def sync_answered(self) -> None:
        """Which activations were answered is safe on the disk when this returns."""
        self._answered.sync()

    # The three methods of the service.

    def AlignRows(
        self, request_iterator: Iterator[training_pb2.AlignRowsRequest], context: grpc.ServicerContext
    ) -> Iterator[training_pb2.AlignRowsResponse]:
        """Takes a party's id digests; answers which of them all parties hold."""
        metrics = self._telemetry.prometheus
        with self._boundary.around(context):
            greeting = self._greeting(hello_from(request_iterator), context)
            check_terms(greeting, self._terms(greeting.party, None, None))
            # Before the stream takes over: who lacks the secret, or comes with another folder, must neither end the
            # stream of the true party nor send the session back.
            requests = metrics.received_from(greeting.party, request_iterator)
            first = read_announcement(requests, self._secret)
            self._same_run.require(greeting.party, greeting.durable_steps, greeting.run)
            self.door.admit(context, greeting.party)
            with self.door.reading_rows(context):
                ids = read_ids(first, requests, greeting.durable_steps)
            with self._stream(greeting, context) as stream:
                self._telemetry.info(f"{greeting.party} has connected (version {greeting.package_version})")
                if difference := difference_of_releases(greeting.party, greeting.package_version):
                    self._telemetry.warning(difference)
                self._exchange.submit(stream, 0, ids)
                held = self._exchange.wait_answer(stream, 0)
                assert isinstance(held, HeldRows)
                yield from metrics.sent_to(greeting.party, held_frames(held))
                for _ in requests:  # the party keeps this stream open until it trains, to be seen alive
                    raise FrameError("unexpected message after the id digests")

    def Train(
        self, request_iterator: Iterator[training_pb2.TrainRequest], context: grpc.ServicerContext
    ) -> Iterator[training_pb2.TrainResponse]:
        """Takes one activation after another; answers each with what the training loop released."""
        metrics = self._telemetry.prometheus
        with self._boundary.around(context):
            greeting = self._greeting(hello_from(request_iterator), context)
            link = self._link(greeting)
            if link is None:
                yield training_pb2.TrainResponse(goodbye=goodbye(Closed("ROLLBACK", "")))
                return
            with link.lock:  # before the stream takes over: who is refused must not end the stream of the true party
                next_step = link.session.on_greeting(greeting)
            self.door.admit(context, greeting.party)
            with self._stream(greeting, context) as stream:
                try:
                    yield training_pb2.TrainResponse(welcome=welcome(next_step))
                    requests = metrics.received_from(greeting.party, request_iterator)
                    for frame in requests:
                        answers = self._on_activation(link, stream, frame, requests)
                        yield from metrics.sent_to(greeting.party, answers)
                except Closed as closed:
                    yield training_pb2.TrainResponse(goodbye=goodbye(closed))

    def Leave(self, request: training_pb2.LeaveRequest, context: grpc.ServicerContext) -> training_pb2.LeaveResponse:
        """Notes that a party ends."""
        with self._boundary.around(context):
            greeting = self._greeting(request.hello, context)
            check_terms(greeting, self._terms(greeting.party, None, None))
            with self._newest.admitting(greeting):
                self.door.admit(context, greeting.party)
            if request.goodbye.reason == session_pb2.REASON_FINISHED:
                return self._await_the_others(greeting.party, context)
            reason = _LEAVING.get(request.goodbye.reason, "has failed")
            self._exchange.leave(greeting.party, reason, context.peer())
        return training_pb2.LeaveResponse()

    def _await_the_others(self, party: str, context: grpc.ServicerContext) -> training_pb2.LeaveResponse:
        self._exchange.finishing()
        if not context.add_callback(self._exchange.finishing_ended):  # it is over already
            self._exchange.finishing_ended()
        try:
            self._exchange.wait_confirmation(party, context.is_active)
        except Closed as closed:
            if closed.reason == "ROLLBACK":
                return training_pb2.LeaveResponse(again=True)
            raise
        return training_pb2.LeaveResponse()

    # One activation.

    def _on_activation(
        self,
        link: Link,
        stream: Stream,
        frame: training_pb2.TrainRequest,
        more: Iterator[training_pb2.TrainRequest],
    ) -> Iterator[training_pb2.TrainResponse]:
        stream.require_newest()
        first = activation_of(frame)
        reader = self._read_matrix(link, stream, first, more)
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
            link.traffic.overhead += first.ByteSize() - len(first.matrix.data)
        self._exchange.submit(stream, first.step, received)  # again where an earlier stream broke off before it could
        frames = self._exchange.wait_answer(stream, first.step)
        assert isinstance(frames, list)
        yield from frames

    def _seal(self, link: Link, step: int, release: Release, *, checkpoint: bool) -> Frames:
        matrices = to_matrices(release.gradient.g_Bd, self._job.cut_layer.encoding) if release.gradient else []
        with link.lock:
            history = link.session.seal(step, matrices_digest(matrices))
            frames = answer_frames(step, history, matrices, release, checkpoint=checkpoint)
            payload = sum(len(m.data) for m in matrices)
            link.traffic.gradients += payload
            link.traffic.overhead += sum(f.ByteSize() for f in frames) - payload
        return frames

    def _read_matrix(
        self, link: Link, stream: Stream, first: training_pb2.Activation, more: Iterator[training_pb2.TrainRequest]
    ) -> MatrixReader:
        assert self._schedule is not None
        with link.lock:
            link.session.check_step(first.step)
        width = self._job.cut_layer.width_of(link.session.terms.party)
        reader = MatrixReader(len(self._schedule.rows_of(first.step)), width, self._job.cut_layer.encoding)
        chunk = first
        while not reader.add(chunk.matrix):
            stream.hear()
            chunk = activation_of(next(more, training_pb2.TrainRequest()))
            if chunk.step != first.step:
                raise FrameError(f"a chunk of step {chunk.step} inside step {first.step}")
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
        width = self._job.cut_layer.width_of(party)
        return Terms(party, self._job.digest(), width, rows_count, rows_digest, self._job_keys)

    def _link(self, greeting: Greeting) -> Link | None:
        """The link of a party; None where it must begin with AlignRows: no rows are aligned, or another run's."""
        check_terms(greeting, self._terms(greeting.party, None, None))
        return self.links.get(greeting.party) if self._same_run.may_be(greeting.run) else None

    @contextmanager
    def _stream(self, greeting: Greeting, context: grpc.ServicerContext) -> Iterator[Stream]:
        with self._newest.admitting(greeting):
            stream = self._exchange.arrive(greeting.party, context.peer())
        context.add_callback(lambda: self._exchange.depart(stream))
        try:
            yield stream
        finally:
            self._exchange.depart(stream)


_LEAVING = {
    session_pb2.REASON_FINISHED: "has finished",
    session_pb2.REASON_STOPPED: "was stopped",
    session_pb2.REASON_FAILED: "has failed",
}
