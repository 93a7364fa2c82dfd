"""Mutual TLS over real sockets: who is let in, as whom, and what each side says of who is not."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from faults.proxy import Proxy
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support import kits
from support.runs import BREAST_CANCER, Run, changed, cutlayer, finish, free_port, start, with_parties, write
from support.threads import SECRET, Outcome, Parties, train

from cutlayer import certs
from cutlayer.check import check
from cutlayer.common.alignment import OwnIds
from cutlayer.common.certificates import now
from cutlayer.common.config import RunFile
from cutlayer.common.displays import PlainDisplay
from cutlayer.common.errors import CertificateError, PeerError
from cutlayer.common.files import write_atomically
from cutlayer.common.handshake import PROTOCOL, Greeting, Terms
from cutlayer.common.limits import Timeouts
from cutlayer.common.telemetry import Telemetry
from cutlayer.common.tls import OwnCertificate
from cutlayer.common.tls_probe import examine
from cutlayer.common.wire import hello_of
from cutlayer.label_party.answered import AnsweredActivations
from cutlayer.label_party.exchange import Exchange
from cutlayer.label_party.listener import Listener
from cutlayer.label_party.peers import admit_by_certificate
from cutlayer.label_party.same_run import SameRun
from cutlayer.label_party.server import LabelPartyServicer, PartyExchange
from cutlayer.nonlabel_party.client import LabelPartyClient
from cutlayer.v1 import session_pb2, training_pb2, training_pb2_grpc

QUICK = {"reconnect_s": 8, "stall_s": 20, "keepalive_s": 1, "connect_s": 20, "goodbye_s": 1}
RUN = changed(BREAST_CANCER, {"label_party.timeouts": QUICK, "nonlabel_parties.lab.timeouts": QUICK})
TWO = RunFile.model_validate(with_parties(RUN, ["lab", "bank"]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job's certificates; `bank` is a party too. Beside them those of another CA, and of another job."""
    root = tmp_path_factory.mktemp("certs")
    kits.make(root / "ours", parties=("label_party", "lab", "bank"))
    kits.of_days(root / "ours", "expired", -9, -2)
    kits.of_days(root / "ours", "not_yet", 3, 9)
    kits.make(root / "other_ca")
    kits.make(root / "other_job", job="other")
    certs.issue(root / "ours", ["stranger"])
    return root


# The label party's side: a client without the right certificate does not get through.


class Served:
    """A label party that listens and does nothing else."""

    def __init__(self, folder: Path, logs: Path, job: str = "test") -> None:
        self.told: list[str] = []
        exchange: PartyExchange = Exchange(TWO.job.parties, Timeouts(), self.told.append)
        self.telemetry = Telemetry("label_party", logs, None)
        admit = admit_by_certificate(job)
        self.answered = AnsweredActivations(logs / "answered")
        same_run = SameRun(self.answered, tuple, lambda: None)
        servicer = LabelPartyServicer(
            TWO.job, exchange, SECRET.encode(), self.telemetry, self.answered, same_run, admit
        )
        own = kits.own(folder / "ours", "label_party")
        self.listener = Listener(TWO.job, TWO.label_section(), "127.0.0.1:0", servicer, own)
        self.listener.ready()

    def close(self) -> None:
        self.listener.stop()
        self.answered.close()
        self.telemetry.close()


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The label party of the job."""
    server = Served(folder, tmp_path_factory.mktemp("logs"))
    yield server
    server.close()


def channel(address: str, kit: Path | None, ca: Path) -> grpc.Channel:
    """A client's channel with any certificate, or none; nothing is checked beforehand."""
    key, cert = ((kit / "key.pem").read_bytes(), (kit / "cert.pem").read_bytes()) if kit else (None, None)
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(ca.read_bytes(), key, cert))


def health(line: grpc.Channel) -> int:
    """The label party's health."""
    stub = health_pb2_grpc.HealthStub(line)
    status: int = stub.Check(health_pb2.HealthCheckRequest(), timeout=5).status
    return status


def test_P13_baseline_right_certificate_is_served(served: Served, folder: Path) -> None:
    ours = folder / "ours"
    with channel(served.listener.address, ours / "lab", ours / "ca" / "cert.pem") as line:
        assert health(line) == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("kit", [None, "other_ca/lab", "ours/expired", "ours/not_yet", "ours/label_party"])
