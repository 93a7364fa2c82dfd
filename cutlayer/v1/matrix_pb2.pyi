from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODING_UNSPECIFIED: _ClassVar[Encoding]
    ENCODING_FLOAT32: _ClassVar[Encoding]
    ENCODING_FLOAT16: _ClassVar[Encoding]
    ENCODING_BFLOAT16: _ClassVar[Encoding]
ENCODING_UNSPECIFIED: Encoding
ENCODING_FLOAT32: Encoding
ENCODING_FLOAT16: Encoding
ENCODING_BFLOAT16: Encoding

class Matrix(_message.Message):
    __slots__ = ("rows", "width", "encoding", "scale", "data", "offset")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    rows: int
    width: int
    encoding: Encoding
    scale: float
    data: bytes
    offset: int
    def __init__(self, rows: _Optional[int] = ..., width: _Optional[int] = ..., encoding: _Optional[_Union[Encoding, str]] = ..., scale: _Optional[float] = ..., data: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...
