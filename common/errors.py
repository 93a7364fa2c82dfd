"""The error tree: what each error means, how a process exits on it, and whether it may cross the wire.

    CutlayerError
    ├── UserError                 exit 2   the user's input is wrong; the message says where and what to write
    │   ├── ConfigError                    the run file
    │   ├── CertificateError               a certificate or key, our own or the other side's
    │   ├── RefusedError                   the label party does not admit this party: name, job, secret, folder
    │   ├── DataError                      a data file or a column of it
    │   └── PluginError                    a defense, attack, model or dataset: name or option
    ├── AlignmentError            exit 2   the parties' rows do not match
    ├── CheckpointError           exit 2   a run cannot go on from what its folder holds
    ├── ProtocolError             exit 1   what a peer sent is refused; these texts cross the wire
    │   ├── FrameError                     INVALID_ARGUMENT     malformed message
    │   ├── OrderError                     FAILED_PRECONDITION  not the step that is expected
    │   │   └── ExtraQueryError            FAILED_PRECONDITION  a second activation for a step
    │   ├── SkewError                      FAILED_PRECONDITION  other job, version, rows or history
    │   └── NotAllowedError                PERMISSION_DENIED    unknown party
    ├── PeerError                 exit 1   another party is gone, refused us or stopped
    │   └── ReplacedError                  another process goes on as this party
    ├── DefenseError              exit 1   a defense failed: nothing was sent
    ├── StorageError              exit 1   a file cannot be written: disk full, read-only, ...; also an OSError
    └── TrainingError             exit 1   training cannot go on (loss not finite, ...)

    Interrupted                   exit 130 (Ctrl-C) or 143 (SIGTERM); no Exception, so that no plugin catches it

An error whose class has `wire_status` may be sent to a peer as it is: its text depends only on what the
peer itself sent and on the job section, never on labels. Anything else crosses the wire as
`INTERNAL: see the label party's log`.
"""

from __future__ import annotations

import signal
from typing import ClassVar


class CutlayerError(Exception):
    """Root of all errors that Cutlayer raises on purpose; `str()` is a message for a person."""

    exit_code: ClassVar[int] = 1
    wire_status: ClassVar[str | None] = None  # name of a grpc.StatusCode


class UserError(CutlayerError):
    """The user's input is wrong."""

    exit_code = 2


class ConfigError(UserError):
    """The run file is wrong; the message names the file and the key, in a line for each of `problems`."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class CertificateError(UserError):
    """A certificate or a key is wrong, our own or the other side's; the message says how and what to do."""


class RefusedError(UserError):
    """The label party does not admit this party: another job, name, secret or folder. It waits for the right one."""


class DataError(UserError):
    """A data file or column is wrong; the message names it. No value of an id, label or feature is shown."""


class PluginError(UserError):
    """A defense, attack, model or dataset does not exist, or has no such option."""


class AlignmentError(CutlayerError):
    """The parties' rows do not match; the message has counts and the remedy, no id. Each side says it for itself."""

    exit_code = 2


class CheckpointError(CutlayerError):
    """A run cannot go on from what its folder holds; the message says what to do."""

    exit_code = 2


class ProtocolError(CutlayerError):
    """A message of a peer is refused."""

    wire_status = "INVALID_ARGUMENT"


class FrameError(ProtocolError):
    """A message is malformed: a missing field, a wrong length, a number that is not finite."""


class OrderError(ProtocolError):
    """A step comes that is not expected; the message names the one that is."""

    wire_status = "FAILED_PRECONDITION"


class ExtraQueryError(OrderError):
    """A second activation for a step, which would teach `party` more than one answer tells."""

    def __init__(self, message: str, party: str = "") -> None:
        super().__init__(message)
        self.party = party


class SkewError(ProtocolError):
    """The two sides do not mean the same run; the message names what differs."""

    wire_status = "FAILED_PRECONDITION"


class NotAllowedError(ProtocolError):
    """The peer is not a party of this job."""

    wire_status = "PERMISSION_DENIED"


class PeerError(CutlayerError):
    """Another party is lost, has stopped, or refused this one; the message names it, and `party` does."""

    def __init__(self, message: str, party: str = "") -> None:
        super().__init__(message)
        self.party = party


class ReplacedError(PeerError):
    """Another process goes on as this party."""


class DefenseError(CutlayerError):
    """A defense raised, or returned what must not be sent. Nothing was sent."""


class StorageError(CutlayerError, OSError):
    """A file cannot be written; the message names it and says what to do. What was there before is still whole.

    `strerror` is why, in the system's words.
    """

    def __init__(self, message: str, why: str = "") -> None:
        super().__init__(message)
        self.strerror = why


class TrainingError(CutlayerError):
    """Training cannot go on."""


def out_of_memory(error: BaseException) -> bool:
    """Whether `error` says that memory was refused, by Python or by torch, which has no class for it on a CPU."""
    refused = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in refused)
    )


def is_lasting(error: BaseException) -> bool:
    """Whether a process that ended by `error` would end so again if it were started at once."""
    return isinstance(error, CutlayerError | OSError) or out_of_memory(error)


class RolledBack(Exception):
    """No error of anybody's: a party that was lost has come back, and all begin again from a checkpoint."""


class Interrupted(BaseException):
    """A signal asked this process to end."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum

    @property
    def status(self) -> int:
        """The exit status a shell expects: 128 + signal number."""
        return 128 + self.signum
