"""Messages that are nearly right: every field absent, at its ends, wrong or twice; and bytes that are no message."""

from __future__ import annotations

import random
from collections.abc import Iterator, MutableMapping, MutableSequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

UNKNOWN = b"\xfa\x3f\x03abc" + b"\xf8\x3f\x01"  # fields 1023, length-delimited and a number
_INTEGERS = {Field.TYPE_UINT32: 32, Field.TYPE_UINT64: 64}
_FLOATS = (Field.TYPE_FLOAT, Field.TYPE_DOUBLE)


def variants(message: Message) -> Iterator[tuple[str, bytes]]:
    """Each field of `message`, at every depth, in every wrong way: what was changed, and the bytes."""
    for path, value in _changes(message):
        changed = type(message).FromString(message.SerializeToString())
        owner = changed
        for name in path[:-1]:
            owner = getattr(owner, name)
        _set(owner, path[-1], value)
        yield f"{'.'.join(path)}={str(value)[:20]}", changed.SerializeToString()


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The bytes of a message cut off, doubled, and with fields that nobody knows."""
    for length in sorted({*range(min(len(data), 40)), len(data) // 2, max(len(data) - 1, 0)}):
        yield f"first {length} bytes", data[:length]
    yield "twice", data + data
    yield "unknown fields after", data + UNKNOWN
    yield "unknown fields before", UNKNOWN + data


def mutated(message: Message, chance: random.Random) -> bytes:
    """Any of these at random, one on top of another, and flipped, cut and inserted bytes."""
    data = message.SerializeToString()
    if chance.random() < 0.5:
        paths = list(_changes(message))
        for path, value in chance.sample(paths, min(chance.choice((1, 1, 1, 2, 3)), len(paths))):
            message = type(message).FromString(data)
            _set(_owner(message, path), path[-1], value)
            data = message.SerializeToString()
    if chance.random() < 0.6:
        data = _with_noise(data, chance)
    return data


def reshaped(message: Message, chance: random.Random) -> bytes:
    """Other bytes that mean the same: fields that nobody knows, and all fields twice."""
    data = message.SerializeToString()
    extra = bytes([0xFA, 0x3F, 8]) + chance.randbytes(8)
    return chance.choice((data + extra, extra + data, extra + data + extra, data + data))


def _owner(message: Any, path: tuple[str, ...]) -> Any:
    for name in path[:-1]:
        message = getattr(message, name)
    return message


def _changes(message: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for field in message.DESCRIPTOR.fields:
        path = (*above, field.name)
        yield path, None
        if isinstance(getattr(message, field.name), MutableSequence | MutableMapping):
            yield path, "many"
        elif field.type == Field.TYPE_MESSAGE:
            if message.HasField(field.name):
                yield from _changes(getattr(message, field.name), path)
        else:
            yield from ((path, value) for value in _values(field, getattr(message, field.name)))


def _values(field: Field, now: Any) -> list[Any]:
    if field.type in _INTEGERS:
        largest = 2 ** _INTEGERS[field.type] - 1
        return [0, 1, largest // 2 + 1, largest, min(now + 1, largest)]
    if field.type in _FLOATS:
        return [0.0, -1.0, 3.0, float("nan"), float("inf"), 1e-45]
    if field.type == Field.TYPE_BYTES:
        return [b"", b"\0", now[:-1], now + b"\0", bytes(len(now)), now + now, now[::-1]]
    if field.type == Field.TYPE_STRING:
        return ["", "\x1b[2J\n", "x" * 5000, now + "\0", "\N{PILE OF POO}" * 100]
    if field.type == Field.TYPE_BOOL:
        return [not now]
    return [0, 1, 2, 77, 2**31 - 1, -1]  # an enum


def _set(owner: Any, name: str, value: Any) -> None:
    if value is None:
        owner.ClearField(name)
    elif value == "many":
        _multiply(owner, owner.DESCRIPTOR.fields_by_name[name])
    else:
        setattr(owner, name, value)


def _multiply(owner: Any, field: Field) -> None:
    several = getattr(owner, field.name)
    if field.type != Field.TYPE_MESSAGE:
        several.extend(range(5000))
    elif field.message_type.GetOptions().map_entry:
        several.update({f"job.{number}": bytes(16) for number in range(5000)})
    else:
        for number in range(5000):
            several.add(name=f"figure_{number}", value=1.0)


def _with_noise(data: bytes, chance: random.Random) -> bytes:
    kind, place = chance.randrange(6), chance.randrange(len(data) + 1)
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + chance.randbytes(chance.randrange(1, 9)) + data[place:]
    if kind == 2:
        return data + chance.choice((UNKNOWN, data[:place], data))
    if kind == 3:
        return chance.randbytes(chance.randrange(200))
    changed = bytearray(data or b"\0")
    for _ in range(chance.randrange(1, 4)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)
