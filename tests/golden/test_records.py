"""Bytes written to control topics by released versions stay readable, field by field.

``records-v1.jsonl`` may only grow: a line is what some version wrote, and what is read from it must stay what it meant.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from loadtrim_agent.wire.codec import Record, decode, encode
from loadtrim_agent.wire.envelope import UnreadableRecord

LINES = (Path(__file__).parent / "records-v1.jsonl").read_bytes().splitlines()


def test_every_kind_is_there() -> None:
    kinds = {msgspec.json.decode(line)["kind"] for line in LINES}
    assert kinds == {kind.__struct_config__.tag for kind in get_args(Record)}


@pytest.mark.parametrize("line", LINES, ids=lambda line: msgspec.json.decode(line)["kind"])
def test_old_bytes_are_read_as_they_were_meant(line: bytes) -> None:
    record = decode(line)
    written = msgspec.json.decode(line)
    # What is written again has every field that was there, with the same value; new fields have defaults, left out.
    assert msgspec.json.decode(encode(record)) == written


@pytest.mark.parametrize("line", LINES, ids=lambda line: msgspec.json.decode(line)["kind"])
def test_unknown_fields_are_ignored(line: bytes) -> None:
    newer = msgspec.json.encode({**msgspec.json.decode(line), "from_a_later_version": {"x": 1}})
    assert decode(newer) == decode(line)


@pytest.mark.parametrize("junk", [b"", b"{", b"null", b'{"kind":"later"}', b'{"kind":"hello"}', b"\xff\xfe"])
def test_what_is_no_record_is_refused_as_such(junk: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode(junk)
