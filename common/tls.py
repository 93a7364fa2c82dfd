"""Mutual TLS: a party's own certificate, read again when its files change, and where plaintext is allowed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from ipaddress import ip_address

import grpc

from cutlayer.common.certificates import Credentials, Identity, days_left, read_credentials
from cutlayer.common.config import PartySection, TlsFiles
from cutlayer.common.errors import CertificateError, ConfigError

_WARN_DAYS = 30

_Stamp = tuple[tuple[int, int, int], ...]


class OwnCertificate:
    """What a party proves itself with; files that were renewed are taken up without a restart.

    Args:
        owner: whom the certificate must be for.
        warn: told in words what a person should look into.

    Raises:
        CertificateError: the files do not prove that, now.
    """

    def __init__(self, files: TlsFiles, owner: Identity, warn: Callable[[str], None]) -> None:
        self.files = files
        self.owner = owner
        self._warn = warn
        self._lock = threading.Lock()
        self._stamp = self._stamp_now()
        self._current = read_credentials(files, owner)
        self._trouble = ""
        self._warn_of_the_end()

    def current(self) -> Credentials:
        """The files as they are now; where they do not fit together, as in the middle of a renewal, as they were."""
        with self._lock:
            if (stamp := self._stamp_now()) != self._stamp:
                self._take_up(stamp)
            return self._current

    @property
    def days_left(self) -> int:
        """Whole days until it expires."""
        return days_left(self._current.certificate)

    def _take_up(self, stamp: _Stamp) -> None:
        try:
            self._current = read_credentials(self.files, self.owner)
        except CertificateError as error:
            if self._trouble != str(error):
                self._trouble = str(error)
                self._warn(f"{error}; going on with the earlier files")
            return
        self._stamp, self._trouble = stamp, ""
        self._warn_of_the_end()

    def _stamp_now(self) -> _Stamp:
        stamps = []
        for _, path in self.files:
            try:
                found = path.stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return tuple(stamps)

    def _warn_of_the_end(self) -> None:
        if self.days_left < _WARN_DAYS:
            self._warn(f"{self.files.cert} expires in {self.days_left} days; renew it with `cutlayer certs renew`")


def own_certificate(
    section: PartySection, owner: Identity, where: str, address: str, warn: Callable[[str], None]
) -> OwnCertificate | None:
    """The party's certificate; None where the line is plaintext and may be.

    Args:
        where: the key of `address`, for messages.

    Raises:
        ConfigError: plaintext to or from another host, without `insecure: true`.
        CertificateError: as `OwnCertificate`.
    """
    if section.tls is not None:
        return OwnCertificate(section.tls, owner, warn)
    if not (section.insecure or is_loopback(address)):
        raise ConfigError(
            f"{where}: {address} is no loopback address, and without `tls` everything would travel in the clear: write "
            "`tls: {ca: ca.pem, cert: cert.pem, key: key.pem}` in this section (docs/certificates.md), or "
            "`insecure: true` if the line is protected by other means"
        )
    return None


def is_loopback(address: str) -> bool:
    """Whether `address`, host:port, stays within this machine."""
    host = host_of(address)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(address: str) -> str:
    """The host in host:port; an IPv6 address without its brackets."""
    return address.rpartition(":")[0].strip("[]")


def host_and_port(address: str) -> tuple[str, int]:
    """Both parts of host:port, as sockets want them."""
    return host_of(address), int(address.rpartition(":")[2])


def server_credentials(own: OwnCertificate) -> grpc.ServerCredentials:
    """Credentials of a server that admits nobody without a certificate of its CA."""
    sent = own.current()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        """Asked at each handshake."""
        nonlocal sent
        if (current := own.current()) is sent:
            return None
        sent = current
        return _server_configuration(current)

    return grpc.dynamic_ssl_server_credentials(
        _server_configuration(sent),
        renewed,  # type: ignore[arg-type]  # None is allowed, and means as before
        require_client_authentication=True,
    )


def channel_credentials(own: OwnCertificate) -> grpc.ChannelCredentials:
    """Credentials of a channel, from the files as they are now."""
    current = own.current()
    return grpc.ssl_channel_credentials(current.ca, current.key, current.cert)


def _server_configuration(own: Credentials) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(own.key, own.cert)], own.ca)
