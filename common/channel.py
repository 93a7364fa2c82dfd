"""gRPC channel and server options in one place, and what a broken connection means.

Unknown option names are ignored by gRPC without a word, so tests check these by what they do.
"""

from __future__ import annotations

import grpc

from cutlayer.common.limits import Timeouts

ALIGN_CHUNK_BYTES = 1 << 20
_FIELDS_BYTES = 4096
_Options = list[tuple[str, int]]

# The connection broke or the other side's process ended: worth another attempt.
BROKEN = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN})


def max_message_bytes(frame_bytes: int) -> int:
    """Largest message on a link: a frame of the job, or a chunk of id digests."""
    return max(frame_bytes, ALIGN_CHUNK_BYTES + _FIELDS_BYTES)


def client_options(frame_bytes: int, timeouts: Timeouts) -> _Options:
    """Options of the channel to the label party."""
    return [
        *_both_sides(frame_bytes, timeouts),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.enable_retries", 0),  # a stream is never retried for us; the session decides what is sent again
    ]


def server_options(frame_bytes: int, timeouts: Timeouts) -> _Options:
    """Options of the label party's server."""
    return [
        *_both_sides(frame_bytes, timeouts),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.so_reuseport", 0),  # two servers on one port would share the clients between them
    ]


def _both_sides(frame_bytes: int, timeouts: Timeouts) -> _Options:
    keepalive_ms = int(timeouts.keepalive_s * 1000)
    size = max_message_bytes(frame_bytes)
    return [
        ("grpc.max_receive_message_length", size),
        ("grpc.max_send_message_length", size),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        ("grpc.http2.ping_timeout_ms", keepalive_ms),  # without it a frozen peer is noticed after a minute
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
