"""Numbers in records have ranges: a record with one outside is refused, and what members measure is inside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadtrim_agent.wire.baseline_records import decode_baseline
from loadtrim_agent.wire.codec import decode
from loadtrim_agent.wire.envelope import UnreadableRecord
from unit.planning.baseline_feed import data, value

GOLDEN = Path(__file__).parents[2] / "golden" / "records-v1.jsonl"
RECORDS: dict[str, dict[str, Any]] = {
    line["kind"]: line for line in map(msgspec.json.decode, GOLDEN.read_bytes().splitlines())
}


def refused(kind: str, **changes: Any) -> None:
    with pytest.raises(UnreadableRecord):
        decode(msgspec.json.encode(RECORDS[kind] | changes))


@pytest.mark.parametrize("kind", sorted(RECORDS))
@pytest.mark.parametrize("at", [-1.0, 1e300, 1e12])
def test_a_time_that_no_calendar_knows(kind: str, at: float) -> None:
    refused(kind, at=at)


@pytest.mark.parametrize("kind", ["release", "plan", "base", "report", "decision", "load", "leaving"])
@pytest.mark.parametrize("generation", [-2, 2**31, 2**64])
def test_a_generation_that_kafka_has_not(kind: str, generation: int) -> None:
    refused(kind, generation=generation)


@pytest.mark.parametrize(
    ("kind", "field", "number"),
    [
        ("release", "offset", -2),
        ("release", "offset", 2**63),
        ("release", "partition", -1),
        ("release", "version", -1),
        ("release", "seconds", 1e9),
        ("plan", "sequence", 2**63),
        ("brake", "replicas", 10**7),
        ("load", "slack", 1e300),
        ("report", "sequence", -1),
        ("report", "interval", -1.0),
        ("report", "concurrency", 1e300),
        ("report", "speed", -1.0),
        ("report", "speed", 0.0),
        ("report", "speed", 1e6),
        ("report", "busy_seconds", 1e300),
        ("report", "startup_seconds", -5.0),
        ("report", "startup_seconds", 1e9),
        ("report", "handoffs", [0.1, -1.0]),
        ("report", "handoffs", [1e300]),
        ("report", "late", {"queued": -1}),
        ("report", "late", {str(cause): 1 for cause in range(1_000)}),
        ("report", "slots", [0.1, -0.1]),
        ("report", "slots", [0.0] * 100_000),
        ("report", "slots_start", -1.0),
        ("decision", "sequence", 2**63),
        ("decision", "replicas_wanted", 10**30),
        ("decision", "state", {"wanted": 1e300}),
        ("decision", "rate", 1e300),
    ],
)
def test_a_number_that_nobody_measures(kind: str, field: str, number: Any) -> None:
    refused(kind, **{field: number})


@pytest.mark.parametrize(
    ("field", "number"),
    [
        ("partition", 2**31),
        ("arrived", -1),
        ("arrived", 9 * 10**18),
        ("bytes", 10**13),
        ("lag", -1),
        ("lag_seconds", -0.1),
        ("cost_mean", 1e300),
        ("cost_variance", -1.0),
        ("observed", -1.0),
        ("position", -2),
        ("work_windows", [[1.0, 1e300, 0.0, 0.0]]),
        ("work_windows", [[1.0, 0.0, 0.0, 0.0]] * 1_000),
    ],
)
def test_a_number_of_a_partition_that_nobody_measures(field: str, number: Any) -> None:
    refused("report", partitions=[RECORDS["report"]["partitions"][0] | {field: number}])


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 1e308},
        {"shape": [10**400] + [1000] * 671},
        {"shape": [10**9] + [1000] * 671},
        {"bucket_seconds": -900},
        {"bucket_seconds": 10**30},
        {"quantiles": [1.0, 1e300, 1e300]},
        {"at": 1e300},
        {"to": -1.0},
        {"error": 1e300},
    ],
)
def test_a_baseline_that_no_pipeline_publishes(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnreadableRecord):
        decode_baseline(json.dumps(value() | wrong).encode())
    assert decode_baseline(data(value())) is not None
