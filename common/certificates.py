"""Certificates of parties: whose they are, how long they hold, and whether a party's three files fit together.

A certificate names one party of one job in a URI: `spiffe://<job>/label-party` or
`spiffe://<job>/nonlabel-party/<name>`. Whether it is in force now is the one question here that needs the clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from cutlayer.common.config import TlsFiles
from cutlayer.common.errors import CertificateError
from cutlayer.common.job import LABEL_PARTY

_URI = re.compile(r"spiffe://([^/]+)/(?:label-party|nonlabel-party/([^/]+))")
_RENEW = "get a new one with `cutlayer certs renew`"


@dataclass(frozen=True)
class Identity:
    """One party of one job; the label party's name is `label_party`."""

    job: str
    party: str

    @property
    def uri(self) -> str:
        """How a certificate names this party."""
        role = "label-party" if self.party == LABEL_PARTY else f"nonlabel-party/{self.party}"
        return f"spiffe://{self.job}/{role}"

    def __str__(self) -> str:
        who = "the label party" if self.party == LABEL_PARTY else f"party {self.party!r}"
        return f"{who} of job {self.job!r}"


def identity_in(uris: list[str]) -> Identity | None:
    """The party that a certificate with these URIs is for; None unless it is exactly one."""
    found = [match for uri in uris if (match := _URI.fullmatch(uri))]
    if len(uris) != 1 or not found:
        return None
    job, name = found[0].groups()
    return Identity(job, name or LABEL_PARTY)


def identity_of(certificate: x509.Certificate) -> Identity | None:
    """The party that `certificate` is for; None where it is for none, or for several."""
    names = alternative_names(certificate)
    return identity_in(names.get_values_for_type(x509.UniformResourceIdentifier) if names else [])


def alternative_names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    """The names in `certificate`: URIs, hosts and addresses; None where it has none."""
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


@dataclass(frozen=True)
class Credentials:
    """What a party needs to prove who it is, as PEM, and its certificate once more in readable form."""

    ca: bytes
    cert: bytes
    key: bytes = field(repr=False)
    certificate: x509.Certificate = field(repr=False)


def read_credentials(files: TlsFiles, owner: Identity) -> Credentials:
    """The contents of `files`, if they are in force and prove that this is `owner`.

    Raises:
        CertificateError: a file cannot be read or is no PEM, the key is another's, the certificate was not made by
            this CA, is not in force or is for another party; names the file and the remedy.
    """
    ca, cert, key = (_read(path) for path in (files.ca, files.cert, files.key))
    authorities, certificate = _certificates(ca, files.ca), _certificates(cert, files.cert)[0]
    if _public_key_of(key, files.key) != _public_bytes(certificate):
        raise CertificateError(f"{files.key}: this key does not belong to the certificate {files.cert}")
    if not any(_issued_by(certificate, authority) for authority in authorities):
        raise CertificateError(
            f"{files.cert}: was not made by the CA in {files.ca}; take all three files from one folder that "
            "`cutlayer certs issue` made"
        )
    for path, checked in ((files.cert, certificate), (files.ca, authorities[0])):
        if problem := out_of_force(checked):
            raise CertificateError(f"{path}: {problem}")
    if (found := identity_of(certificate)) != owner:
        raise CertificateError(f"{files.cert}: is for {found or 'no party'}, expected one for {owner}")
    return Credentials(ca, cert, key, certificate)


def read_certificate(path: Path) -> x509.Certificate:
    """The first certificate in the PEM file `path`; CertificateError where there is none."""
    return _certificates(_read(path), path)[0]


def out_of_force(certificate: x509.Certificate) -> str | None:
    """Why `certificate` does not hold now, and what to do; None where it holds."""
    if now() < certificate.not_valid_before_utc:
        begins = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        return f"is not yet valid: it begins at {begins}; wait, or set the clock, which says {now():%Y-%m-%d %H:%M}"
    if now() > certificate.not_valid_after_utc:
        return f"has expired on {certificate.not_valid_after_utc:%Y-%m-%d}; {_RENEW}"
    return None


def days_left(certificate: x509.Certificate) -> int:
    """Whole days until `certificate` expires; negative afterwards."""
    return (certificate.not_valid_after_utc - now()).days


def now() -> datetime:
    """The time of this machine, in UTC."""
    return datetime.now(UTC)  # noqa: TID251 - a certificate has dates


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path}: cannot be read ({error.strerror}); see docs/certificates.md") from error


def _certificates(data: bytes, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as error:
        found = "a private key" if b"PRIVATE KEY" in data else "something else"
        raise CertificateError(f"{path}: expected a certificate in PEM form, found {found}") from error


def _public_key_of(key: bytes, path: Path) -> bytes:
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{path}: expected a private key in PEM form, without a password") from error
    return private.public_key().public_bytes(*_PUBLIC)


def _public_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(*_PUBLIC)


_PUBLIC = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
