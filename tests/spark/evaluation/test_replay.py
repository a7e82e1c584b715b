"""A rise that history knows, played with and without it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from loadtrim.simulate import BaselineRecord, Load
from loadtrim_agent.common.partition import Partition
from loadtrim_spark.evaluation.replay import Setup, between, fitted, played, whole_topics

MONDAY = 1_795_392_000  # 2026-11-23 00:00 UTC
SLOTS = 7 * 1440
PARTITIONS = tuple(Partition("load", index) for index in range(8))
RISE_MINUTE = 4


def load(minutes: int) -> Load:
    per_second = [20.0 if second < RISE_MINUTE * 60 else 200.0 for second in range(minutes * 60)]
    return Load(per_second=tuple(per_second), partitions=PARTITIONS, shares=((1 / 8,) * 8,), arrivals="poisson",
                cost_seconds=0.02)  # fmt: skip


def known(minutes: int) -> BaselineRecord:
    """A week of 20 records/s, and 200 from the rise to the end of what is played."""
    rates = [200.0 if RISE_MINUTE <= slot < minutes else 20.0 for slot in range(SLOTS)]
    mean = sum(rates) / SLOTS
    return BaselineRecord(
        group="g", topic="load", at=float(MONDAY), rate=mean, bucket_seconds=60, until=float(MONDAY), time_zone="UTC",
        shape=tuple(round(1000 * rate / mean) for rate in rates), quantiles=(1.0, 1.05, 1.1),
    )  # fmt: skip


def test_replicas_are_there_before_a_rise_that_is_known() -> None:
    setup = Setup(objective_seconds=1.0, startup_seconds=30.0)
    with_them, without = played(load(6), MONDAY, [known(6)], setup)
    assert with_them.arrived == without.arrived > 20_000
    assert without.late > 2_000
    assert with_them.late * 10 <= without.late
    assert with_them.share_in_time > without.share_in_time


def test_a_load_without_a_cost_is_scaled_to_the_setup() -> None:
    bare = replace(load(5), cost_seconds=None)
    assert max(fitted(bare, Setup(peak_replicas=3.0, cost_seconds=0.01)).per_second) == pytest.approx(300.0)
    assert fitted(load(5), Setup()) == load(5)


def test_counts_become_lines_between_their_middles() -> None:
    told = between(
        [(MONDAY, 60.0), (MONDAY + 60, 180.0)], 60, MONDAY + 30, 60, {PARTITIONS[0]: 1.0, PARTITIONS[1]: 3.0}
    )
    assert told.per_second[0] == pytest.approx(1.0 + 2.0 * 0.5 / 60)
    assert told.per_second[59] == pytest.approx(3.0 - 2.0 * 0.5 / 60)
    assert told.shares == ((0.25, 0.75),)


def test_only_whole_topics_are_looked_at() -> None:
    group = '{"kind":"baseline","v":1,"at":1,"group":"g","speeds":{"a":1.0}}'
    assert whole_topics([group]) == []
