"""Mutated frames of a real conversation, sent to a real label party beside its honest parties, many thousands of them.

    CUTLAYER_FRAMES=1000000 scripts/test tests/faults/test_fuzzed_frames.py -s

Two parties train, `lab` and `ward`. The frames come in the name of `ward`, whose true self goes on meanwhile. A frame
is counted where the label party has read it: it was refused by the protocol, or answered.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from support.mutations import mutated, reshaped
from support.processes import Background
from support.runs import BREAST_CANCER, changed, free_port, with_parties, write
from support.scripted import SECRET, ScriptedClient
from support.strangers import SERVICE

from cutlayer.common.tensors import matrices_digest
from cutlayer.v1 import session_pb2, training_pb2

FRAMES = int(os.environ.get("CUTLAYER_FRAMES", "5000"))
GROWTH = 48 << 20  # of the label party's memory, whatever the number of frames
WORKERS = 3
AGAIN = 9  # frames of other bytes and the same meaning before the one that ends a stream
RUN = changed(
    with_parties(BREAST_CANCER, ["lab", "ward"]),
    {
        "job.epochs": 3,
        "label_party.id_secret": SECRET,
        "nonlabel_parties.lab.id_secret": SECRET,
        "nonlabel_parties.ward.id_secret": SECRET,
        "label_party.timeouts": {"stall_s": 100_000},
        "nonlabel_parties.lab.timeouts": {"stall_s": 100_000},
    },
)
READ = frozenset(
    {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.PERMISSION_DENIED,
    }
)


@dataclass
class Conversation:
    """The last step that is answered: what frames are made from."""

    hello: training_pb2.TrainRequest
    activation: training_pb2.TrainRequest


class Ward(ScriptedClient):
    """The true `ward`: takes its steps however often somebody in its name takes over the stream."""

    def take_step(self, step: int, z_Bd: Any = None) -> Any:
        frame = self.activation(step)
        self.link.activation(step, matrices_digest([frame.activation.matrix]))
        self.taken = Conversation(self.hello(), frame)
        while len(answers := self.call("Train", self.hello(), frame)) < 2:
            time.sleep(0.01)
        answer = training_pb2.TrainResponse.FromString(answers[-1]).answer
        g_digest = matrices_digest([answer.gradient] if answer.HasField("gradient") else [])
        self.link.on_answer(answer.step, answer.history, g_digest)
        self.link.applied(step)
        self.received.clear()
        return answer


@dataclass
class Fuzzer:
    """Sends streams of frames until there were enough; counts how they were taken."""

    address: str
    seed: int
    wanted: int
    conversation: Conversation
    ids: training_pb2.AlignRowsRequest
    frames: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        chance = random.Random(self.seed)
        kinds = (self.steps, self.steps, self.hellos, self.rows, self.leave, self.garbage)
        with grpc.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            while self.frames < self.wanted:
                chance.choice(kinds)(channel, chance)

    def steps(self, channel: grpc.Channel, chance: random.Random) -> None:
        """A step that is answered already, again and again in other bytes, and then one that is wrong."""
        now = self.conversation
        again = [reshaped(now.activation, chance) for _ in range(chance.randrange(2 * AGAIN))]
        frames = [now.hello.SerializeToString(), *again, mutated(now.activation, chance)]
        answers, code = self._send(channel, "Train", frames)
        if answers:  # the greeting was accepted
            self.frames += answers - 1 + (code is not grpc.StatusCode.OK)

    def hellos(self, channel: grpc.Channel, chance: random.Random) -> None:
        """A wrong greeting."""
        method = chance.choice(("Train", "AlignRows"))
        kind = training_pb2.TrainRequest if method == "Train" else training_pb2.AlignRowsRequest
        data = mutated(kind(hello=self.conversation.hello.hello), chance)
        if not self._overtakes(kind, data):
            self._one(channel, method, [data])

    def rows(self, channel: grpc.Channel, chance: random.Random) -> None:
        """Wrong id digests; right ones would send the session back, as they should."""
        data = mutated(self.ids, chance)
        if not self._right(data):
            hello = training_pb2.AlignRowsRequest(hello=self.conversation.hello.hello)
            self._one(channel, "AlignRows", [hello.SerializeToString(), data])

    def leave(self, channel: grpc.Channel, chance: random.Random) -> None:
        """A wrong Leave, never in the name of a party: that one would be believed."""
        request = training_pb2.LeaveRequest(hello=self.conversation.hello.hello)
        request.goodbye.reason = session_pb2.REASON_FAILED
        request.hello.job_digest = bytes(32)
        self._one(channel, "Leave", [mutated(request, chance)])

    def garbage(self, channel: grpc.Channel, chance: random.Random) -> None:
        """Bytes that are no message, to any method."""
        self._one(channel, chance.choice(("Train", "AlignRows", "Leave")), [b"\xff" + chance.randbytes(50)])

    def _overtakes(self, kind: Any, data: bytes) -> bool:
        """Whether it is a later call of the true party's own process, whose earlier ones are rightly refused then."""
        try:
            hello = kind.FromString(data).hello
        except Exception:
            return False
        true = self.conversation.hello.hello
        return hello.process == true.process and hello.call > true.call

    def _right(self, data: bytes) -> bool:
        try:
            ids = training_pb2.AlignRowsRequest.FromString(data).ids
        except Exception:
            return False
        return ids.secret_check == self.ids.ids.secret_check and len(ids.digests) == 16 * ids.total

    def _one(self, channel: grpc.Channel, method: str, frames: list[bytes]) -> None:
        _, code = self._send(channel, method, frames)
        self.frames += code in READ

    def _send(self, channel: grpc.Channel, method: str, frames: list[bytes]) -> tuple[int, grpc.StatusCode]:
        call = channel.stream_stream(SERVICE + method, None, None)(iter(frames), timeout=60)
        answers = 0
        try:
            for _ in call:
                answers += 1
        except grpc.RpcError:
            pass
        code = call.code()
        self.outcomes[f"{method} {code.name}"] += 1
        return answers, code


