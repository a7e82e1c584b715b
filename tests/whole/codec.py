"""Kafka's structs as bytes, by the schemas of aiokafka, each turned into nested functions once.

The bytes are aiokafka's own (a test compares them). Its code, which the product uses, asks the schema anew for each
number of each message: a broker that answers all of a simulation's members spent a tenth of the run in it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from io import BytesIO
from itertools import groupby
from typing import Any

from aiokafka.protocol.types import Array, Boolean, Bytes, Float64, Int8, Int16, Int32, Int64, Schema, String, UInt32

__all__ = ["decode", "encode"]

Write = Callable[[Any, list[bytes]], None]
"""Appends the bytes of a value."""
Read = Callable[[bytes, int], tuple[Any, int]]
"""Returns the value at an index, and the index behind it."""

_NUMBERS = {Boolean: "?", Int8: "b", Int16: "h", Int32: "i", Int64: "q", UInt32: "I", Float64: "d"}
_LENGTH, _SHORT_LENGTH = struct.Struct(">i"), struct.Struct(">h")


def encode(schema: Schema, values: Sequence[Any]) -> bytes:
    """Return the bytes of a message."""
    parts: list[bytes] = []
    _writer(schema)(values, parts)
    return b"".join(parts)


def decode(schema: Schema, data: bytes, index: int) -> tuple[Any, ...]:
    """Return the values of the message that begins at ``index``."""
    values, _ = _reader(schema)(data, index)
    return tuple(values)


@cache
def _writer(kind: Any) -> Write:
    if isinstance(kind, Schema):
        return _schema_writer(kind)
    if type(kind) is Array:
        return _array_writer(_writer(kind.array_of))
    if type(kind) is String:
        return _sized_writer(_SHORT_LENGTH, lambda text: str(text).encode(kind.encoding))
    if kind is Bytes:
        return _sized_writer(_LENGTH, lambda data: data)
    if kind in _NUMBERS:
        pack = struct.Struct(">" + _NUMBERS[kind]).pack
        return lambda value, parts: parts.append(pack(value))
    return lambda value, parts: parts.append(kind.encode(value))


def _schema_writer(schema: Schema) -> Write:
    steps: list[tuple[Any, int, int]] = []
    for numbers, some in groupby(enumerate(schema.fields), key=lambda field: field[1] in _NUMBERS):
        fields = list(some)
        first, behind = fields[0][0], fields[-1][0] + 1
        if numbers:
            steps.append((struct.Struct(">" + "".join(_NUMBERS[kind] for _, kind in fields)).pack, first, behind))
        else:
            steps += [(_writer(kind), at, 0) for at, kind in fields]

    def write(values: Sequence[Any], parts: list[bytes]) -> None:
        if len(values) != len(schema.fields):
            raise ValueError(f"{len(values)} values for the fields {', '.join(schema.names)}")
        for step, at, behind in steps:
            if behind:
                parts.append(step(*values[at:behind]))
            else:
                step(values[at], parts)

    return write


def _array_writer(write_one: Write) -> Write:
    def write(values: Sequence[Any] | None, parts: list[bytes]) -> None:
        parts.append(_LENGTH.pack(-1 if values is None else len(values)))
        for value in values or ():
            write_one(value, parts)

    return write


def _sized_writer(length: struct.Struct, raw: Callable[[Any], bytes]) -> Write:
    def write(value: Any, parts: list[bytes]) -> None:
        if value is None:
            parts.append(length.pack(-1))
            return
        data = raw(value)
        parts.append(length.pack(len(data)))
        parts.append(data)

    return write


@cache
def _reader(kind: Any) -> Read:
    if isinstance(kind, Schema):
        return _schema_reader(kind)
    if type(kind) is Array:
        return _array_reader(_reader(kind.array_of))
    if type(kind) is String:
        return _sized_reader(_SHORT_LENGTH, lambda data: data.decode(kind.encoding))
    if kind is Bytes:
        return _sized_reader(_LENGTH, lambda data: data)
    if kind in _NUMBERS:
        form = struct.Struct(">" + _NUMBERS[kind])
        return lambda data, index: (form.unpack_from(data, index)[0], index + form.size)
    return lambda data, index: _read_by_aiokafka(kind, data, index)


def _read_by_aiokafka(kind: Any, data: bytes, index: int) -> tuple[Any, int]:
    rest = BytesIO(data)
    rest.seek(index)
    return kind.decode(rest), rest.tell()


def _schema_reader(schema: Schema) -> Read:
    steps: list[tuple[Any, int]] = []
    for numbers, some in groupby(schema.fields, key=lambda kind: kind in _NUMBERS):
        if numbers:
            form = struct.Struct(">" + "".join(_NUMBERS[kind] for kind in some))
            steps.append((form.unpack_from, form.size))
        else:
            steps += [(_reader(kind), 0) for kind in some]

    def read(data: bytes, index: int) -> tuple[Any, int]:
        values: list[Any] = []
        for step, size in steps:
            if size:
                values += step(data, index)
                index += size
            else:
                value, index = step(data, index)
                values.append(value)
        return tuple(values), index

    return read


def _array_reader(read_one: Read) -> Read:
    def read(data: bytes, index: int) -> tuple[Any, int]:
        (count,) = _LENGTH.unpack_from(data, index)
        index += _LENGTH.size
        if count == -1:
            return None, index
        values = []
        for _ in range(count):
            value, index = read_one(data, index)
            values.append(value)
        return values, index

    return read


def _sized_reader(length: struct.Struct, value_of: Callable[[bytes], Any]) -> Read:
    def read(data: bytes, index: int) -> tuple[Any, int]:
        (size,) = length.unpack_from(data, index)
        index += length.size
        if size < 0:
            return None, index
        return value_of(data[index : index + size]), index + size

    return read
