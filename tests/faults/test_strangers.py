"""Strangers that connect, call and stay silent, many at a time: the true party gets through, and all is freed again."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import psutil
import pytest
from support import kits
from support.processes import Background
from support.runs import BREAST_CANCER, changed, cutlayer, free_port, summary, write
from support.scripted import SECRET, ScriptedClient
from support.strangers import ANY_METHOD, PREFACE, SERVICE, TLS_HELLO, Strangers, aligning, await_end, closed_by_peer

from cutlayer.common.channel import ALIGN_CHUNK_BYTES, IDLE_S
from cutlayer.common.limits import MAX_ROWS
from cutlayer.label_party.door import STRANGER_S, STRANGERS, Door
from cutlayer.v1 import training_pb2

SECRETS = {"label_party.id_secret": SECRET, "nonlabel_parties.lab.id_secret": SECRET}
RUN = changed(BREAST_CANCER, {"job.epochs": 1, "label_party.timeouts": {"keepalive_s": 4}, **SECRETS})
MIB = 1 << 20
SENT_AWAY = {  # by the door; by gRPC, where a connection has too many calls, or the server
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


@dataclass
class Besieged:
    """A label party's process, and how to look at it."""

    address: str
    process: psutil.Process
    out: Path

    @property
    def threads(self) -> int:
        return self.process.num_threads()

    @property
    def files(self) -> int:
        return self.process.num_fds()

    @property
    def memory(self) -> int:
        rss: int = self.process.memory_info().rss
        return rss

    def await_calm(self, files: int, threads: int, timeout: float) -> None:
        """Wait until it has no more open files and threads than that."""
        deadline = time.monotonic() + timeout
        while self.files > files or self.threads > threads:
            assert time.monotonic() < deadline, f"{self.files} files, {self.threads} threads"
            time.sleep(0.1)

    def weights(self) -> bytes:
        """Of the label party, once it has finished."""
        return (self.out / "label_party" / "model" / "model.safetensors").read_bytes()


@contextmanager
def label_party(folder: Path, *, files: int | None = None) -> Iterator[Besieged]:
    """A label party in a process of its own, which may open no more than `files`."""
    address = f"127.0.0.1:{free_port()}"
    party = ("-m", "cutlayer.cli", "label-party", write(folder, RUN), "--out", folder / "out", "--listen", address)
    limit = f"ulimit -n {files}; " if files else ""
    with Background("bash", "-c", f'{limit}exec "$@"', "bash", sys.executable, *party, whole=True) as background:
        background.await_words("listening")
        yield Besieged(address, psutil.Process(background.process.pid), folder / "out")
        status, output = background.finish()
        assert status == 0, output
        assert "Traceback" not in output


def take_steps(client: ScriptedClient, *steps: int) -> None:
    for step in steps:
        client.take_step(step)


def finish(client: ScriptedClient, first: int) -> None:
    take_steps(client, *range(first, client.schedule.steps + 1))
    client.leave()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The label party's weights where only the true party is there."""
    with label_party(tmp_path_factory.mktemp("undisturbed")) as party:
        client = ScriptedClient(party.address, RUN)
        client.align()
        finish(client, 1)
    return party.weights()


@pytest.mark.slow
def test_P09_strangers_lock_nobody_out_and_are_sent_away(tmp_path: Path, undisturbed: bytes) -> None:
    with label_party(tmp_path) as party, Strangers(party.address) as strangers:
        client = ScriptedClient(party.address, RUN)
        client.align()
        take_steps(client, 1)
        client.channel.close()
        files, threads = party.files, party.threads

        silent = strangers.sockets(200)
        silent += strangers.sockets(50, PREFACE[:10])
        silent += strangers.sockets(50, drip=PREFACE)
        silent += strangers.sockets(50, TLS_HELLO)
        silent += strangers.sockets(50, PREFACE)  # HTTP/2, but never a call, and no answer to a ping
        calls = [call for method in 2 * ANY_METHOD for call in strangers.calls(method, STRANGERS)]
        grpc.channel_ready_future(strangers.channel()).result(timeout=10)  # answers pings, and never calls

        client.channel = grpc.insecure_channel(party.address)
        take_steps(client, 2, 3)
        assert party.threads <= threads + Door.threads(parties=1)
        assert set(await_end(calls, 3 * STRANGER_S)) <= SENT_AWAY
        assert closed_by_peer(silent, 30)
        client.channel.close()
        party.await_calm(files, threads + Door.threads(parties=1), timeout=3 * IDLE_S)
        client.channel = grpc.insecure_channel(party.address)
        finish(client, 4)
    assert party.weights() == undisturbed


