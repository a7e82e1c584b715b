"""A member at work, record by record, computed by hand."""

from __future__ import annotations

import pytest

from loadtrim.simulate.model.work import FETCH_SECONDS
from loadtrim.simulate.model.worker import COMPACT_RECORDS, Queue, Worker
from loadtrim_agent.common.partition import Partition

COST = 0.1


def queue(index: int, *stamps: float) -> Queue:
    return Queue(Partition("t", index), index, stamps=list(stamps))


def worker(*queues: Queue, concurrency: int = 1, speed: float = 1.0) -> Worker:
    made = Worker(0.0, lambda: COST, speed, concurrency)
    made.owned = {each.index: each for each in queues}
    return made


def done(made: Worker, index: int) -> list[float]:
    return [] if index not in made.finished else made.finished[index].latencies


def test_a_known_queue_has_exact_latencies() -> None:
    """Three at once at 1.0, one at 2.0: each waits for those before it and for the fetch."""
    only = queue(0, 1.0, 1.0, 1.0, 2.0)
    member = worker(only)
    member.advance(10.0)
    expected = [FETCH_SECONDS + COST, FETCH_SECONDS + 2 * COST, FETCH_SECONDS + 3 * COST, FETCH_SECONDS + COST]
    assert done(member, 0) == pytest.approx(expected)
    assert (only.position, only.lag(10.0)) == (4, 0)


def test_the_oldest_head_comes_first_and_equal_ones_stay_with_their_partition() -> None:
    first, second = queue(0, 1.0, 1.0), queue(1, 0.95, 1.0)
    member = worker(first, second)
    member.advance(10.0)
    assert done(member, 1) == pytest.approx([FETCH_SECONDS + COST, FETCH_SECONDS + 2 * COST - 0.05])
    assert done(member, 0) == pytest.approx([FETCH_SECONDS + 3 * COST - 0.05, FETCH_SECONDS + 4 * COST - 0.05])


@pytest.mark.parametrize("concurrency", [1, 2])
def test_looking_often_changes_nothing(concurrency: int) -> None:
    """The same latencies in one go and in steps that cut through records."""
    stamps = [(0.0, 0.31, 0.32, 0.9), (0.05, 0.3, 1.4)]
    often, once = (worker(*(queue(i, *s) for i, s in enumerate(stamps)), concurrency=concurrency) for _ in range(2))
    for step in range(1, 400):
        often.advance(step * 0.007)
    once.advance(400 * 0.007)
    for index in range(2):
        assert done(often, index) == pytest.approx(done(once, index))


def test_what_is_in_hand_waits_until_it_is_done() -> None:
    only = queue(0, 0.0, 0.0)
    member = worker(only)
    member.advance(0.15)
    assert only.position == 1
    assert member.hand_until(only) == pytest.approx(FETCH_SECONDS + 2 * COST)
    only.stopped = True
    member.advance(1.0)
    assert only.position == 2, "the record in hand is done, however the partition fares"
    assert member.hand_until(only) is None


def test_a_stopped_partition_is_handed_no_more() -> None:
    only = queue(0, 0.0, 0.0, 0.0)
    member = worker(only)
    member.advance(FETCH_SECONDS + COST)
    only.stopped = True
    member.advance(1.0)
    assert only.position == 1
    only.stopped = False
    member.advance(1.0 + COST + 0.001)
    assert done(member, 0)[1] == pytest.approx(1.0 + COST)


def test_concurrency_works_on_partitions_at_once_but_not_on_one() -> None:
    first, second = queue(0, 1.0, 1.0), queue(1, 1.0)
    member = worker(first, second, concurrency=2)
    member.advance(10.0)
    assert done(member, 0) == pytest.approx([FETCH_SECONDS + COST, FETCH_SECONDS + 2 * COST])
    assert done(member, 1) == pytest.approx([FETCH_SECONDS + COST])


def test_a_faster_member_takes_less_time() -> None:
    member = worker(queue(0, 1.0), speed=2.0)
    member.advance(10.0)
    assert done(member, 0) == pytest.approx([FETCH_SECONDS + COST / 2])


@pytest.mark.parametrize("concurrency", [1, 2])
def test_what_is_to_come_first_comes_first(concurrency: int) -> None:
    old, young = queue(0, 0.0, 0.0, 0.0, 0.0), queue(1, 0.02, 0.02)
    member = worker(old, young, concurrency=concurrency)
    member.advance(0.05)
    member.first = young
    member.advance(2.0)
    assert max(done(member, 1)) < max(done(member, 0))


def test_what_is_done_is_forgotten_and_offsets_stay() -> None:
    only = queue(0, *([0.0] * (COMPACT_RECORDS + 10)))
    only.head = COMPACT_RECORDS + 5
    only.compact(COMPACT_RECORDS + 2)
    assert len(only.stamps) == 8
    assert (only.position, only.end(1.0)) == (COMPACT_RECORDS + 5, COMPACT_RECORDS + 10)
    assert only.between(COMPACT_RECORDS + 5, COMPACT_RECORDS + 10) == [0.0] * 5
