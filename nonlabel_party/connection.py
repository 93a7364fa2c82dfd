"""The channel to the label party: opened, awaited, and opened anew where its certificate may have been renewed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import grpc

from cutlayer.common.channel import client_options
from cutlayer.common.errors import CertificateError, PeerError
from cutlayer.common.job import LABEL_PARTY
from cutlayer.common.limits import Timeouts
from cutlayer.common.tls import OwnCertificate, channel_credentials
from cutlayer.common.tls_probe import examine
from cutlayer.common.waiting import Wait
from cutlayer.v1 import training_pb2_grpc

_REPORT_EVERY_S = 5.0


class Connection:
    """A channel to the label party at `address`, host:port; plaintext where `own` is None.

    Args:
        frame_bytes: the largest frame of the link.
        report: told again and again that this party waits, and of nothing when it goes on.
        warn: told in words what a person should look into.

    Attributes:
        trouble: what keeps TLS from working just now.
    """

    def __init__(
        self,
        address: str,
        frame_bytes: int,
        timeouts: Timeouts,
        own: OwnCertificate | None,
        report: Callable[[Sequence[Wait]], None],
        warn: Callable[[str], None],
    ) -> None:
        self.address = address
        self._options = client_options(frame_bytes, timeouts)
        self._own = own
        self._report = report
        self._warn = warn
        self.trouble: str | None = None
        self._open()

    def await_label_party(self, patience_s: float) -> None:
        """Wait until the label party is there and has proved who it is.

        Raises:
            CertificateError: TLS between the two cannot work; says why and what to do.
            PeerError: nobody is there within `patience_s`.
        """
        wait = Wait(LABEL_PARTY, "not there yet", patience_s, name=f"the label party at {self.address}")
        while not self._is_ready(wait):
            if wait.left == 0:
                raise PeerError(
                    f"no label party at {self.address} within {patience_s:g} s: "
                    "is it running, is the address of `connect` right, is the port open?"
                )
            self._report((wait,))
        self._report(())
        if self._own is not None:
            self._examine()  # gRPC has verified the certificate and its host, but not whose it is

    def _is_ready(self, wait: Wait) -> bool:
        """Wait until it is, but no longer than a person wants to wait for a word."""
        patience = [_REPORT_EVERY_S] if self._own is None else [1.0, _REPORT_EVERY_S - 1.0]
        ready = grpc.channel_ready_future(self._channel)
        try:
            for seconds in patience:
                with suppress(grpc.FutureTimeoutError):
                    ready.result(timeout=min(seconds, wait.left))
                    return True
                self._examine()
        finally:
            ready.cancel()
        if self._own is not None and self._own.current() is not self._shown:  # it was renewed meanwhile
            self._open_anew()
        return False

    def after_break(self) -> bool:
        """Open the channel anew: it looks for the address again, and shows the certificate as it is now.

        Returns False where TLS between the two cannot work now. It is told of once, and may be mended in time.
        """
        if self._own is not None and (problem := examine(self.address, self._own)):
            if problem != self.trouble:
                self._warn(f"{problem}; trying again")
            self.trouble = problem
            return False
        self.trouble = None
        self._open_anew()
        return True

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def _open_anew(self) -> None:
        self._channel.close()
        self._open()

    def _open(self) -> None:
        options = self._options
        if self._own is None:
            self._channel = grpc.insecure_channel(self.address, options=options)
        else:
            self._shown = self._own.current()
            self._channel = grpc.secure_channel(self.address, channel_credentials(self._own), options=options)
        self.stub = training_pb2_grpc.LabelPartyServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def _examine(self) -> None:
        if problem := examine(self.address, self._own):
            raise CertificateError(problem)
