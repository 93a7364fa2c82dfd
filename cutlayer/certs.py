"""A small private CA for one job: a folder for each party, with its certificate, its key and the CA's certificate.

DIR/ca/cert.pem, key.pem                 whoever has this key can be any party; keep it off the parties' hosts
DIR/<party>/cert.pem, key.pem, ca.pem    goes to that party, and to nobody else
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from pydantic import TypeAdapter, ValidationError

from cutlayer.common.certificates import (
    Identity,
    alternative_names,
    days_left,
    identity_of,
    now,
    out_of_force,
    read_certificate,
)
from cutlayer.common.errors import CertificateError, UserError
from cutlayer.common.fields import JobName, PartyName
from cutlayer.common.files import private_folder, write_atomically
from cutlayer.common.job import LABEL_PARTY

CA_DAYS = 3650
DAYS = 365
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")

_CA = "ca"
_CLOCKS_DIFFER = timedelta(hours=1)
_TRUST_DOMAIN = "spiffe://"


def init(folder: Path, job: str, days: int = CA_DAYS) -> None:
    """Make the CA of `job` in `folder`.

    Raises:
        UserError: there is one already, or no job can have this name.
    """
    _require_name(JobName, job, "--job")
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named(f"Cutlayer CA of {job}")
    builder = _builder(name, name, key, now() - _CLOCKS_DIFFER, now() + timedelta(days=days))
    usage = _key_usage(sign_certificates=True)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    names = [x509.UniformResourceIdentifier(_TRUST_DOMAIN + job)]
    certificate = builder.add_extension(x509.SubjectAlternativeName(names), critical=False).sign(key, hashes.SHA256())
    _write(_new_folder(folder / _CA), certificate, key)


def issue(
    folder: Path,
    parties: Sequence[str],
    hosts: Sequence[str] = (),
    days: int = DAYS,
    begins: datetime | None = None,
) -> None:
    """Make the folders of `parties`, names or `label_party`, inside the CA's `folder`.

    Args:
        hosts: DNS names and IP addresses at which the others reach the label party, besides the local ones.
        begins: from when the certificates hold; by default from now.

    Raises:
        UserError: there is no CA, a folder exists already, a name is impossible, or hosts are given for no label party.
    """
    ca = _Authority(folder)
    if hosts and LABEL_PARTY not in parties:
        raise UserError(f"--host names where the label party is reached: give it where you issue for {LABEL_PARTY}")
    for party in parties:
        _require_party(party)
        if (folder / party).exists():
            raise UserError(
                f"{folder / party}: exists already, and nothing is overwritten; for a new certificate write "
                f"`cutlayer certs renew {folder} {party}`, or remove the folder"
            )
    for party in parties:
        names = _host_names([*LOCAL_HOSTS, *hosts]) if party == LABEL_PARTY else []
        certificate, key = ca.certify(party, names, days, begins or now())
        target = _new_folder(folder / party)
        _write(target, certificate, key)
        write_atomically(target / "ca.pem", _pem(ca.certificate))


def renew(folder: Path, party: str, hosts: Sequence[str] = (), days: int = DAYS) -> None:
    """Give `party` a new key, and a certificate for the same names; processes that run take both up by themselves.

    Args:
        hosts: at which the label party is reached, as of `issue`, besides those in the old certificate.

    Raises:
        UserError: there is no CA, no certificate of `party` to go by, or hosts are given for a non-label party.
    """
    _require_party(party)
    if hosts and party != LABEL_PARTY:
        raise UserError(f"--host names where the label party is reached: give it where you renew {LABEL_PARTY}")
    ca, target = _Authority(folder), folder / party
    if not (target / "cert.pem").exists():
        raise UserError(f"{target}: has no certificate to renew; write `cutlayer certs issue {folder} {party}`")
    names = alternative_names(read_certificate(target / "cert.pem")) or ()
    kept = [name for name in names if not isinstance(name, x509.UniformResourceIdentifier)]
    added = [name for name in _host_names(hosts) if name not in kept]
    certificate, key = ca.certify(party, [*kept, *added], days, now())
    write_atomically(target / "ca.pem", _pem(ca.certificate))
    _write(target, certificate, key)


def show(path: Path) -> str:
    """What the certificate in `path` says, in words.

    Raises:
        CertificateError: there is no certificate in it.
    """
    certificate = read_certificate(path)
    names = alternative_names(certificate) or ()
    lines = [
        f"{path}",
        f"  subject  {_common_name(certificate.subject)}",
        f"  role     {_role(certificate)}",
        f"  names    {', '.join(str(name.value) for name in names) or 'none'}",
        f"  issuer   {_common_name(certificate.issuer)}",
        f"  holds    {certificate.not_valid_before_utc:%Y-%m-%d} to {_end(certificate)}",
    ]
    return "\n".join(lines)


class _Authority:
    """The CA in `folder`, ready to sign."""

    def __init__(self, folder: Path) -> None:
        place = folder / _CA
        if not (place / "cert.pem").exists():
            raise UserError(f"{place}: there is no CA; make one with `cutlayer certs init {folder} --job NAME`")
        self.certificate = read_certificate(place / "cert.pem")
        if problem := out_of_force(self.certificate):
            raise CertificateError(f"{place / 'cert.pem'}: {problem.partition(';')[0]}; make a new CA in a new folder")
        self._key = _read_key(place / "key.pem")
        self._job = _job_of(self.certificate, place)

    def certify(
        self, party: str, hosts: list[x509.GeneralName], days: int, begins: datetime
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        """A new key and its certificate, which does not outlive the CA's."""
        who, key = Identity(self._job, party), ec.generate_private_key(ec.SECP256R1())
        ends = min(begins + timedelta(days=days), self.certificate.not_valid_after_utc)
        builder = _builder(_named(party), self.certificate.subject, key, begins - _CLOCKS_DIFFER, ends)
        role = ExtendedKeyUsageOID.SERVER_AUTH if party == LABEL_PARTY else ExtendedKeyUsageOID.CLIENT_AUTH
        names = [x509.UniformResourceIdentifier(who.uri), *hosts]
        issuer = self.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([role]), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256()), key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    if ends <= begins:
        raise UserError("the certificate would end before it begins; give more --days")
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begins).not_valid_after(ends)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not sign_certificates,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ip_address(host.strip("[]"))))
        except ValueError:
            names.append(_dns_name(host))
    return names