def test_P13_client_without_a_right_certificate_is_not_served(served: Served, folder: Path, kit: str | None) -> None:
    certificate = folder / kit if kit else None
    with channel(served.listener.address, certificate, folder / "ours" / "ca" / "cert.pem") as line:
        with pytest.raises(grpc.RpcError) as refused:
            health(line)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def test_P13_plaintext_client_is_not_served(served: Served) -> None:
    with grpc.insecure_channel(served.listener.address) as line, pytest.raises(grpc.RpcError) as refused:
        health(line)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


# Who got through may use only its own name, in every method.


def align(stub: Any, hello: session_pb2.Hello) -> None:
    next(stub.AlignRows(iter([training_pb2.AlignRowsRequest(hello=hello)]), timeout=5))


def train_(stub: Any, hello: session_pb2.Hello) -> None:
    next(stub.Train(iter([training_pb2.TrainRequest(hello=hello)]), timeout=5))


def leave(stub: Any, hello: session_pb2.Hello) -> None:
    stub.Leave(training_pb2.LeaveRequest(hello=hello), timeout=5)


METHODS: list[Callable[[Any, session_pb2.Hello], None]] = [align, train_, leave]


def answer_to(served: Served, folder: Path, kit: str, party: str, method: Callable[..., None]) -> str:
    """How a call of `party` with the certificate `kit` ends: status and text; empty where it is served."""
    greeting = Greeting(PROTOCOL, "1", party, TWO.job.digest(), 8, None, None, 0, b"")
    with channel(served.listener.address, folder / kit, folder / "ours" / "ca" / "cert.pem") as line:
        try:
            method(training_pb2_grpc.LabelPartyServiceStub(line), hello_of(greeting))  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    return ""


def test_P13_baseline_own_name_is_admitted(served: Served, folder: Path) -> None:
    # What comes after the name: without rows a party that would train is sent to AlignRows, and ids are missing.
    assert answer_to(served, folder, "ours/lab", "lab", train_) == ""
    assert "INVALID_ARGUMENT" in answer_to(served, folder, "ours/lab", "lab", align)


@pytest.mark.parametrize("method", METHODS)
def test_P13_another_partys_name_is_refused(served: Served, folder: Path, method: Callable[..., None]) -> None:
    answer = answer_to(served, folder, "ours/bank", "lab", method)
    assert answer.startswith("PERMISSION_DENIED: this certificate is party 'bank''s, the greeting says 'lab'")


@pytest.mark.parametrize("method", METHODS)
def test_P13_a_name_that_the_job_does_not_have_is_refused(
    served: Served, folder: Path, method: Callable[..., None]
) -> None:
    answer = answer_to(served, folder, "ours/stranger", "stranger", method)
    assert answer.startswith("PERMISSION_DENIED: this name is no party of this job")


@pytest.mark.parametrize("method", METHODS)
def test_P13_another_jobs_certificate_is_refused(folder: Path, tmp_path: Path, method: Callable[..., None]) -> None:
    other = Served(folder, tmp_path, job="other")
    answer = answer_to(other, folder, "ours/lab", "lab", method)
    other.close()
    assert answer.startswith("PERMISSION_DENIED: this certificate is for job 'test', and this is job 'other'")
    assert "this certificate is for job 'test'" in (tmp_path / "log").read_text()


# The non-label party's side: it says why, and ends.


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., str]]:
    """Starts a TLS server with any certificate; gives its address."""
    servers: list[grpc.Server] = []

    def begin(kit: str, *, ca: str = "ours", listen: str = "127.0.0.1:0") -> str:
        server = grpc.server(futures.ThreadPoolExecutor(2))
        pair = [((folder / kit / "key.pem").read_bytes(), (folder / kit / "cert.pem").read_bytes())]
        roots = (folder / ca / "ca" / "cert.pem").read_bytes()
        port = server.add_secure_port(listen, grpc.ssl_server_credentials(pair, roots, require_client_auth=True))
        server.start()
        servers.append(server)
        return f"{listen.rpartition(':')[0]}:{port}"

    yield begin
    for server in servers:
        server.stop(0).wait()


@pytest.fixture(scope="module")
def bad_label_parties(folder: Path) -> Path:
    """Label party certificates of our CA that are not in force; and of another job, signed by our CA."""
    for name, first, last in (("ended", -9, -2), ("early", 3, 9)):
        (folder / "ours" / "label_party").rename(folder / "ours" / "kept")
        kits.of_days(folder / "ours", "label_party", first, last).rename(folder / "ours" / name)
        (folder / "ours" / "kept").rename(folder / "ours" / "label_party")
    return folder


