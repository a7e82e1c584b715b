"""Bytes on baseline topics stay readable: ``baselines-v1.jsonl`` may only grow."""

from __future__ import annotations

from pathlib import Path

import msgspec

from loadtrim_agent.wire.baseline_records import decode_baseline

LINES = (Path(__file__).parent / "baselines-v1.jsonl").read_bytes().splitlines()


def test_a_topic_is_read_as_it_was_meant() -> None:
    record = decode_baseline(LINES[0])
    assert record is not None
    read, written = msgspec.to_builtins(record), msgspec.json.decode(LINES[0])
    for name in read:
        told = list(read[name]) if isinstance(read[name], tuple) else read[name]
        assert told == written[name], name
    assert set(written) - set(read) == {"cost_mean", "cost_variance", "weeks", "outliers"}, "not used by the leader"


def test_partitions_and_groups_are_not_needed() -> None:
    assert [decode_baseline(line) for line in LINES[1:]] == [None, None, None]
