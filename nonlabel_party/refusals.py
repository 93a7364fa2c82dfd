"""What the label party's refusals and goodbyes mean to this party: an error for a person, and an exit status."""

from __future__ import annotations

import grpc

from cutlayer.common.errors import CutlayerError, PeerError, RefusedError, ReplacedError
from cutlayer.common.wire import printable
from cutlayer.v1 import session_pb2

_ENDED = {
    session_pb2.REASON_FINISHED: "has finished before this party",
    session_pb2.REASON_STOPPED: "was stopped",
    session_pb2.REASON_PARTY_LOST: "ended the session: it lost party {party!r}",
}
_NOT_THIS_PARTY = grpc.StatusCode.PERMISSION_DENIED
_NOT_THIS_RUN = grpc.StatusCode.FAILED_PRECONDITION


def refusal(error: grpc.RpcError, party: str, when: str, *, greeted: bool = True) -> CutlayerError:
    """What it means that the label party has refused a call of `party`.

    Args:
        when: in words, for a person.
        greeted: whether the two had been in agreement before; where not, the user has something to correct.
    """
    code, words = error.code(), printable(error.details() or "no reason given")
    if code is grpc.StatusCode.ABORTED:
        return ReplacedError(
            f"another process has connected as party {party!r} and goes on in its place, after the last step that all "
            "parties have saved: no step is lost. This one ends; run a party in one place only"
        )
    if code is _NOT_THIS_PARTY or (code is _NOT_THIS_RUN and not greeted):
        return RefusedError(f"the label party refused party {party!r}: {words}")
    if code is grpc.StatusCode.NOT_FOUND:
        return PeerError(words)
    return PeerError(f"the label party refused {when}: {words}")


def ended(goodbye: session_pb2.Goodbye) -> PeerError:
    """What it means that the label party has said goodbye."""
    how = _ENDED.get(goodbye.reason, "has failed; its log says why")
    return PeerError(f"the label party {how.format(party=printable(goodbye.party, 64))}")
