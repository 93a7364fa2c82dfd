"""gRPC channel and server options in one place, and what a broken connection means.

Unknown option names are ignored by gRPC without a word, so tests check these by what they do.
"""

from __future__ import annotations

import grpc

from cutlayer.common.limits import Timeouts

ALIGN_CHUNK_BYTES = 1 << 18
HANDSHAKE_S = 5.0  # from a new connection to the first bytes of HTTP/2
IDLE_S = 15.0  # a connection may be without a call
STREAMS_OF_A_CONNECTION = 16
_FIELDS_BYTES = 4096
_ATTEMPT_MS = 10_000  # to connect: a few round trips, for TCP, TLS and HTTP/2
_SLOWEST_BYTES_PER_S = 1 << 17  # of a line that still counts as alive
_Options = list[tuple[str, int]]

_BROKEN = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN})
_BUSY = "Concurrent RPC limit exceeded"  # gRPC's words where the server has too many calls at this moment


def is_broken(error: grpc.RpcError) -> bool:
    """Whether another attempt may succeed: the connection broke, the process there has ended, or it is busy."""
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return _BUSY in (error.details() or "")
    return error.code() in _BROKEN


def max_message_bytes(frame_bytes: int) -> int:
    """Largest message on a link: a frame of the job, or a chunk of id digests."""
    return max(frame_bytes, ALIGN_CHUNK_BYTES + _FIELDS_BYTES)


def client_options(frame_bytes: int, timeouts: Timeouts) -> _Options:
    """Options of the channel to the label party."""
    return [
        *_both_sides(frame_bytes, timeouts),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", _ATTEMPT_MS),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.dns_min_time_between_resolutions_ms", 1000),  # a label party may come back at another address
        ("grpc.use_local_subchannel_pool", 1),  # a new channel must not wait for the pause of the one before
        ("grpc.enable_retries", 0),  # a stream is never retried for us; the session decides what is sent again
    ]


def server_options(frame_bytes: int, timeouts: Timeouts, connections: int) -> _Options:
    """Options of the label party's server, which has no more than `connections` at a time."""
    return [
        *_both_sides(frame_bytes, timeouts),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        # Who connects and stays silent, or opens no call, must not take what the true parties need.
        ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_S * 1000)),
        ("grpc.max_connection_idle_ms", int(IDLE_S * 1000)),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.max_concurrent_streams", STREAMS_OF_A_CONNECTION),
        ("grpc.so_reuseport", 0),  # two servers on one port would share the clients between them
    ]


def _both_sides(frame_bytes: int, timeouts: Timeouts) -> _Options:
    keepalive_ms = int(timeouts.keepalive_s * 1000)
    size = max_message_bytes(frame_bytes)
    return [
        ("grpc.max_receive_message_length", size),
        ("grpc.max_send_message_length", size),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", size),  # so that no more than a message is on the way before it is read
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        ("grpc.http2.ping_timeout_ms", keepalive_ms + _behind_a_frame_ms(frame_bytes)),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def _behind_a_frame_ms(frame_bytes: int) -> int:
    """How long a ping may take longer on a narrow line, where it stands in the queue behind a frame."""
    return 1000 * max_message_bytes(frame_bytes) // _SLOWEST_BYTES_PER_S
