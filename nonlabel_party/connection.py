"""The channel to the label party: opened, awaited, and opened anew where its certificate may have been renewed."""

from __future__ import annotations

import time
from collections.abc import Callable

import grpc

from cutlayer.common.channel import client_options
from cutlayer.common.errors import CertificateError, PeerError
from cutlayer.common.limits import Timeouts
from cutlayer.common.tls import OwnCertificate, channel_credentials
from cutlayer.common.tls_probe import examine
from cutlayer.v1 import training_pb2_grpc

_REPORT_EVERY_S = 5.0


class Connection:
    """A channel to the label party at `address`, host:port; plaintext where `own` is None.

    Args:
        frame_bytes: the largest frame of the link.
        report: told in words when this party has to wait.
    """

    def __init__(
        self,
        address: str,
        frame_bytes: int,
        timeouts: Timeouts,
        own: OwnCertificate | None,
        report: Callable[[str], None],
    ) -> None:
        self.address = address
        self._options = client_options(frame_bytes, timeouts)
        self._own = own
        self._report = report
        self._open()

    def await_label_party(self, patience_s: float) -> None:
        """Wait until the label party is there and has proved who it is.

        Raises:
            CertificateError: TLS between the two cannot work; says why and what to do.
            PeerError: nobody is there within `patience_s`.
        """
        deadline = time.monotonic() + patience_s
        ready = grpc.channel_ready_future(self._channel)
        while not self._is_ready(ready):
            if time.monotonic() > deadline:
                raise PeerError(
                    f"no label party at {self.address} within {patience_s:g} s: "
                    "is it running, is the address of `connect` right, is the port open?"
                )
            self._report(f"waiting for the label party at {self.address}")
        if self._own is not None:
            self._examine()  # gRPC has verified the certificate and its host, but not whose it is

    def _is_ready(self, ready: grpc.Future[None]) -> bool:
        """Wait until it is, but no longer than a person wants to wait for a word."""
        patience = [_REPORT_EVERY_S] if self._own is None else [1.0, _REPORT_EVERY_S - 1.0]
        for seconds in patience:
            try:
                ready.result(timeout=seconds)
                return True
            except grpc.FutureTimeoutError:
                self._examine()
        return False

    def after_break(self) -> None:
        """Open the channel anew, with the certificate as it is now; plaintext channels mend themselves.

        Raises:
            CertificateError: TLS between the two cannot work any more.
        """
        if self._own is not None:
            self._examine()
            self._channel.close()
            self._open()

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def _open(self) -> None:
        options = self._options
        if self._own is None:
            self._channel = grpc.insecure_channel(self.address, options=options)
        else:
            self._channel = grpc.secure_channel(self.address, channel_credentials(self._own), options=options)
        self.stub = training_pb2_grpc.LabelPartyServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def _examine(self) -> None:
        if problem := examine(self.address, self._own):
            raise CertificateError(problem)
