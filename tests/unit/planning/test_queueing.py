"""Waiting by chance: worked out by hand, and held against a queue that is played record by record."""

from __future__ import annotations

import heapq
import math
from random import Random
from statistics import fmean

import pytest

from loadtrim_agent.planning.queueing import capacity_in_time, share_late


def test_by_hand() -> None:
    """2.4 busy seconds/s in records of 4 s by chance, three members, 16 s to wait.

    0.8 ^ (8 ^ 0.5 - 1) x exp(-2 x 0.6 x 16 / 4).
    """
    assert share_late(2.4, 4.0, 3.0, 16.0) == pytest.approx(0.66498 * math.exp(-4.8), rel=1e-4)


def test_one_member_and_costs_that_vary_exponentially_as_in_the_books() -> None:
    """M/M/1: a record waits longer than t with a probability of rho x exp(-(1 - rho) t / cost)."""
    assert share_late(0.7, 2.0 * 0.1, 1.0, 0.4) == pytest.approx(0.7 * math.exp(-0.3 * 0.4 / 0.1))
    assert share_late(0.35, 2.0 * 0.1, 0.5, 0.4) == pytest.approx(0.7 * math.exp(-0.15 * 0.4 / 0.1)), "half as fast"


def test_in_a_burst_it_is_the_mean_over_what_is_in_time() -> None:
    """Of 0.4 busy seconds, at a capacity of 2: the first record has 0.5 s, the last one 0.3 s."""
    places = [share_late(0.7, 0.2, 2.0, 0.5 - 0.2 * (at + 0.5) / 1000) for at in range(1000)]
    assert share_late(0.7, 0.2, 2.0, 0.5, burst=0.4) == pytest.approx(fmean(places), rel=1e-5)
    beyond = [share_late(0.7, 0.2, 2.0, 0.5 * (at + 0.5) / 1000) for at in range(1000)]
    assert share_late(0.7, 0.2, 2.0, 0.5, burst=9.0) == pytest.approx(fmean(beyond), rel=1e-5), (
        "the rest is late anyhow"
    )
    assert share_late(0.7, 1e6, 2.0, 0.5, burst=0.4) == pytest.approx(share_late(0.7, 1e6, 2.0, 0.5)), "an even tail"


@pytest.mark.parametrize(
    ("burst", "flow", "cost"),
    [(0.45, 0.15, 0.006), (0.4, 0.4, 0.01), (0.3, 0.3, 0.05), (0.2, 0.6, 0.05), (0.55, 0.2, 0.02)],
)
def test_beside_bursts_a_queue_is_late_about_as_often(burst: float, flow: float, cost: float) -> None:
    """Bursts of equal records each second, and records by chance, played one by one; 0.5 s to wait.

    Equal records wait less than the formula says, up to six times less. All of it was expected late where a burst takes
    as long as there is to wait.
    """
    random, seconds, count = Random(1), 4000, round(burst / cost)
    arrivals, at = [float(second) for second in range(seconds) for _ in range(count)], 0.0
    while at < seconds:
        at += random.expovariate(flow / cost)
        arrivals.append(at)
    free = late = 0.0
    for at in sorted(arrivals):
        begins = max(free, at)
        late += begins - at > 0.5
        free = begins + cost
    over = max(0.0, burst - 0.5) / (burst + flow)
    expected = over + (1.0 - over) * share_late(burst + flow, cost, 1.0, 0.5, burst)
    seen = late / len(arrivals)
    assert 0.5 * seen - 0.01 < expected < 6.0 * seen + 0.01


def test_the_ends() -> None:
    assert share_late(3.0, 1.0, 3.0, 100.0) == 1.0, "what is not kept up with is late in the end"
    assert share_late(4.0, 1.0, 3.0, 1.0) == 1.0
    assert share_late(1.0, 1.0, 3.0, 0.0) == 1.0, "nothing is done at once"
    assert share_late(1.0, 0.0, 3.0, 0.1) == 0.0, "what comes evenly does not wait"
    assert capacity_in_time(0.0, 0.0, 1.0, 0.001) == 0.0
    assert capacity_in_time(2.0, 0.0, 1.0, 0.001) == 2.0


@pytest.mark.parametrize(("work", "dispersion", "seconds", "share"), [(2.4, 4.0, 16.0, 0.001), (0.7, 0.5, 2.5, 0.01)])
def test_the_capacity_is_the_one_with_which_the_share_is_late(
    work: float, dispersion: float, seconds: float, share: float
) -> None:
    capacity = capacity_in_time(work, dispersion, seconds, share)
    assert share_late(work, dispersion, capacity, seconds) == pytest.approx(share, rel=1e-4)


def test_a_record_that_takes_far_longer_than_there_is_to_wait_takes_few_members() -> None:
    """A tenth of a busy second per second in records of 9 s: two at once are rare, four hardly ever are."""
    assert 2.0 < capacity_in_time(0.1, 9.0, 0.1, 0.001) < 4.0


@pytest.mark.parametrize(
    ("work", "members", "seconds"), [(0.5, 1, 3.0), (0.7, 1, 4.0), (2.4, 3, 4.0), (2.4, 4, 2.0), (5.0, 7, 1.0)]
)
@pytest.mark.parametrize("varied", [False, True])
def test_a_queue_is_late_about_as_often(work: float, members: int, seconds: float, varied: bool) -> None:
    """Records of a second by chance, played one by one: at most three times as many are expected as are late."""
    random, at, late, records = Random(1), 0.0, 0, 100_000
    free = [0.0] * members
    for _ in range(records):
        at += random.expovariate(work)
        begins = max(free[0], at)
        late += begins - at > seconds
        heapq.heapreplace(free, begins + (random.expovariate(1.0) if varied else 1.0))
    expected = share_late(work, 2.0 if varied else 1.0, float(members), seconds)
    assert 0.9 < expected / (late / records) < 3.0
