"""Who is at the other end of a stream: the name that a peer gives must be the one that its certificate proves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import grpc

from cutlayer.common.certificates import identity_in
from cutlayer.common.errors import NotAllowedError
from cutlayer.common.job import LABEL_PARTY

Admission = Callable[[grpc.ServicerContext, str], None]


def admit_anyone(context: grpc.ServicerContext, party: str) -> None:
    """Plaintext: a name is not proved by anything."""


def admit_by_certificate(job: str) -> Admission:
    """Admits a peer only as the party of `job` that its certificate is for.

    The certificate itself was verified in the handshake; its URI says whose it is.

    Raises (on admission):
        NotAllowedError: a certificate of no party, of another job or of another party.
    """

    def admit(context: grpc.ServicerContext, party: str) -> None:
        uris = cast(
            Iterable[bytes], context.auth_context().get("peer_uri", ())
        )  # typed as bytes, but is a list of them
        proved = identity_in([uri.decode(errors="replace") for uri in uris])
        if proved is None or proved.party == LABEL_PARTY:
            raise NotAllowedError("this certificate is not a non-label party's; use one of `cutlayer certs issue`")
        if proved.job != job:
            raise NotAllowedError(f"this certificate is for job {proved.job!r}, and this is job {job!r}")
        if proved.party != party:
            raise NotAllowedError(
                f"this certificate is party {proved.party!r}'s, the greeting says {party[:100]!r}: "
                "a party uses its own certificate, see `tls` in its section"
            )

    return admit