@pytest.mark.slow
@pytest.mark.timeout(120 + FRAMES // 50)
def test_P14_a_real_label_party_survives_fuzzed_frames(tmp_path: Path) -> None:
    untouched = _train(tmp_path / "untouched", frames=0)
    assert _train(tmp_path / "fuzzed", frames=FRAMES) == untouched


def _train(folder: Path, frames: int) -> list[bytes]:
    """The weights of the label party and of lab, with `frames` sent beside them."""
    address, out = f"127.0.0.1:{free_port()}", folder / "out"
    run_file = write(folder, RUN)
    with (
        Background("label-party", run_file, "--out", out, "--listen", address) as label_party,
        Background("nonlabel-party", run_file, "--name", "lab", "--out", out, "--connect", address) as lab,
    ):
        label_party.await_words("listening")
        ward = Ward(address, RUN, "ward")
        ward.align()
        ward.take_step(1)
        if frames:
            seconds = _besiege(ward, address, psutil.Process(label_party.process.pid), frames)
            lines = (out / "label_party" / "log").read_text().splitlines()
            assert len(lines) < 100 + 50 * (1 + seconds / 60)
        for step in range(ward.link.applied_step + 1, ward.schedule.steps + 1):
            ward.take_step(step)
        ward.leave()
        for party in (lab, label_party):
            status, output = party.finish()
            assert status == 0, output
            assert "Traceback" not in output
    assert json.loads((out / "lab" / "party.json").read_text())["reopened"] == 0
    names = ("label_party", "lab")
    return [(out / name / "model" / "model.safetensors").read_bytes() for name in names]


def _besiege(ward: Ward, address: str, process: psutil.Process, frames: int) -> float:
    """Send frames while ward goes on; what the label party uses must not grow with their number. Seconds it took."""
    digests = b"".join(bytes([number]) * 16 for number in range(1, 6))
    ids = training_pb2.IdDigests(total=6, digests=digests, secret_check=ward.own.check, form=1)
    fuzzers = [
        Fuzzer(address, seed, frames // WORKERS, ward.taken, training_pb2.AlignRowsRequest(ids=ids))
        for seed in range(WORKERS)
    ]
    threads = [threading.Thread(target=fuzzer.run) for fuzzer in fuzzers]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    sent, warm, memory = 0, frames // 10, 0
    files, threads_before = process.num_fds(), 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.1)
        sent = sum(fuzzer.frames for fuzzer in fuzzers)
        if not memory and sent > warm:
            memory, threads_before = process.memory_info().rss, process.num_threads()
        due = 1 + (ward.schedule.steps - 2) * min(sent, frames) // frames
        if ward.link.applied_step < due:
            ward.take_step(ward.link.applied_step + 1)
            for fuzzer in fuzzers:
                fuzzer.conversation = ward.taken
    seconds = time.monotonic() - began
    growth = process.memory_info().rss - memory
    outcomes = sum((fuzzer.outcomes for fuzzer in fuzzers), Counter[str]())
    print(
        f"\n{sent} frames in {seconds:.0f} s, {sent / seconds:.0f}/s; label party grew {growth >> 10} KiB; {outcomes}"
    )
    assert sent >= frames - WORKERS
    assert growth < GROWTH
    assert process.num_threads() <= threads_before + 2
    deadline = time.monotonic() + 40
    while process.num_fds() > files:
        assert time.monotonic() < deadline, f"{process.num_fds()} files, at first {files}"
        time.sleep(0.1)
    return seconds