def client_of(
    folder: Path, address: str, *, own: OwnCertificate | None = None, connect_s: float = 20
) -> LabelPartyClient:
    """A client that is lab, with lab's certificate unless another one is given."""
    terms = Terms("lab", TWO.job.digest(), 8, None, None)
    timeouts = Timeouts.model_validate(QUICK | {"connect_s": connect_s})
    own = own or kits.own(folder / "ours", "lab")
    telemetry = Telemetry("lab", folder, PlainDisplay())
    return LabelPartyClient(address, terms, TWO.job.limits("lab"), timeouts, "float32", telemetry, own)


def end_of(client: LabelPartyClient) -> str:
    """What the client says when TLS to the label party cannot work: soon, and as the user's error."""
    began = time.monotonic()
    with pytest.raises(CertificateError) as caught:
        client.align(OwnIds(["1", "2"], SECRET.encode()), "here", ())
    client.close()
    assert caught.value.exit_code == 2
    assert time.monotonic() - began < QUICK["connect_s"] / 2
    return str(caught.value)


def test_P13_baseline_right_server_is_no_problem(serve: Callable[..., str], folder: Path) -> None:
    assert examine(serve("ours/label_party"), kits.own(folder / "ours", "lab")) is None


@pytest.mark.parametrize(
    ("kit", "listen", "text"),
    [
        (
            "other_ca/label_party",
            "127.0.0.1:0",
            "was not made by the CA in {ca}; both parties need certificates from one",
        ),
        ("ours/ended", "127.0.0.1:0", "has expired"),
        ("ours/early", "127.0.0.1:0", "is not yet valid"),
        (
            "ours/label_party",
            "127.0.0.2:0",
            "is not for the name '127.0.0.2'; connect by a name that is in it, or renew",
        ),
        ("ours/bank", "127.0.0.1:0", "is not a label party's; issue one for label_party"),
    ],
)
def test_P13_client_says_what_is_wrong_with_the_server(
    serve: Callable[..., str], bad_label_parties: Path, kit: str, listen: str, text: str
) -> None:
    address = serve(kit, listen=listen)
    said = end_of(client_of(bad_label_parties, address))
    assert said.startswith(f"the certificate of the label party at {address} ")
    assert text.format(ca=bad_label_parties / "ours" / "lab" / "ca.pem") in said


def test_P13_client_says_that_its_certificate_is_refused(serve: Callable[..., str], folder: Path) -> None:
    address = serve("ours/label_party", ca="other_ca")  # trusts another CA than the one that made the client's
    said = end_of(client_of(folder, address))
    assert said.startswith(f"the label party at {address} refuses the certificate {folder}/ours/lab/cert.pem")


def test_P13_a_label_party_of_another_job_is_not_trusted(serve: Callable[..., str], folder: Path) -> None:
    # Even where a party trusts the CAs of two jobs.
    trusted = folder / "other_job" / "lab" / "ca.pem"
    trusted.write_bytes(trusted.read_bytes() + (folder / "ours" / "ca" / "cert.pem").read_bytes())
    address = serve("ours/label_party", ca="other_job")
    said = end_of(client_of(folder, address, own=kits.own(folder / "other_job", "lab", "other")))
    assert said == "the certificate there is for the label party of job 'test', not for the label party of job 'other'"