def _dns_name(host: str) -> x509.DNSName:
    if not host or not host.isascii() or any(character in host for character in ":/ "):
        raise UserError(f"--host {host}: expected a name such as labels.example.org or an IP address, without a port")
    return x509.DNSName(host)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])  # 64 is the standard's limit


def _common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else name.rfc4514_string()


def _require_party(party: str) -> None:
    _require_name(PartyName, party, "PARTY")
    if party == _CA:
        raise UserError(f"{party}: that folder is the CA's own; a party of this name cannot have a folder beside it")


def _require_name(kind: Any, name: str, where: str) -> None:
    try:
        TypeAdapter(kind).validate_python(name)
    except ValidationError as error:
        raise UserError(f"{where} {name}: a name has letters, digits, `_`, `.`, `-`, as in the run file") from error


def _new_folder(path: Path) -> Path:
    if path.exists():
        raise UserError(f"{path}: exists already, and nothing is overwritten; take another folder, or remove it")
    return private_folder(path)


def _write(folder: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    write_atomically(folder / "key.pem", key.private_bytes(encoding, form, serialization.NoEncryption()), mode=0o600)
    write_atomically(folder / "cert.pem", _pem(certificate))


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise CertificateError(f"{path}: the CA's private key cannot be read; run this where the CA is kept") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path}: is not a key that `cutlayer certs init` made")
    return key


def _trust_domain(certificate: x509.Certificate) -> str | None:
    names = alternative_names(certificate)
    uris = names.get_values_for_type(x509.UniformResourceIdentifier) if names else []
    jobs = [uri.removeprefix(_TRUST_DOMAIN) for uri in uris if uri.startswith(_TRUST_DOMAIN)]
    return jobs[0] if len(jobs) == 1 and "/" not in jobs[0] else None


def _job_of(certificate: x509.Certificate, place: Path) -> str:
    if (job := _trust_domain(certificate)) is None:
        raise CertificateError(f"{place / 'cert.pem'}: names no job; it is not one that `cutlayer certs init` made")
    return job


def _role(certificate: x509.Certificate) -> str:
    if (identity := identity_of(certificate)) is not None:
        return str(identity)
    job = _trust_domain(certificate)
    return "none that Cutlayer knows" if job is None else f"the CA of job {job!r}"


def _end(certificate: x509.Certificate) -> str:
    days, end = days_left(certificate), f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    if days < 0:
        return f"{end}: expired"
    problem = out_of_force(certificate)
    return f"{end}: {'not yet valid' if problem else f'expires in {days} days'}"
