"""Small messages of the wire <-> plain values: a greeting, a form of ids, a peer's words."""

from __future__ import annotations

from cutlayer.common.alignment import IdForm
from cutlayer.common.errors import FrameError
from cutlayer.common.handshake import Greeting
from cutlayer.common.job_keys import JobKeys
from cutlayer.common.limits import MAX_DURABLE_STEPS
from cutlayer.v1 import session_pb2

_REQUIRED = ("protocol_major", "protocol_minor", "cut_width")


def hello_of(greeting: Greeting) -> session_pb2.Hello:
    """The message that says what `greeting` says."""
    hello = session_pb2.Hello(
        protocol_major=greeting.protocol[0],
        protocol_minor=greeting.protocol[1],
        package_version=greeting.package_version,
        party=greeting.party,
        job_digest=greeting.job_digest,
        cut_width=greeting.cut_width,
        durable_steps=greeting.durable_steps,
        run=greeting.run,
    )
    if greeting.process:
        hello.process = greeting.process
        hello.call = greeting.call
    if greeting.job_keys is not None:
        hello.job_keys.secret_check = greeting.job_keys.check
        hello.job_keys.digests.update(greeting.job_keys.digests)
    if greeting.rows_count is not None and greeting.rows_digest is not None:
        hello.rows.count = greeting.rows_count
        hello.rows.digest = greeting.rows_digest
        hello.applied_step = greeting.applied_step
        hello.history = greeting.history
    return hello


def greeting_of(hello: session_pb2.Hello) -> Greeting:
    """What a received Hello says.

    Raises:
        FrameError: a required field is missing, or a field is too long.
    """
    for name in _REQUIRED:
        if not hello.HasField(name):
            raise FrameError(f"Hello without {name}")
    if len(hello.durable_steps) > MAX_DURABLE_STEPS:
        raise FrameError(f"Hello names {len(hello.durable_steps)} checkpoints, expected at most {MAX_DURABLE_STEPS}")
    aligned = hello.HasField("rows")
    if aligned and not hello.HasField("applied_step"):
        raise FrameError("Hello with rows but without applied_step")
    return Greeting(
        protocol=(hello.protocol_major, hello.protocol_minor),
        package_version=hello.package_version[:64],
        party=hello.party,
        job_digest=hello.job_digest,
        cut_width=hello.cut_width,
        rows_count=hello.rows.count if aligned else None,
        rows_digest=hello.rows.digest if aligned else None,
        applied_step=hello.applied_step,
        history=hello.history,
        durable_steps=tuple(hello.durable_steps),
        job_keys=_job_keys(hello.job_keys) if hello.HasField("job_keys") else None,
        process=hello.process,
        call=hello.call,
        run=hello.run,
    )


def _job_keys(keys: session_pb2.JobKeys) -> JobKeys:
    return JobKeys.received(keys.secret_check, keys.digests)


def form_name(form: IdForm) -> str:
    """The protocol's name of a form of ids."""
    return f"ID_FORM_{form.name}"


def form_of(number: int) -> IdForm:
    """A received form of ids; one that this version does not know is text."""
    return IdForm(number) if number in set(IdForm) else IdForm.TEXT


def printable(text: str, length: int = 500) -> str:
    """A peer's words as they may be shown: cut, and without what moves a terminal's cursor or begins a line."""
    return "".join(char if char.isprintable() else "?" for char in text[:length])
