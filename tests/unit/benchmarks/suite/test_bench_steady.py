"""Every figure of the constant load is of the same seconds."""

from __future__ import annotations

import pytest
from benchmarks.suite.bench_steady import counted

from demo.report import Replica, SecondFigures, Setting

SETTING = Setting(
    source="",
    per_second=(100.0,) * 120,
    partitions=1,
    shares=(1.0,),
    started_at=1_000.0,
    ended_at=1_130.0,
    replicas=(
        Replica(name="one", asked_at=990.0),
        Replica(name="two", asked_at=990.0, ended_at=1_090.0),
        Replica(name="three", asked_at=1_105.0, ended_at=1_200.0),
        Replica(name="four", asked_at=1_000.0, ended_at=1_050.0),
    ),
)


def second(number: int, late: int) -> SecondFigures:
    return SecondFigures(
        second=number,
        records=100,
        by_partition=(100,),
        late=late,
        latency_p50=None,
        latency_p99=None,
        latency_max=None,
    )


def test_share_and_replica_minutes_are_of_the_seconds_that_count() -> None:
    """The first minute is late by half: none of it is in the share, nor what it cost in the minutes."""
    found = counted([second(number, 50 if number < 60 else number % 2) for number in range(120)], SETTING, 60)
    assert (found.records, found.late, found.late_before) == (6_000, 30, 3_000)
    assert found.share_in_time == pytest.approx(99.5)
    assert found.replica_minutes == pytest.approx((60 + 30 + 15) / 60)
