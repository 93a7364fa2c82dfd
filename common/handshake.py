"""Who a peer is and whether it means the same run: compared before anything else is done with it.

Plain values only, so that the protocol can be tested without a network.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutlayer import __version__
from cutlayer.common.errors import FrameError, NotAllowedError, SkewError
from cutlayer.common.job_keys import JobKeys, differing_keys, named
from cutlayer.common.limits import RUN_BYTES

PROTOCOL = (1, 0)  # major, minor
DIGEST_BYTES = 32
PROCESS_BYTES = 16
TEXT_LENGTH = 100  # of names and versions


@dataclass(frozen=True)
class Terms:
    """What both sides of a link must mean.

    Attributes:
        party: name of the non-label party.
        job_digest: SHA-256 of the `job` section.
        cut_width: numbers per row of an activation.
        rows_count: number of aligned rows; None before they are aligned.
        rows_digest: SHA-256 over the aligned rows in order; None before they are aligned.
        job_keys: to name the keys that differ where the digests of the job do; None where that is not wanted.
    """

    party: str
    job_digest: bytes
    cut_width: int
    rows_count: int | None
    rows_digest: bytes | None
    job_keys: JobKeys | None = None


@dataclass(frozen=True)
class Greeting:
    """A Hello as plain values.

    Attributes:
        history: after `applied_step`.
        durable_steps: of which the sender holds checkpoints.
        process: random, of the process that says this; `call` counts its calls.
        run: names the run that the sender's folder is of; empty where it is of none yet.
    """

    protocol: tuple[int, int]
    package_version: str
    party: str
    job_digest: bytes
    cut_width: int
    rows_count: int | None
    rows_digest: bytes | None
    applied_step: int
    history: bytes
    durable_steps: tuple[int, ...] = ()
    job_keys: JobKeys | None = None
    process: bytes = b""
    call: int = 0
    run: bytes = b""


def check_terms(greeting: Greeting, terms: Terms) -> None:
    """Compare what a peer means with what this side means; its rows too where `terms` has rows.

    Raises:
        FrameError: a field is missing or malformed.
        NotAllowedError: the peer is not the party of this link.
        SkewError: another major protocol, job, cut width or set or order of rows; says which and what to do.
    """
    _check_form(greeting)
    check_protocol(greeting.protocol, f"party {greeting.party!r} (cutlayer {greeting.package_version})")
    if greeting.party != terms.party:
        raise NotAllowedError(f"party {greeting.party!r} may not use the link of party {terms.party!r}")
    if greeting.job_digest != terms.job_digest:
        raise SkewError(_difference_of_jobs(greeting, terms))
    if greeting.cut_width != terms.cut_width:
        raise SkewError(
            f"the cut widths differ: party {terms.party!r} has {greeting.cut_width} numbers a row, "
            f"the label party {terms.cut_width}; see `job.cut_layer`"
        )
    if terms.rows_digest is not None:
        _check_rows(greeting, terms)


def check_protocol(protocol: tuple[int, int], who: str) -> None:
    """SkewError unless `who` speaks the major protocol of this side; a newer minor one only adds."""
    major, minor = (whole_number("protocol version", number) for number in protocol)
    if major != PROTOCOL[0]:
        raise SkewError(
            f"{who} speaks protocol {major}.{minor}, this side {PROTOCOL[0]}.{PROTOCOL[1]}: "
            "install the same release of cutlayer on both sides"
        )


def difference_of_releases(who: str, version: str) -> str | None:
    """What to tell a person where `who` runs another release; the protocol decides whether they can work together."""
    if version == __version__:
        return None
    return f"{who} has cutlayer {version!r}, this side {__version__!r}; install the same release on both sides"


def _difference_of_jobs(greeting: Greeting, terms: Terms) -> str:
    ours, theirs = terms.job_keys, greeting.job_keys
    keys = differing_keys(ours, theirs) if ours and theirs else []
    if ours and theirs and ours.check != theirs.check:
        which = ", and so do the id secrets, so that the keys cannot be compared: set the same `id_secret` first"
    else:
        which = f" in {named(keys)}" if keys else ""
    peer = f"party {terms.party!r} (cutlayer {greeting.package_version})"  # another release may have other defaults
    return (
        f"the `job` sections differ{which}; make that section the same in the run files of the label party and {peer}"
    )


def _check_form(greeting: Greeting) -> None:
    _text("party", greeting.party)
    _text("package_version", greeting.package_version)
    digest_bytes("job_digest", greeting.job_digest)
    whole_number("cut_width", greeting.cut_width)
    if len(greeting.process) > PROCESS_BYTES:
        raise FrameError(f"process: expected {PROCESS_BYTES} bytes, got {len(greeting.process)}")
    if len(greeting.run) not in (0, RUN_BYTES):
        raise FrameError(f"run: expected {RUN_BYTES} bytes, got {len(greeting.run)}")
    if greeting.rows_count is not None or greeting.rows_digest is not None:
        whole_number("rows.count", greeting.rows_count)
        digest_bytes("rows.digest", greeting.rows_digest)


def _check_rows(greeting: Greeting, terms: Terms) -> None:
    if greeting.rows_digest is None:
        raise FrameError("Hello names no rows: the rows must be aligned first")
    if greeting.rows_count != terms.rows_count:
        raise SkewError(
            f"the aligned rows differ: party {terms.party!r} has {greeting.rows_count}, the label party "
            f"{terms.rows_count}; start all parties again, so that they align their rows anew"
        )
    if greeting.rows_digest != terms.rows_digest:
        raise SkewError(
            f"the aligned rows differ: both sides have {terms.rows_count}, but not the same ones or not in the "
            "same order; start all parties again, so that they align their rows anew"
        )


def whole_number(name: str, value: object) -> int:
    """The value of a field that must be a whole number from 0; FrameError otherwise."""
    if not isinstance(value, int) or value < 0:
        raise FrameError(f"{name}: expected a whole number, got {'nothing' if value is None else repr(value)[:50]}")
    return value


def digest_bytes(name: str, value: object) -> bytes:
    """The value of a field that must be a digest of 32 bytes; FrameError otherwise."""
    if not isinstance(value, bytes) or len(value) != DIGEST_BYTES:
        length = len(value) if isinstance(value, bytes) else "no"
        raise FrameError(f"{name}: expected {DIGEST_BYTES} bytes, got {length}")
    return value


def _text(name: str, value: object) -> None:
    if not isinstance(value, str) or len(value) > TEXT_LENGTH or not value.isprintable():
        raise FrameError(f"{name}: expected a text of at most {TEXT_LENGTH} characters that can be printed")
