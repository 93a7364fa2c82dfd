"""The line to the label party through all its breaks: streams are opened on it, and when one breaks it is mended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc

from cutlayer.common.channel import is_broken
from cutlayer.common.errors import CertificateError, PeerError
from cutlayer.common.limits import Timeouts
from cutlayer.common.process import end_requested
from cutlayer.common.telemetry import Telemetry
from cutlayer.common.tls import OwnCertificate
from cutlayer.nonlabel_party.absence import Absence
from cutlayer.nonlabel_party.connection import Connection
from cutlayer.nonlabel_party.refusals import refusal
from cutlayer.nonlabel_party.stream import Stream
from cutlayer.nonlabel_party.watchdog import Watchdog


class Line:
    """What carries the calls of `party` to the label party at `address`, host:port.

    Args:
        frame_bytes: the largest frame.
        telemetry: told when this party has to wait, and what crosses the wire.
        own: this party's certificate; None for plaintext.

    Attributes:
        absence: whether the label party is away.
    """

    def __init__(
        self,
        party: str,
        address: str,
        frame_bytes: int,
        timeouts: Timeouts,
        telemetry: Telemetry,
        own: OwnCertificate | None,
    ) -> None:
        self._party = party
        self._timeouts = timeouts
        self._metrics = telemetry.prometheus
        self._connection = Connection(address, frame_bytes, timeouts, own, telemetry.waiting, telemetry.warning)
        self._watchdog = Watchdog(end_requested, timeouts.goodbye_s, telemetry.waiting)
        self.absence = Absence(address, timeouts.reconnect_s, telemetry)

    @property
    def stub(self) -> Any:
        """The label party's methods on the connection that there is now."""
        return self._connection.stub

    def await_label_party(self, patience_s: float) -> None:
        """As `Connection.await_label_party`."""
        self._connection.await_label_party(patience_s)

    def patience_s(self, for_label_party_s: float) -> float:
        """How long to wait for an answer: the label party itself may have to wait for a party that was lost."""
        return for_label_party_s + self._timeouts.reconnect_s + self._timeouts.goodbye_s

    def stream(self, method: Callable[..., Any], for_label_party_s: float, when: str) -> Stream:
        """Open a call of `method`; `when` says in words where in the run this party is."""
        return Stream(method, self._watchdog, self.patience_s(for_label_party_s), self._metrics, when)

    def mend(self, error: grpc.RpcError, broken: Stream, deadline: float, *, greeted: bool) -> None:
        """A stream broke: return when there is a connection on which to try again.

        Args:
            error: what it broke with.
            deadline: no new attempt after that, by the monotonic clock.
            greeted: whether the two parties had been in agreement before.

        Raises:
            PeerError: the label party is away for too long, or refused. RefusedError: it does not admit this party.
            CertificateError: TLS did not work again in time.
        """
        broken.end()
        if not is_broken(error):
            raise refusal(error, self._party, broken.when, greeted=greeted) from None
        pause_s = self._pause(broken, deadline)
        while not self._connection.after_break():
            time.sleep(pause_s)
            pause_s = self._pause(broken, deadline)
        time.sleep(pause_s)

    def close(self) -> None:
        """End the connection."""
        self._watchdog.close()
        self._connection.close()

    def _pause(self, broken: Stream, deadline: float) -> float:
        if end_requested():
            raise PeerError(f"the label party was lost {broken.when}") from None
        if time.monotonic() > deadline:
            raise PeerError(f"the label party answered nothing {broken.when}: the line broke again and again") from None
        try:
            return self.absence.lost(broken.when, broken.opened)
        except PeerError:
            if self._connection.trouble:
                raise CertificateError(self._connection.trouble) from None
            raise
