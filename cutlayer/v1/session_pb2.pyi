from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_FINISHED: _ClassVar[Reason]
    REASON_STOPPED: _ClassVar[Reason]
    REASON_FAILED: _ClassVar[Reason]
    REASON_PARTY_LOST: _ClassVar[Reason]
    REASON_ROLLBACK: _ClassVar[Reason]
REASON_UNSPECIFIED: Reason
REASON_FINISHED: Reason
REASON_STOPPED: Reason
REASON_FAILED: Reason
REASON_PARTY_LOST: Reason
REASON_ROLLBACK: Reason

class Hello(_message.Message):
    __slots__ = ("protocol_major", "protocol_minor", "package_version", "party", "job_digest", "cut_width", "rows", "applied_step", "history", "durable_steps", "job_keys", "process", "call", "run")
    PROTOCOL_MAJOR_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MINOR_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    JOB_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CUT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_STEP_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    DURABLE_STEPS_FIELD_NUMBER: _ClassVar[int]
    JOB_KEYS_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    protocol_major: int
    protocol_minor: int
    package_version: str
    party: str
    job_digest: bytes
    cut_width: int
    rows: RowSet
    applied_step: int
    history: bytes
    durable_steps: _containers.RepeatedScalarFieldContainer[int]
    job_keys: JobKeys
    process: bytes
    call: int
    run: bytes
    def __init__(self, protocol_major: _Optional[int] = ..., protocol_minor: _Optional[int] = ..., package_version: _Optional[str] = ..., party: _Optional[str] = ..., job_digest: _Optional[bytes] = ..., cut_width: _Optional[int] = ..., rows: _Optional[_Union[RowSet, _Mapping]] = ..., applied_step: _Optional[int] = ..., history: _Optional[bytes] = ..., durable_steps: _Optional[_Iterable[int]] = ..., job_keys: _Optional[_Union[JobKeys, _Mapping]] = ..., process: _Optional[bytes] = ..., call: _Optional[int] = ..., run: _Optional[bytes] = ...) -> None: ...

class JobKeys(_message.Message):
    __slots__ = ("secret_check", "digests")
    class DigestsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    SECRET_CHECK_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    secret_check: bytes
    digests: _containers.ScalarMap[str, bytes]
    def __init__(self, secret_check: _Optional[bytes] = ..., digests: _Optional[_Mapping[str, bytes]] = ...) -> None: ...

class RowSet(_message.Message):
    __slots__ = ("count", "digest")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    count: int
    digest: bytes
    def __init__(self, count: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol_major", "protocol_minor", "package_version", "next_step")
    PROTOCOL_MAJOR_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MINOR_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_VERSION_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    protocol_major: int
    protocol_minor: int
    package_version: str
    next_step: int
    def __init__(self, protocol_major: _Optional[int] = ..., protocol_minor: _Optional[int] = ..., package_version: _Optional[str] = ..., next_step: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason", "party")
    REASON_FIELD_NUMBER: _ClassVar[int]
    PARTY_FIELD_NUMBER: _ClassVar[int]
    reason: Reason
    party: str
    def __init__(self, reason: _Optional[_Union[Reason, str]] = ..., party: _Optional[str] = ...) -> None: ...
