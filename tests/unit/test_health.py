"""cutlayer/health.py: exit status and words of `cutlayer health`, against true servers, with and without TLS."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from support import kits
from support.runs import BREAST_CANCER, Run, changed, free_port, write
from typer.testing import CliRunner

from cutlayer.cli import app
from cutlayer.common.tls import OwnCertificate, server_credentials

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@contextmanager
def label_party(status: int = SERVING, own: OwnCertificate | None = None) -> Iterator[str]:
    """A server with the health service alone; its address."""
    servicer = health.HealthServicer()
    servicer.set("", status)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    if own is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", server_credentials(own))
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


@contextmanager
def stranger(first_bytes: bytes) -> Iterator[str]:
    """Somebody who sends that to whoever connects, and nothing else; its address."""
    lines: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                lines.append(server.accept()[0])
                lines[-1].sendall(first_bytes)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for line in lines:
                line.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The certificates of a job, with one for probes."""
    return kits.make(tmp_path_factory.mktemp("certs"), parties=("label_party", "lab", "health"))


def ask(folder: Path, run: Run, *options: str | Path) -> tuple[int, str]:
    """Exit status and all output of `cutlayer health`."""
    result = CliRunner().invoke(app, ["health", str(write(folder, run)), *map(str, options)])
    return result.exit_code, result.output


def listening(address: str, run: Run = BREAST_CANCER) -> Run:
    return changed(run, {"label_party.listen": address, "nonlabel_parties.lab.connect": address})


@pytest.mark.parametrize("options", [(), ("--name", "lab")])
def test_a_label_party_that_serves(tmp_path: Path, options: tuple[str, ...]) -> None:
    with label_party() as address:
        assert ask(tmp_path, listening(address), *options) == (0, f"the label party at {address} serves\n")


def test_a_label_party_that_loads_its_data(tmp_path: Path) -> None:
    with label_party(NOT_SERVING) as address:
        status, output = ask(tmp_path, listening(address))
    assert status == 1
    assert "does not serve" in output


def test_nobody_answers(tmp_path: Path) -> None:
    status, output = ask(tmp_path, listening(f"127.0.0.1:{free_port()}"))
    assert status == 1
    assert "does not answer: nobody listens there; start the label party, or give its address with --connect" in output


def test_no_such_host(tmp_path: Path) -> None:
    status, output = ask(tmp_path, BREAST_CANCER, "--connect", "nowhere.invalid:50051")
    assert (status, "does not answer: no host of that name is known here" in output) == (1, True)


@pytest.mark.parametrize(
    ("first_bytes", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "who listens there is no label party (UNAVAILABLE)"),
        (b"", "silent for 1 s"),
    ],
)
def test_somebody_else_listens_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_bytes: bytes, said: str
) -> None:
    monkeypatch.setattr("cutlayer.health._TIMEOUT_S", 1.0)
    monkeypatch.setattr("cutlayer.common.tls_probe._TIMEOUT_S", 0.2)
    with stranger(first_bytes) as address:
        status, output = ask(tmp_path, BREAST_CANCER, "--connect", address)
    assert (status, said in output) == (1, True), output


@pytest.mark.parametrize("every_address", ["0.0.0.0", "[::]"])
def test_who_listens_on_every_address_is_asked_on_loopback(tmp_path: Path, every_address: str) -> None:
    port = free_port()
    status, output = ask(tmp_path, listening(f"{every_address}:{port}"))
    assert status == 1
    assert f"at {'127.0.0.1' if every_address == '0.0.0.0' else '[::1]'}:{port}" in output


def test_connect_replaces_the_address(tmp_path: Path) -> None:
    with label_party() as address:
        assert ask(tmp_path, BREAST_CANCER, "--connect", address)[0] == 0


def test_what_is_no_address_is_the_users_error(tmp_path: Path) -> None:
    status, output = ask(tmp_path, BREAST_CANCER, "--connect", "somewhere")
    assert status == 2
    assert "--connect" in output


def test_any_free_port_is_no_address(tmp_path: Path) -> None:
    status, output = ask(tmp_path, BREAST_CANCER)
    assert status == 2
    assert "--connect" in output


def test_p13_the_label_party_is_asked_with_a_certificate_for_probes(tmp_path: Path, certificates: Path) -> None:
    with label_party(own=kits.own(certificates, "label_party")) as address:
        run = kits.with_tls(listening(address), certificates)
        assert ask(tmp_path, run, "--certificate", certificates / "health")[0] == 0
        assert ask(tmp_path, run, "--name", "lab")[0] == 0


def test_p13_the_label_partys_own_certificate_cannot_ask(tmp_path: Path, certificates: Path) -> None:
    run = kits.with_tls(listening("127.0.0.1:50051"), certificates)
    status, output = ask(tmp_path, run)
    assert (status, "cutlayer certs issue DIR health" in output) == (2, True)
    status, output = ask(tmp_path, run, "--certificate", certificates / "label_party")
    assert (status, "expected a non-label party of job 'test'" in output) == (2, True)


def test_p13_a_certificate_of_another_job_cannot_ask(tmp_path: Path, certificates: Path) -> None:
    run = changed(kits.with_tls(listening("127.0.0.1:50051"), certificates), {"job.name": "other"})
    status, output = ask(tmp_path, run, "--certificate", certificates / "health")
    assert (status, "expected a non-label party of job 'other'" in output) == (2, True)


def test_p13_plaintext_to_a_label_party_with_tls_is_the_users_error(tmp_path: Path, certificates: Path) -> None:
    with label_party(own=kits.own(certificates, "label_party")) as address:
        status, output = ask(tmp_path, listening(address), "--name", "lab")
    assert status == 2
    assert "speaks TLS and this party does not" in output


@pytest.mark.parametrize("name", ["lab", "nobody"])
def test_a_file_without_the_section_is_the_users_error(tmp_path: Path, name: str) -> None:
    assert ask(tmp_path, changed(BREAST_CANCER, {"nonlabel_parties": None}), "--name", name)[0] == 2
