"""The simulated broker's bytes are those of aiokafka, for each request and answer that the broker speaks."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.types import Array, Boolean, Bytes, Int8, Int16, Int32, Int64, Schema, String
from hypothesis import given, settings
from hypothesis import strategies as st

from whole.codec import decode, encode
from whole.requests import STRUCTS, VERSIONS

BITS = {Int8: 8, Int16: 16, Int32: 32, Int64: 64}
BEFORE = b"what stands before"
SPOKEN = [
    STRUCTS[key, version]
    for key, (least, most) in VERSIONS.items()
    for version in range(least, most + 1)
    if (key, version) in STRUCTS
]
SCHEMAS = {f"{kind.__name__} request": kind.SCHEMA for kind in SPOKEN} | {
    f"{kind.__name__} answer": kind.RESPONSE_TYPE.SCHEMA for kind in SPOKEN
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    if isinstance(kind, Schema):
        return st.tuples(*[values(field) for field in kind.fields])
    if isinstance(kind, Array):
        return st.none() | st.lists(values(kind.array_of), max_size=3)
    if isinstance(kind, String):
        return st.none() | st.text(max_size=5)
    if kind is Boolean:
        return st.booleans()
    if kind in BITS:
        limit = 1 << (BITS[kind] - 1)
        return st.integers(-limit, limit - 1)
    if issubclass(kind, Bytes):
        return st.none() | st.binary(max_size=5)
    return st.just({})  # tagged fields


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SCHEMAS))
@settings(max_examples=10)
@given(data=st.data())
def test_bytes_are_those_of_aiokafka(name: str, data: st.DataObject) -> None:
    schema = SCHEMAS[name]
    message = data.draw(values(schema))
    raw = schema.encode(message)
    assert encode(schema, message) == raw
    assert decode(schema, BEFORE + raw, len(BEFORE)) == schema.decode(BytesIO(raw))


def test_a_field_too_many_is_told() -> None:
    with pytest.raises(ValueError, match="3 values for the fields a, b"):
        encode(Schema(("a", Int8), ("b", Int8)), (1, 2, 3))
