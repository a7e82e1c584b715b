"""Answers read our way and aiokafka's are the same."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol import fetch
from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.kafka.receiving import read_answer

VERSIONS = range(4, 12)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
INT = st.integers(-(1 << 31), (1 << 31) - 1)
SHORT = st.integers(-(1 << 15), (1 << 15) - 1)
HEAD = b"12345678"


@st.composite
def answers(draw: st.DrawFn, version: int) -> Any:
    """One of this version, with everything that its fields may be."""
    parts: list[st.SearchStrategy[Any]] = [INT, SHORT, LONG, LONG]
    if version >= 5:
        parts.append(LONG)
    parts.append(st.none() | st.lists(st.tuples(LONG, LONG), max_size=3))
    if version >= 11:
        parts.append(INT)
    parts.append(st.none() | st.binary(max_size=40))
    topics = st.none() | st.lists(st.tuples(st.text(max_size=5), st.lists(st.tuples(*parts), max_size=3)), max_size=3)
    top: list[Any] = [draw(INT)]
    if version >= 7:
        top += [draw(SHORT), draw(INT)]
    return getattr(fetch, f"FetchResponse_v{version}")(*top, draw(topics))


@given(st.data(), st.sampled_from(VERSIONS))
def test_both_readings_agree(data: st.DataObject, version: int) -> None:
    answer = data.draw(answers(version))
    encoded = answer.encode()
    found = read_answer(version, memoryview(bytearray(HEAD + encoded)), len(HEAD))
    assert type(found) is type(answer)
    assert vars(found) == vars(type(answer).decode(BytesIO(encoded)))


@given(st.data(), st.sampled_from(VERSIONS))
def test_an_answer_that_ends_too_early_is_none(data: st.DataObject, version: int) -> None:
    encoded = data.draw(answers(version)).encode()
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(ValueError, match="answer of"):
        read_answer(version, memoryview(encoded[:cut]), 0)


def test_an_answer_that_ends_within_a_letter_of_a_name_is_none() -> None:
    encoded = fetch.FetchResponse_v4(0, [("é", [])]).encode()
    with pytest.raises(ValueError, match="answer of"):
        read_answer(4, memoryview(encoded[: encoded.index(b"\xc3") + 1]), 0)
