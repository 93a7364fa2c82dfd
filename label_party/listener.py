"""The gRPC server around the label party's service: address, limits, health, reflection."""

from __future__ import annotations

import resource
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cutlayer.common.channel import server_options
from cutlayer.common.config import LabelPartySection
from cutlayer.common.errors import ConfigError
from cutlayer.common.job import Job
from cutlayer.common.tls import OwnCertificate, server_credentials
from cutlayer.label_party.door import Door
from cutlayer.label_party.server import LabelPartyServicer
from cutlayer.v1 import training_pb2, training_pb2_grpc

_CONNECTIONS = 1000  # at a time
_FILES = 256  # that the label party must still be able to open
SERVICE = training_pb2.DESCRIPTOR.services_by_name["LabelPartyService"].full_name


class Listener:
    """The gRPC server around the servicer, with health and reflection; plaintext where `own` is None.

    Raises:
        ConfigError: the address of `label_party.listen` cannot be bound.
    """

    def __init__(
        self,
        job: Job,
        section: LabelPartySection,
        listen: str,
        servicer: LabelPartyServicer,
        own: OwnCertificate | None,
    ) -> None:
        parties = len(job.parties)
        frame_bytes = max(job.limits(party).frame_bytes for party in job.parties)
        self._door = servicer.door
        self._health = health.HealthServicer()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(Door.threads(parties)),
            interceptors=[self._door],
            options=server_options(frame_bytes, section.timeouts, _room_for_connections()),
            maximum_concurrent_rpcs=Door.backlog(parties),
        )
        training_pb2_grpc.add_LabelPartyServiceServicer_to_server(servicer, self._server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        host = listen.rpartition(":")[0]
        try:
            self.address = f"{host}:{self._add_port(listen, own)}"
        except RuntimeError as error:
            raise ConfigError(
                f"label_party.listen: cannot listen on {listen}: the port is taken, or it is no address of this machine"
            ) from error
        self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        self._server.start()

    def _add_port(self, listen: str, own: OwnCertificate | None) -> int:
        if own is None:
            return self._server.add_insecure_port(listen)
        return self._server.add_secure_port(listen, server_credentials(own))

    def ready(self) -> None:
        """Tell health probes that parties are served."""
        self._set_health(health_pb2.HealthCheckResponse.SERVING)

    def stop(self) -> None:
        """End at once; the exchange has said goodbye before."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace=0).wait()
        self._door.close()

    def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus) -> None:
        for service in ("", SERVICE):
            self._health.set(service, status)


def _room_for_connections() -> int:
    """How many connections leave enough file descriptors for results and checkpoints."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CONNECTIONS + _FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return _CONNECTIONS if soft == resource.RLIM_INFINITY else min(_CONNECTIONS, max(soft - _FILES, soft // 4))
