"""Why a connection to the label party fails: gRPC says only UNAVAILABLE, a handshake of our own says more."""

from __future__ import annotations

import socket
import ssl
import time

from cryptography import x509

from cutlayer.common.certificates import Identity, identity_of, now, out_of_force
from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.tls import OwnCertificate, host_and_port, host_of

_TIMEOUT_S = 3.0
_ATTEMPTS = 3  # a connection that closes may be a label party that just ends; three in a row are a refusal
_PAUSE_S = 0.3

# X509_V_ERR_* of OpenSSL, as in SSLCertVerificationError.verify_code.
_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_CA = frozenset({2, 7, 18, 19, 20, 21, 24, 30})
_OTHER_PURPOSE = 26
_OTHER_NAME = frozenset({62, 64})


def examine(address: str, own: OwnCertificate | None) -> str | None:
    """What is wrong with TLS between this party and the label party at `address`, and what to do.

    None where nothing is, and where it cannot be told: nobody listens, or the network broke.

    Args:
        own: this party's certificate; None where it speaks plaintext.
    """
    if own is None:
        return _expects_tls(address)
    if problem := out_of_force(own.current().certificate):
        return f"{own.files.cert}: {problem}"
    for attempt in range(_ATTEMPTS):
        time.sleep(_PAUSE_S * min(attempt, 1))
        try:
            return _handshake(address, own)
        except _Refused:
            continue
        except (OSError, OverflowError):  # of the network: refused, unreachable, no such port
            return None
    return _refusal(address, own)


class _Refused(Exception):
    """The other side does not want this party's certificate."""


def _handshake(address: str, own: OwnCertificate) -> str | None:
    """What is wrong with one handshake, done as gRPC does it, up to the first bytes from the other side."""
    try:
        line = socket.create_connection(host_and_port(address), _TIMEOUT_S)
        with line, _context(own).wrap_socket(line, server_hostname=host_of(address)) as tls:
            if not tls.recv(1):  # with TLS 1.3 a server refuses a client's certificate only after the handshake
                raise _Refused
            return _other_role(tls, own.owner)
    except ssl.SSLCertVerificationError as error:
        return _unverified(error, address, own)
    except ssl.SSLError as error:
        return _failed(error, address)


def _context(own: OwnCertificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=own.current().ca.decode("ascii", "ignore"))
    context.load_cert_chain(own.files.cert, own.files.key)
    context.set_alpn_protocols(["h2"])
    return context


def _other_role(tls: ssl.SSLSocket, owner: Identity) -> str | None:
    presented = tls.getpeercert(binary_form=True)
    found = identity_of(x509.load_der_x509_certificate(presented)) if presented else None
    expected = Identity(owner.job, LABEL_PARTY)
    return None if found == expected else f"the certificate there is for {found or 'no party'}, not for {expected}"


def _unverified(error: ssl.SSLCertVerificationError, address: str, own: OwnCertificate) -> str:
    code, who = error.verify_code, f"the certificate of the label party at {address}"
    if code == _EXPIRED:
        return f"{who} has expired (it is {now():%Y-%m-%d} here); its owner renews it with `cutlayer certs renew`"
    if code == _NOT_YET_VALID:
        return f"{who} is not yet valid (it is {now():%Y-%m-%d %H:%M} UTC here); compare the clocks of both hosts"
    if code in _OTHER_CA:
        return f"{who} was not made by the CA in {own.files.ca}; both parties need certificates from one CA"
    if code in _OTHER_NAME:
        return (
            f"{who} is not for the name {host_of(address)!r}; connect by a name that is in it, or renew it: "
            f"`cutlayer certs renew DIR label_party --host {host_of(address)}`"
        )
    if code == _OTHER_PURPOSE:
        return f"{who} is not a label party's; issue one for label_party"
    return f"{who} is refused: {error.verify_message}"


def _failed(error: ssl.SSLError, address: str) -> str | None:
    reason = error.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return f"who listens at {address} does not speak TLS; give the label party's section a `tls`"
    if "ALERT" in reason:
        raise _Refused
    return None


def _refusal(address: str, own: OwnCertificate) -> str:
    certificate = own.current().certificate
    return (
        f"the label party at {address} refuses the certificate {own.files.cert} (valid "
        f"{certificate.not_valid_before_utc:%Y-%m-%d} to {certificate.not_valid_after_utc:%Y-%m-%d}, made by "
        f"{certificate.issuer.rfc4514_string()}): it has another CA or another clock; its own output says which"
    )


def _expects_tls(address: str) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent; only whether it answers
    context.set_alpn_protocols(["h2"])
    try:
        with socket.create_connection(host_and_port(address), _TIMEOUT_S) as line, context.wrap_socket(line):
            return f"the label party at {address} speaks TLS and this party does not; give this party's section a `tls`"
    except (OSError, OverflowError):
        return None