def test_P13_certificate_that_expires_while_running(
    serve: Callable[..., str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, address = kits.own(folder / "ours", "lab"), serve("ours/label_party")
    assert examine(address, own) is None
    later = now() + timedelta(days=400)
    monkeypatch.setattr("cutlayer.common.certificates.now", lambda: later)
    assert (examine(address, own) or "").startswith(f"{folder}/ours/lab/cert.pem: has expired on")


def test_P13_one_side_speaks_plaintext(served: Served, folder: Path) -> None:
    assert "speaks TLS and this party does not" in (examine(served.listener.address, None) or "")
    plain = grpc.server(futures.ThreadPoolExecutor(1))
    address = f"127.0.0.1:{plain.add_insecure_port('127.0.0.1:0')}"
    plain.start()
    said = examine(address, kits.own(folder / "ours", "lab")) or ""
    assert examine(address, None) is None
    plain.stop(0).wait()
    assert "does not speak TLS" in said


@pytest.mark.parametrize(
    ("kit", "status", "text"),
    [
        ("ours/label_party", 0, "no problem found"),
        ("other_ca/label_party", 2, "lab: the certificate of the label party"),
    ],
)
def test_P13_check_repeats_the_handshake(
    *,
    serve: Callable[..., str],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kit: str,
    status: int,
    text: str,
) -> None:
    here = {"nonlabel_parties.lab.connect": serve(kit), "nonlabel_parties.lab.id_secret": SECRET}
    run = changed(kits.with_tls(RUN, folder / "ours"), here)
    assert check(write(tmp_path, run), "lab") == status
    out, err = capsys.readouterr()
    assert text in out + err
    assert "is for party 'lab' of job 'test' and expires in 364 days" in out


def test_P13_check_of_a_whole_file_looks_at_all_certificates(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swapped = kits.with_tls(RUN, folder / "ours")
    sections = swapped["label_party"], swapped["nonlabel_parties"]["lab"]
    sections[0]["tls"], sections[1]["tls"] = sections[1]["tls"], sections[0]["tls"]
    assert check(write(tmp_path, swapped)) == 2
    err = capsys.readouterr().err
    assert "is for party 'lab' of job 'test', expected one for the label party of job 'test'" in err
    assert "is for the label party of job 'test', expected one for party 'lab' of job 'test'" in err


def test_nobody_there_is_no_problem_of_tls(folder: Path) -> None:
    own = kits.own(folder / "ours", "lab")
    assert examine(f"127.0.0.1:{free_port()}", own) is None
    assert examine("no-such-host.invalid:1", own) is None
    assert examine("127.0.0.1:99999", own) is None
    with pytest.raises(PeerError, match="no label party at .* within 1 s"):
        client_of(folder, f"127.0.0.1:{free_port()}", connect_s=1).align(OwnIds(["1"], SECRET.encode()), "here", ())


def test_connections_that_break_are_no_problem_of_tls(folder: Path) -> None:
    own = kits.own(folder / "ours", "lab")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert examine(f"127.0.0.1:{server.getsockname()[1]}", own) is None
        thread.join()


# Whole runs.


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The run without TLS."""
    return train(tmp_path_factory.mktemp("plain"), RUN).require_success()


def require_same_weights(outcome: Outcome, plain: Outcome) -> None:
    for party in ("label_party", "lab"):
        assert outcome.weights(party) == plain.weights(party)


def test_P13_baseline_run_over_tls_gives_the_same_weights(tmp_path: Path, plain: Outcome) -> None:
    run = kits.with_tls(RUN, kits.make(tmp_path / "certs"))
    # The secret of the row ids decides their order, so it must be that of the other run.
    done = cutlayer("run", write(tmp_path, run), "--out", tmp_path / "out", CUTLAYER_ID_SECRET=SECRET)
    assert (done.returncode, done.stderr) == (0, "")
    require_same_weights(Outcome(tmp_path / "out"), plain)


def test_P13_nothing_travels_in_the_clear(tmp_path: Path, plain: Outcome) -> None:
    service = b"cutlayer.v1.LabelPartyService"
    in_the_clear = _on_the_way(tmp_path / "plain", RUN, plain)
    protected = _on_the_way(tmp_path / "tls", kits.with_tls(RUN, kits.make(tmp_path / "certs")), plain)
    assert service in in_the_clear
    assert service not in protected
    assert len(protected) > len(in_the_clear)


def _on_the_way(folder: Path, run: Run, plain: Outcome) -> bytes:
    """All bytes that a run sends, both ways."""
    seen = bytearray()
    proxies: list[Proxy] = []

    def keep(chunk: bytes, offset: int) -> bytes:
        seen.extend(chunk)
        return chunk

    def connect(address: str) -> str:
        proxies.append(Proxy(address))
        proxies[0].edits = {"up": keep, "down": keep}
        return proxies[0].address

    require_same_weights(Parties(folder, run, connect=connect).wait().require_success(), plain)
    proxies[0].close()
    return bytes(seen)


def test_P13_processes_end_with_status_2_and_the_reason(folder: Path, tmp_path: Path) -> None:
    run = kits.with_tls(RUN, folder / "ours")
    other = kits.with_tls(RUN, folder / "other_ca")
    address = f"127.0.0.1:{free_port()}"
    label = start(
        "label-party", write(tmp_path, run), "--listen", address, "--out", tmp_path / "l", CUTLAYER_ID_SECRET="s"
    )
    lab = cutlayer(
        *("nonlabel-party", write(tmp_path, other, "o.yaml"), "--name", "lab", "--connect", address),
        *("--out", tmp_path / "o"),
        CUTLAYER_ID_SECRET="s",
    )
    with channel(address, None, folder / "ours" / "ca" / "cert.pem") as line, pytest.raises(grpc.RpcError):
        health(line)
    label.send_signal(signal.SIGTERM)
    status, said = finish(label)
    assert status == 143
    assert "PEER_DID_NOT_RETURN_A_CERTIFICATE" in said  # gRPC's own words, which docs/certificates.md explains
    assert lab.returncode == 2
    assert "was not made by the CA in" in lab.stderr


def test_P13_a_party_with_another_partys_certificate_ends_before_it_connects(folder: Path, tmp_path: Path) -> None:
    ours = folder / "ours"
    as_lab = {part: str(ours / "bank" / f"{part}.pem") for part in ("ca", "cert", "key")}
    run = changed(kits.with_tls(RUN, ours), {"nonlabel_parties.lab.tls": as_lab, "label_party.timeouts.connect_s": 1})
    outcome = Parties(tmp_path, run).wait()
    assert "is for party 'bank' of job 'test', expected one for party 'lab'" in outcome.error("lab")


@pytest.mark.parametrize("party", ["label_party", "lab"])
def test_P13_plaintext_beyond_loopback_needs_a_word(tmp_path: Path, party: str) -> None:
    key = "listen" if party == "label_party" else "connect"
    section = party if party == "label_party" else f"nonlabel_parties.{party}"
    file = write(tmp_path, changed(RUN, {f"{section}.{key}": "0.0.0.0:0", f"{section}.id_secret": "s"}))
    for command in (["check", file, "--name", party], _start_of(party, file, tmp_path)):
        done = cutlayer(*command)
        assert done.returncode == 2
        assert f"{section}.{key}: 0.0.0.0:0 is no loopback address" in done.stderr
        assert "`insecure: true`" in done.stderr


def _start_of(party: str, file: Path, folder: Path) -> list[str | Path]:
    command: list[str | Path] = (
        ["label-party", file] if party == "label_party" else ["nonlabel-party", file, "--name", party]
    )
    return [*command, "--out", folder / "out"]


# Renewal while a run goes on.


def after_bytes(proxy: Proxy, parties: Parties, count: int) -> None:
    """Wait until that much has gone through: training is under way. Leaves the line slow."""
    proxy.delay_s = 0.02
    while sum(proxy.bytes.values()) < count:
        assert all(thread.is_alive() for thread in parties.threads)
        time.sleep(0.005)


def put(new: Path, into: Path) -> None:
    """Replace the files of a party, one after the other."""
    for part in ("ca", "key", "cert"):
        write_atomically(into / f"{part}.pem", (new / f"{part}.pem").read_bytes(), 0o600)


def begin(folder: Path, run: Run) -> tuple[Proxy, Parties]:
    """A run that is under way, through a proxy."""
    proxies: list[Proxy] = []

    def connect(address: str) -> str:
        proxies.append(Proxy(address))
        return proxies[-1].address

    parties = Parties(folder, run, connect=connect)
    after_bytes(proxies[0], parties, 22_000)
    return proxies[0], parties


def test_P13_certificates_renewed_in_mid_run_are_used_at_the_next_connection(tmp_path: Path, plain: Outcome) -> None:
    # To another CA on both sides: whoever still used an old file would not get through.
    ours, other = kits.make(tmp_path / "ours"), kits.make(tmp_path / "other")
    proxy, parties = begin(tmp_path, kits.with_tls(RUN, ours))
    for party in kits.PARTIES:
        put(other / party, ours / party)
    before = proxy.connections
    proxy.cut()
    proxy.delay_s = 0.0
    outcome = parties.wait().require_success()
    proxy.close()
    assert proxy.connections > before
    require_same_weights(outcome, plain)


def test_P13_renewal_by_command_in_mid_run(tmp_path: Path, plain: Outcome) -> None:
    ours = kits.make(tmp_path / "ours")
    proxy, parties = begin(tmp_path, kits.with_tls(RUN, ours))
    for party in kits.PARTIES:
        certs.renew(ours, party)
    proxy.cut()
    proxy.delay_s = 0.0
    outcome = parties.wait().require_success()
    proxy.close()
    require_same_weights(outcome, plain)


def test_P13_renewal_on_one_side_to_another_ca_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    ours, other = kits.make(tmp_path / "ours"), kits.make(tmp_path / "other")
    proxy, parties = begin(tmp_path, kits.with_tls(RUN, ours))
    put(other / "label_party", ours / "label_party")
    proxy.cut()
    proxy.delay_s = 0.0
    outcome = parties.wait()
    proxy.close()
    assert isinstance(outcome.errors["lab"], CertificateError)
    assert "was not made by the CA in" in outcome.error("lab")
    assert "party 'lab'" in outcome.error("label_party")
