"""Asks the label party's health service whether it serves: for a person, or for what watches a container."""

from __future__ import annotations

import socket
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cutlayer.common import run_files
from cutlayer.common.certificates import Identity, identity_of, read_certificate
from cutlayer.common.config import LabelPartySection, NonlabelPartySection, PartySection, TlsFiles
from cutlayer.common.errors import CertificateError, ConfigError
from cutlayer.common.fields import given_address
from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.tls import OwnCertificate, channel_credentials, host_and_port
from cutlayer.common.tls_probe import examine

_TIMEOUT_S = 5.0
_EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - listened on, and where that is reached


def health(file: Path, name: str | None, connect: str | None, certificate: Path | None) -> int:
    """Say on stdout whether the label party serves; returns 0, or 1 where it does not or nobody answers.

    Args:
        name: whose section of `file` says where the label party is and with which certificate to ask; None for the
            label party itself.
        connect: host:port in place of the file's.
        certificate: folder with cert.pem, key.pem and ca.pem in place of the file's. The label party needs it where
            it has `tls`: its own certificate is a server's and cannot ask.

    Raises:
        ConfigError: the file does not say where to ask, or with what. CertificateError: TLS cannot work.
    """
    run_file = run_files.load(file)
    section = run_file.label_section() if name is None else run_file.nonlabel_section(name)
    address = given_address("--connect", connect) or _address(section)
    serves, words = _ask(address, _certificate(run_file.job.name, name, section, certificate))
    print(f"the label party at {address} {words}")
    return 0 if serves else 1


def _address(section: LabelPartySection | NonlabelPartySection) -> str:
    """Where the label party is reached from the host of the section's party."""
    if isinstance(section, NonlabelPartySection):
        return section.connect
    host, _, port = section.listen.rpartition(":")
    if int(port) == 0:
        raise ConfigError("label_party.listen has port 0, which is any free port: give the true one with --connect")
    return f"{_EVERY_ADDRESS.get(host, host)}:{port}"


def _certificate(job: str, name: str | None, section: PartySection, folder: Path | None) -> OwnCertificate | None:
    """What to ask with; None in plaintext."""
    if folder is not None:
        return _client(folder, job)
    if section.tls is None:
        return None
    if name is None:
        raise ConfigError(
            "the label party's own certificate is a server's and cannot ask: make one with "
            "`cutlayer certs issue DIR health` and give its folder as --certificate DIR/health"
        )
    return OwnCertificate(section.tls, Identity(job, name), print)


def _client(folder: Path, job: str) -> OwnCertificate:
    files = TlsFiles(ca=folder / "ca.pem", cert=folder / "cert.pem", key=folder / "key.pem")
    owner = identity_of(read_certificate(files.cert))
    if owner is None or owner.job != job or owner.party == LABEL_PARTY:
        raise CertificateError(f"{files.cert}: is for {owner or 'no party'}, expected a non-label party of job {job!r}")
    return OwnCertificate(files, owner, print)


def _ask(address: str, own: OwnCertificate | None) -> tuple[bool, str]:
    """Whether the label party serves, and what it does in words."""
    channel = grpc.insecure_channel(address) if own is None else grpc.secure_channel(address, channel_credentials(own))
    with channel:
        try:
            request = health_pb2.HealthCheckRequest()
            status = health_pb2_grpc.HealthStub(channel).Check(request, timeout=_TIMEOUT_S).status
        except grpc.RpcError as error:
            return False, _why(error, address, own)
    if status == health_pb2.HealthCheckResponse.SERVING:
        return True, "serves"
    return False, "is there, but does not serve: it loads its data, or ends"


def _why(error: grpc.RpcError, address: str, own: OwnCertificate | None) -> str:
    if problem := examine(address, own):
        raise CertificateError(problem) from error
    return f"does not answer: {_unreached(address) or _unlike(error)}"


def _unreached(address: str) -> str | None:
    """Why no line to `address` comes about, and what to do; None where one does."""
    try:
        socket.create_connection(host_and_port(address), _TIMEOUT_S).close()
    except ConnectionRefusedError:
        return "nobody listens there; start the label party, or give its address with --connect"
    except socket.gaierror:
        return "no host of that name is known here; give another address with --connect"
    except TimeoutError:
        return "the host sends nothing back; is it up, is the address right, does the firewall let the port through?"
    except (OSError, OverflowError) as error:
        return f"it cannot be reached ({error}); give another address with --connect"
    return None


def _unlike(error: grpc.RpcError) -> str:
    """What is odd about who listens at the address."""
    if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"it is connected, but silent for {_TIMEOUT_S:g} s; its log says whether it hangs"
    return f"who listens there is no label party ({error.code().name}); give its address with --connect"