@pytest.fixture
def files_at_once() -> Iterator[int]:
    """How many files this process may now open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
def test_P09_ten_thousand_connections(tmp_path: Path, undisturbed: bytes, files_at_once: int) -> None:
    """Of which the label party holds few, as it needs files itself; its party goes on, and a new connection works."""
    files, at_once = 1024, min(5_000, files_at_once - 1_000)
    with label_party(tmp_path, files=files) as party:
        client = ScriptedClient(party.address, RUN)
        client.align()
        take_steps(client, 1)
        calm, memory = party.files, party.memory
        for _ in range(0, 10_000, at_once):
            with Strangers(party.address) as strangers:
                strangers.sockets(at_once // 2)
                strangers.sockets(at_once // 2, PREFACE)
                take_steps(client, client.link.applied_step + 1)
                assert party.files < files - 200
        party.await_calm(calm, 1_000, timeout=30)
        assert party.memory < memory + 64 * MIB
        another = ScriptedClient(party.address, RUN)
        another.link = client.link
        finish(another, client.link.applied_step + 1)
        client.channel.close()
    assert party.weights() == undisturbed


@pytest.mark.slow
def test_P09_P13_strangers_without_a_certificate(tmp_path: Path) -> None:
    """Real processes over TLS, while others connect and never prove who they are."""
    address = f"127.0.0.1:{free_port()}"
    run = kits.with_tls(RUN, kits.make(tmp_path / "certs"))
    run_file, out = write(tmp_path, changed(run, {"nonlabel_parties.lab.connect": address})), tmp_path / "out"
    with Background("label-party", run_file, "--out", out, "--listen", address) as party, ExitStack() as stack:
        party.await_words("listening")
        strangers = stack.enter_context(Strangers(address))
        strangers.sockets(300)
        strangers.sockets(100, TLS_HELLO)
        strangers.sockets(100, PREFACE)
        strangers.sockets(50, drip=TLS_HELLO)
        calls = [call for method in ANY_METHOD for call in strangers.calls(method, STRANGERS)]
        done = cutlayer("nonlabel-party", run_file, "--name", "lab", "--out", out)
        assert done.returncode == 0, done.stderr
        status, output = party.finish()
        assert status == 0, output
        assert set(await_end(calls, 20)) == {grpc.StatusCode.UNAVAILABLE}
    assert summary(out)["utility"]


@pytest.mark.slow
def test_P09_announced_rows_take_no_memory_and_only_the_newest_reading_goes_on(
    tmp_path: Path, undisturbed: bytes
) -> None:
    with label_party(tmp_path) as party, Strangers(party.address) as strangers:
        client = ScriptedClient(party.address, RUN)
        client.align()
        memory = party.memory
        hello = client.hello()
        hello.hello.durable_steps.append(0)
        for check in (bytes(16), b""):  # without the secret: refused at once
            claim = aligning(hello, total=MAX_ROWS, secret_check=check, digests=bytes(ALIGN_CHUNK_BYTES))
            calls = strangers.calls(SERVICE + "AlignRows", 1, *claim)
            assert await_end(calls, 10) == [grpc.StatusCode.FAILED_PRECONDITION]
        claim = aligning(hello, total=MAX_ROWS, secret_check=client.own.check)
        more = aligning(hello, total=MAX_ROWS, digests=bytes(ALIGN_CHUNK_BYTES))[1:]
        readings = []
        for _ in range(8):
            readings += strangers.calls(SERVICE + "AlignRows", 1, *claim, *(64 * MIB // ALIGN_CHUNK_BYTES * more))
            strangers.await_sent(60)
            take_steps(client, client.link.applied_step + 1)
        assert set(await_end(readings[:-1], 10)) == {grpc.StatusCode.CANCELLED}
        assert readings[-1].is_active()
        assert party.memory < memory + 2 * 64 * MIB + 64 * MIB
        finish(client, client.link.applied_step + 1)
    assert party.weights() == undisturbed


@pytest.mark.slow
def test_P09_what_strangers_send_unread_takes_little_memory(tmp_path: Path, undisturbed: bytes) -> None:
    """Frames at the limit, on as many calls as there may be, of which the label party reads the first at most."""
    frame = aligning(training_pb2.TrainRequest(), digests=bytes(ALIGN_CHUNK_BYTES))[1]
    with label_party(tmp_path) as party, Strangers(party.address) as strangers:
        client = ScriptedClient(party.address, RUN)
        client.align()
        memory = party.memory
        for _ in range(20):
            strangers.calls("/grpc.health.v1.Health/Watch", STRANGERS, b"", *(8 * MIB // ALIGN_CHUNK_BYTES * [frame]))
            strangers.calls(SERVICE + "AlignRows", STRANGERS, *(8 * MIB // ALIGN_CHUNK_BYTES * [frame]))
        take_steps(client, 1, 2, 3)
        assert party.memory < memory + 128 * MIB
        finish(client, 4)
    assert party.weights() == undisturbed
