from cutlayer.v1 import matrix_pb2 as _matrix_pb2
from cutlayer.v1 import session_pb2 as _session_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class IdForm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ID_FORM_UNSPECIFIED: _ClassVar[IdForm]
    ID_FORM_INTEGER: _ClassVar[IdForm]
    ID_FORM_DECIMAL: _ClassVar[IdForm]
    ID_FORM_TEXT: _ClassVar[IdForm]
ID_FORM_UNSPECIFIED: IdForm
ID_FORM_INTEGER: IdForm
ID_FORM_DECIMAL: IdForm
ID_FORM_TEXT: IdForm

class AlignRowsRequest(_message.Message):
    __slots__ = ("hello", "ids")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    hello: _session_pb2.Hello
    ids: IdDigests
    def __init__(self, hello: _Optional[_Union[_session_pb2.Hello, _Mapping]] = ..., ids: _Optional[_Union[IdDigests, _Mapping]] = ...) -> None: ...

class IdDigests(_message.Message):
    __slots__ = ("total", "digests", "secret_check", "form")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    SECRET_CHECK_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    total: int
    digests: bytes
    secret_check: bytes
    form: IdForm
    def __init__(self, total: _Optional[int] = ..., digests: _Optional[bytes] = ..., secret_check: _Optional[bytes] = ..., form: _Optional[_Union[IdForm, str]] = ...) -> None: ...

class AlignRowsResponse(_message.Message):
    __slots__ = ("matched", "held_by_all", "form", "resume_step", "labelled_rows", "labels", "run")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    HELD_BY_ALL_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    RESUME_STEP_FIELD_NUMBER: _ClassVar[int]
    LABELLED_ROWS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    matched: int
    held_by_all: bytes
    form: IdForm
    resume_step: int
    labelled_rows: _containers.RepeatedScalarFieldContainer[int]
    labels: _containers.RepeatedScalarFieldContainer[int]
    run: bytes
    def __init__(self, matched: _Optional[int] = ..., held_by_all: _Optional[bytes] = ..., form: _Optional[_Union[IdForm, str]] = ..., resume_step: _Optional[int] = ..., labelled_rows: _Optional[_Iterable[int]] = ..., labels: _Optional[_Iterable[int]] = ..., run: _Optional[bytes] = ...) -> None: ...

class TrainRequest(_message.Message):
    __slots__ = ("hello", "activation")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    hello: _session_pb2.Hello
    activation: Activation
    def __init__(self, hello: _Optional[_Union[_session_pb2.Hello, _Mapping]] = ..., activation: _Optional[_Union[Activation, _Mapping]] = ...) -> None: ...

class TrainResponse(_message.Message):
    __slots__ = ("welcome", "answer", "goodbye")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    welcome: _session_pb2.Welcome
    answer: Answer
    goodbye: _session_pb2.Goodbye
    def __init__(self, welcome: _Optional[_Union[_session_pb2.Welcome, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., goodbye: _Optional[_Union[_session_pb2.Goodbye, _Mapping]] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("hello", "goodbye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    hello: _session_pb2.Hello
    goodbye: _session_pb2.Goodbye
    def __init__(self, hello: _Optional[_Union[_session_pb2.Hello, _Mapping]] = ..., goodbye: _Optional[_Union[_session_pb2.Goodbye, _Mapping]] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ("again",)
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    again: bool
    def __init__(self, again: bool = ...) -> None: ...

class Activation(_message.Message):
    __slots__ = ("step", "history", "rows_digest", "matrix")
    STEP_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    ROWS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MATRIX_FIELD_NUMBER: _ClassVar[int]
    step: int
    history: bytes
    rows_digest: bytes
    matrix: _matrix_pb2.Matrix
    def __init__(self, step: _Optional[int] = ..., history: _Optional[bytes] = ..., rows_digest: _Optional[bytes] = ..., matrix: _Optional[_Union[_matrix_pb2.Matrix, _Mapping]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("step", "history", "gradient", "knowledge", "metrics", "checkpoint")
    STEP_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    KNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    step: int
    history: bytes
    gradient: _matrix_pb2.Matrix
    knowledge: Knowledge
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    checkpoint: bool
    def __init__(self, step: _Optional[int] = ..., history: _Optional[bytes] = ..., gradient: _Optional[_Union[_matrix_pb2.Matrix, _Mapping]] = ..., knowledge: _Optional[_Union[Knowledge, _Mapping]] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ..., checkpoint: bool = ...) -> None: ...

class Knowledge(_message.Message):
    __slots__ = ("positive_row", "clean_gradient")
    POSITIVE_ROW_FIELD_NUMBER: _ClassVar[int]
    CLEAN_GRADIENT_FIELD_NUMBER: _ClassVar[int]
    positive_row: int
    clean_gradient: bytes
    def __init__(self, positive_row: _Optional[int] = ..., clean_gradient: _Optional[bytes] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
