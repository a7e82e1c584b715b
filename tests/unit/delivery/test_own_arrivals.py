"""What came just now, in seconds' worth of what arrives: by the rates of this moment, and not by the last report's."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.own_arrivals import OwnArrivals
from loadtrim_agent.metering.meter import Meter, MeterConfig
from loadtrim_agent.metering.readings import PartitionWork

from .test_slicing_task import P0, P1, chunk

COST = 0.01


class Bench:
    def __init__(self) -> None:
        meter = Meter(MeterConfig(group="g"))
        self.works = {P0: PartitionWork(COST, 0.3, 0.0), P1: PartitionWork(COST, 0.1, 0.0)}
        meter.work_of = self.works.get  # type: ignore[method-assign]
        self.arrivals = OwnArrivals(meter)

    def own(self, *partitions: Partition, seconds: float = 10.0) -> None:
        for partition in partitions:
            self.arrivals.acquired(partition)
            arrived = self.arrivals.of(partition)
            assert arrived is not None
            arrived.acquired_at -= seconds

    def fetched(self, partition: Partition, count: int, age: float = 0.0) -> float:
        return self.arrivals.fetched(partition, chunk(partition, 0, count, age=age), None, 0.0)


def test_a_second_of_all_partitions_is_a_second() -> None:
    bench = Bench()
    bench.own(P0, P1)
    assert bench.fetched(P0, 30) + bench.fetched(P1, 10) == pytest.approx(1.0)


def test_a_partition_that_comes_or_goes_changes_what_a_second_is_at_once() -> None:
    bench = Bench()
    bench.own(P0)
    assert bench.fetched(P0, 30) == pytest.approx(1.0)
    bench.own(P1)
    assert bench.fetched(P0, 30) == pytest.approx(0.75)
    bench.arrivals.lost(P1)
    assert bench.fetched(P0, 30) == pytest.approx(1.0)
    assert bench.fetched(P1, 10) == 0.0, "what it fetched is no longer this member's"


def test_what_came_before_the_partition_came_to_its_last_owner() -> None:
    bench = Bench()
    bench.own(P0, seconds=0.1)
    assert bench.fetched(P0, 30, age=0.3) == 0.0
    assert bench.fetched(P0, 30, age=0.05) == pytest.approx(1.0)


def test_where_nothing_is_known_to_arrive_nothing_is_made_of_it() -> None:
    bench = Bench()
    bench.works[P0] = PartitionWork(COST, 0.0, 0.0)
    bench.own(P0)
    assert bench.fetched(P0, 30) == 0.0
    bench.works.clear()
    assert bench.fetched(P0, 30) == 0.0


def test_a_promised_rate_is_told_once_and_ends_with_the_promises() -> None:
    bench = Bench()
    bench.arrivals.expect(P0, 0.3)
    assert [bench.arrivals.expected_rate(P0) for _ in range(2)] == [0.3, None]
    bench.arrivals.expect(P0, 0.3)
    bench.arrivals.expect_nothing()
    assert bench.arrivals.expected_rate(P0) is None
