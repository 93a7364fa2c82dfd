"""Peers that are gone, frozen, silent or slow: who is dead is noticed by both sides, who is only slow is not cut off.

Options that gRPC does not know it ignores without a word. So these tests look at what happens, not at options.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from faults.proxy import Proxy
from support import kits
from support.runs import BREAST_CANCER, changed
from support.threads import Parties

from cutlayer.common.channel import client_options, server_options
from cutlayer.common.limits import Timeouts
from cutlayer.label_party.training import LabelTraining
from cutlayer.nonlabel_party.training import BottomTraining

MIB = 1 << 20
TIMEOUTS = Timeouts(keepalive_s=1)
QUICK = {"reconnect_s": 20, "stall_s": 3, "keepalive_s": 1, "connect_s": 20, "goodbye_s": 1}
RUN = changed(BREAST_CANCER, {"label_party.timeouts": QUICK, "nonlabel_parties.lab.timeouts": QUICK})


class Line:
    """A server that echoes, a client with one open call, and a proxy between the two; all as parties have them."""

    def __init__(self, frame_bytes: int) -> None:
        self.server_noticed = threading.Event()
        self.may_read = threading.Event()
        self.may_read.set()
        self.server = grpc.server(
            futures.ThreadPoolExecutor(2), options=server_options(frame_bytes, TIMEOUTS, connections=10)
        )
        handler = grpc.stream_stream_rpc_method_handler(self._echo, bytes, bytes)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"Echo": handler}),))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()
        self.proxy = Proxy(f"127.0.0.1:{self.port}")
        self.channel = grpc.insecure_channel(self.proxy.address, client_options(frame_bytes, TIMEOUTS))
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = self.channel.stream_stream("/test/Echo", bytes, bytes)(iter(self._requests.get, None))

    def _echo(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(self.server_noticed.set)
        for request in requests:
            yield request
            self.may_read.wait()

    def send(self, message: bytes) -> None:
        self._requests.put(message)

    def echo(self, message: bytes) -> bytes:
        """Send, and wait for the same."""
        self.send(message)
        answer: bytes = next(self._call)
        return answer

    def require_noticed(self, timeout: float = 20) -> None:
        """Both sides learn that the line is dead."""
        threading.Timer(timeout, self._call.cancel).start()
        with pytest.raises(grpc.RpcError) as broken:
            next(self._call)
        assert broken.value.code() is grpc.StatusCode.UNAVAILABLE
        assert self.server_noticed.wait(timeout)

    def close(self) -> None:
        self._call.cancel()
        self._requests.put(None)
        self.may_read.set()
        self.proxy.close()
        self.channel.close()
        self.server.stop(0).wait()


@contextmanager
def line(frame_bytes: int = 4096) -> Iterator[Line]:
    """A line that works."""
    made = Line(frame_bytes)
    try:
        assert made.echo(b"x") == b"x"
        yield made
    finally:
        made.close()


@pytest.mark.slow
def test_P08_an_idle_line_lives_and_a_silent_one_is_noticed_by_both_sides() -> None:
    """Idle for longer than a server takes that finds pings too many; then as with a frozen peer."""
    with line() as one:
        time.sleep(6)
        assert one.echo(b"y") == b"y"
        assert one.proxy.connections == 1
        one.proxy.stalled = True
        one.require_noticed()


@pytest.mark.slow
def test_P08_a_line_whose_packets_vanish_is_noticed_by_both_sides() -> None:
    if os.geteuid() != 0 or shutil.which("iptables") is None:
        pytest.skip("needs root and iptables")
    with line() as one, dropped(one.port):
        one.require_noticed()


@contextmanager
def dropped(port: int) -> Iterator[None]:
    """No packet to or from this port of this machine arrives."""
    rules = [["INPUT", "-p", "tcp", f"--{end}port", str(port), "-j", "DROP"] for end in ("d", "s")]
    for rule in rules:
        if subprocess.run(["iptables", "-I", *rule], check=False, capture_output=True).returncode:
            pytest.skip("iptables does not work here")
    try:
        yield
    finally:
        for rule in rules:
            subprocess.run(["iptables", "-D", *rule], check=True)


@pytest.mark.slow
def test_P07_P08_a_message_on_a_narrow_line_is_no_silence() -> None:
    """A MiB at 256 KiB/s takes four times the keepalive time, each way, and pings have to wait behind it."""
    with line(MIB) as one:
        one.proxy.bytes_per_s = MIB / 4
        message = bytes(MIB - 4096)
        assert one.echo(message) == message
        assert one.proxy.connections == 1


@pytest.mark.slow
def test_P07_parties_meet_over_round_trips_of_seconds(tmp_path: Path) -> None:
    """TCP, TLS and HTTP/2 take several of them, which must all fit into one attempt."""
    proxies: list[Proxy] = []

    def connect(address: str) -> str:
        proxies.append(Proxy(address))
        proxies[0].delay_s = 0.8
        return proxies[0].address

    parties = Parties(tmp_path, kits.with_tls(RUN, kits.make(tmp_path / "certs")), connect=connect)
    log = tmp_path / "out" / "label_party" / "log"
    while not (log.exists() and "lab has connected" in log.read_text()):
        assert all(thread.is_alive() for thread in parties.threads)
        time.sleep(0.02)
    proxies[0].delay_s = 0.0
    parties.wait().require_success()
    proxies[0].close()


@pytest.mark.slow
def test_P09_what_is_not_read_is_not_taken() -> None:
    with line(MIB) as one:
        one.may_read.clear()
        for _ in range(100):
            one.send(bytes(MIB - 4096))
        time.sleep(2)
        assert one.proxy.bytes["up"] < 4 * MIB  # the message that is read, and the one after it


@pytest.mark.parametrize(
    ("owner", "name", "label_party", "lab"),
    [
        (
            BottomTraining,
            "forward",
            "party 'lab' is connected but sent nothing for 3 s at step 4",
            "the label party at",  # which has ended meanwhile
        ),
        (
            LabelTraining,
            "step",
            "party 'lab' has failed at step 5",
            "the label party is connected but answered nothing at step 4 for 5 s",
        ),
    ],
    ids=["lab", "label_party"],
)
def test_P08_a_party_that_computes_for_ever_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, label_party: str, lab: str
) -> None:
    """Its process lives and answers pings; only the step does not come."""
    before = getattr(owner, name)

    def sleeping(self: Any, step: Any, *args: Any) -> Any:
        if step.number == 4:
            time.sleep(8)
        return before(self, step, *args)

    monkeypatch.setattr(owner, name, sleeping)
    timeouts = {"reconnect_s": 1, "goodbye_s": 1}
    sections = ("label_party", "nonlabel_parties.lab")
    changes = {f"{section}.timeouts.{key}": value for section in sections for key, value in timeouts.items()}
    outcome = Parties(tmp_path, changed(RUN, changes)).wait()
    assert label_party in outcome.error("label_party")
    assert lab in outcome.error("lab")
    assert "at step 4" in outcome.error("lab")


@pytest.mark.slow
def test_P08_a_line_that_breaks_at_every_activation_ends_both_clearly(tmp_path: Path) -> None:
    proxies: list[Proxy] = []

    def without_activations(chunk: bytes, offset: int) -> bytes | None:
        return None if len(chunk) > 2000 and proxies[0].bytes["up"] > 9000 else chunk  # ids are the first 9000 bytes

    def connect(address: str) -> str:
        proxies.append(Proxy(address))
        proxies[0].edits["up"] = without_activations
        return proxies[0].address

    timeouts = QUICK | {"reconnect_s": 3}
    run = changed(RUN, {"label_party.timeouts": timeouts, "nonlabel_parties.lab.timeouts": timeouts})
    outcome = Parties(tmp_path, run, connect=connect).wait()
    proxies[0].close()
    assert "was lost at step 1 and did not come back within 3 s" in outcome.error("lab")
    assert "party 'lab' has failed at step 1" in outcome.error("label_party")


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.slow
def test_reconnecting_leaves_no_thread_and_no_file_behind(tmp_path: Path, *, tls: bool) -> None:
    patience = QUICK | {"reconnect_s": 5}
    run = changed(RUN, {"job.epochs": 1000, "label_party.timeouts": patience})
    run = changed(run, {"nonlabel_parties.lab.timeouts": patience})
    if tls:
        run = kits.with_tls(run, kits.make(tmp_path / "certs"))
    proxies: list[Proxy] = []

    def connect(address: str) -> str:
        proxies.append(Proxy(address))
        return proxies[0].address

    parties = Parties(tmp_path, run, connect=connect)
    counts = [_after_a_break(proxies[0], parties) for _ in range(16)]
    proxies[0].close()
    parties.wait()
    threads, files = zip(*counts, strict=True)
    assert max(threads[-4:]) <= max(threads[:6])
    assert max(files[-4:]) <= max(files[:6])


def _after_a_break(proxy: Proxy, parties: Parties) -> tuple[int, int]:
    """Threads and files of this process when training goes on after a reset."""
    before = proxy.bytes["up"]
    while proxy.bytes["up"] < before + 20_000:
        assert all(thread.is_alive() for thread in parties.threads)
        time.sleep(0.005)
    counts = threading.active_count(), len(os.listdir("/proc/self/fd"))
    proxy.reset()
    return counts


@pytest.mark.slow
def test_P09_streams_that_hang_half_open_lock_nobody_out(tmp_path: Path) -> None:
    """The label party hears nothing of 30 breaks, which are more than it has threads for one party."""
    patience = QUICK | {"reconnect_s": 5}
    run = changed(RUN, {"job.epochs": 1000, "label_party.timeouts": patience | {"keepalive_s": 100}})
    run = changed(run, {"nonlabel_parties.lab.timeouts": patience})
    proxies: list[Proxy] = []

    def connect(address: str) -> str:
        proxies.append(Proxy(address))
        return proxies[0].address

    parties = Parties(tmp_path, run, connect=connect)
    for _ in range(30):
        before = proxies[0].bytes["up"]
        while proxies[0].bytes["up"] < before + 8_000:
            assert all(thread.is_alive() for thread in parties.threads)
            time.sleep(0.005)
        proxies[0].half_open("up")
    proxies[0].close()
    parties.wait()
