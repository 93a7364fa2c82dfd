"""A label party inside the test process, and a scripted client that keeps every byte it receives."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import torch

from cutlayer import __version__
from cutlayer.common import alignment, config, run_files
from cutlayer.common.datasets import load_table
from cutlayer.common.handshake import PROTOCOL, Greeting, Terms
from cutlayer.common.schedule import Schedule
from cutlayer.common.telemetry import Telemetry
from cutlayer.common.tensors import matrices_digest, to_matrices
from cutlayer.common.wire import hello_of
from cutlayer.label_party.process import LabelParty
from cutlayer.nonlabel_party.session import NonlabelPartyLink
from cutlayer.v1 import training_pb2
from support.runs import Run, write

SECRET = "tests share this"
_BUSY_S = 5.0  # for calls that are sent away to end
_METHODS = "/cutlayer.v1.LabelPartyService/"


@contextmanager
def label_party(folder: Path, run: Run) -> Iterator[str]:
    """A real label party in a thread; gives the address it listens on."""
    listening: SimpleQueue[str] = SimpleQueue()
    announce = Telemetry.listening

    def listen(self: Telemetry, address: str) -> None:
        announce(self, address)
        listening.put(address)

    run["label_party"]["id_secret"] = SECRET
    run_file = run_files.load(write(folder, run))
    party = LabelParty(run_file, folder / "out", None, events=False)

    def body() -> None:
        try:
            party.run()
        except Exception as error:  # what a test looks for is on the wire; the reason is in the party's log
            listening.put(f"failed: {error}")

    Telemetry.listening = listen  # type: ignore[method-assign]
    thread = threading.Thread(target=body)
    thread.start()
    try:
        yield listening.get(timeout=30)
    finally:
        thread.join(60)
        Telemetry.listening = announce  # type: ignore[method-assign]
        assert not thread.is_alive()


@dataclass
class ScriptedClient:
    """Speaks the protocol by hand as one non-label party, and records all that comes back, raw."""

    address: str
    run: Run
    party: str = "lab"
    received: list[tuple[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        run_file = config.RunFile.model_validate(self.run)
        self.job = run_file.job
        self.channel = grpc.insecure_channel(self.address)
        self.width = self.job.cut_layer.width_of(self.party)
        self.own = alignment.OwnIds(load_table(run_file.label_section().data).ids, SECRET.encode())
        self.schedule = Schedule(
            self.job.seed, len(self.own.order), self.job.test_fraction, self.job.batch_size, self.job.epochs
        )
        digest = alignment.rows_digest(self.own.digests)
        self.terms = Terms(self.party, self.job.digest(), self.width, len(self.own.order), digest)
        self.link: NonlabelPartyLink = NonlabelPartyLink(self.terms, self.schedule.steps)

    def call(self, method: str, *messages: Any) -> list[bytes]:
        """Call a method with all `messages`, then half-close; its answers, which are recorded with its status."""
        answers = []
        multi = self.channel.stream_stream(_METHODS + method, lambda m: m.SerializeToString(), None)
        call = multi(iter(messages), timeout=30)
        try:
            for answer in call:
                self.received.append((method, answer))
                answers.append(answer)
        except grpc.RpcError:
            pass
        metadata = [(m.key, m.value) for m in (*call.initial_metadata(), *call.trailing_metadata())]
        self.received.append((f"{method} ended", (call.code(), call.details(), metadata)))
        return answers

    def _call_of_a_party(self, method: str, *messages: Any) -> list[bytes]:
        """`call`, and again while the label party has too many calls at that moment, as a real party does."""
        deadline = time.monotonic() + _BUSY_S
        while True:
            answers = self.call(method, *messages)
            code, *_ = self.received[-1][1]
            if code is not grpc.StatusCode.RESOURCE_EXHAUSTED or time.monotonic() > deadline:
                return answers
            time.sleep(0.1)

    def align(self, durable_steps: tuple[int, ...] = ()) -> None:
        """Send the ids, and of which steps this party holds checkpoints."""
        terms = self.terms
        greeting = Greeting(
            PROTOCOL, __version__, self.party, terms.job_digest, self.width, None, None, 0, b"", durable_steps
        )
        ids = training_pb2.IdDigests(
            total=len(self.own.digests),
            digests=alignment.digests_to_wire(self.own.digests),
            secret_check=self.own.check,
            form=self.own.form.value,
        )
        hello = training_pb2.AlignRowsRequest(hello=hello_of(greeting))
        self.call("AlignRows", hello, training_pb2.AlignRowsRequest(ids=ids))

    def hello(self) -> training_pb2.TrainRequest:
        """The first frame of a Train stream."""
        return training_pb2.TrainRequest(hello=hello_of(self.link.greeting(__version__)))

    def activation(self, step: int, z_Bd: torch.Tensor | None = None) -> training_pb2.TrainRequest:
        """The frame of a step; by default z follows from the step alone."""
        if z_Bd is None:
            generator = torch.Generator().manual_seed(step)
            z_Bd = torch.randn(len(self.schedule.rows_of(step)), self.width, generator=generator)
        (matrix,) = to_matrices(z_Bd, "float32")
        activation = training_pb2.Activation(
            step=step, history=self.link.history, rows_digest=self.schedule.rows_digest(step), matrix=matrix
        )
        return training_pb2.TrainRequest(activation=activation)

    def take_step(self, step: int, z_Bd: torch.Tensor | None = None) -> training_pb2.Answer:
        """One step in a stream of its own, accepted and applied."""
        frame = self.activation(step, z_Bd)
        self.link.activation(step, matrices_digest([frame.activation.matrix]))
        answers = self._call_of_a_party("Train", self.hello(), frame)
        answer = training_pb2.TrainResponse.FromString(answers[-1]).answer
        g_digest = matrices_digest([answer.gradient] if answer.HasField("gradient") else [])
        self.link.on_answer(answer.step, answer.history, g_digest)
        self.link.applied(step)
        return answer

    def leave(self) -> None:
        """Say that this party has finished."""
        request = training_pb2.LeaveRequest(hello=hello_of(self.link.greeting(__version__)))
        request.goodbye.reason = 1
        unary = self.channel.unary_unary(_METHODS + "Leave", lambda m: m.SerializeToString(), None)
        self.received.append(("Leave", unary(request, timeout=10)))
        self.channel.close()
