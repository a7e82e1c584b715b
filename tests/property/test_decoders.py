"""Whatever bytes are on a topic or come from another client, a decoder returns a value or its one error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.kafka.consumer_protocol import decode_answer, decode_member
from loadtrim_agent.wire.baseline_records import Baselines, decode_baseline
from loadtrim_agent.wire.codec import decode, encode
from loadtrim_agent.wire.envelope import MALFORMED, UnreadableRecord
from unit.planning.baseline_feed import data, key, utc_slots, value

GOLDEN = Path(__file__).parent.parent / "golden"
RECORDS = (GOLDEN / "records-v1.jsonl").read_bytes().splitlines()
BASELINES = (GOLDEN / "baselines-v1.jsonl").read_bytes().splitlines()
DEPTHS = (900, 1_000, 1_100, 5_000, 100_000)
"""Below and above what a decoder follows."""

ODD_NUMBERS = st.sampled_from([0, -1, 1e-300, 1e300, -1e300, 10**400, -(10**400), 2**31, 2**63, 2**64, 0.5, -0.0])
ODD = st.one_of(
    st.none(), st.booleans(), st.text(max_size=3), st.integers(), st.floats(allow_nan=False, allow_infinity=False)
)
TREES = st.recursive(ODD | ODD_NUMBERS, lambda kids: st.lists(kids) | st.dictionaries(st.text(max_size=4), kids))


@st.composite
def mutated(draw: st.DrawFn, lines: list[bytes]) -> bytes:
    """A record in which one value, however deep, is another."""
    record: Any = msgspec.json.decode(draw(st.sampled_from(lines)))
    place = record
    while True:
        step: Any = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else list(range(len(place)))))
        if isinstance(place[step], dict | list) and place[step] and draw(st.booleans()):
            place = place[step]
            continue
        place[step] = draw(ODD | ODD_NUMBERS | TREES)
        return json_of(record)


def json_of(tree: Any) -> bytes:
    """JSON with whole numbers of any length, which msgspec does not write."""
    return json.dumps(tree).encode()


def nested(line: bytes, depth: int) -> bytes:
    """The record with a field of the future that holds lists in lists."""
    return line[:-1] + b',"x":' + b"[" * depth + b"]" * depth + b"}"


@given(st.binary() | TREES.map(json_of) | mutated(RECORDS))
def test_control_records(junk: bytes) -> None:
    try:
        record = decode(junk)
    except UnreadableRecord:
        return
    assert decode(encode(record)) == record, "what was read can be written and read again"


@pytest.mark.parametrize("depth", DEPTHS)
def test_nesting_is_read_or_refused(depth: int) -> None:
    for line in RECORDS:
        try:
            assert decode(nested(line, depth)) == decode(line)
        except UnreadableRecord:
            assert depth >= 1_000
    for line in BASELINES[:2]:
        try:
            assert decode_baseline(nested(line, depth)) == decode_baseline(line)
        except UnreadableRecord:
            assert depth >= 1_000


@given(st.binary() | TREES.map(json_of) | mutated(BASELINES))
def test_baselines(junk: bytes) -> None:
    known = Baselines("payments-service", utc_slots)
    for about in (b'["payments-service","payments",null]', b'["payments-service",null,null]', junk):
        try:
            known.apply(about, junk)
        except UnreadableRecord:
            continue
    for curve in known.curves(1_795_262_400.0).values():
        assert all(0.0 <= rate < 1e18 for rate in curve.rates)


@pytest.mark.parametrize("depth", DEPTHS)
def test_keys_of_baselines_are_nested_too(depth: int) -> None:
    known = Baselines("g", utc_slots)
    assert not known.apply(b"[" * depth + b"]" * depth, b"never looked at")
    assert known.apply(key(), data(value()))


@given(st.binary(), st.sampled_from(["loadtrim", "range"]))
def test_bytes_of_the_group_protocol(junk: bytes, protocol: str) -> None:
    for start in (b"", b"\x00\x01", b"\x00\x01\x00\x00\x00\x01"):
        assert decode_member("m", start + junk).member == "m"
        try:
            decode_answer(start + junk, protocol)
        except MALFORMED:
            continue
