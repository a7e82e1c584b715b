"""A record is charged what it costs in a full batch, whatever the size of the batch that it came in."""

from __future__ import annotations

import random

import pytest

from loadtrim_agent.metering.batch_cost import BatchCost

LIMIT = 20


def fed(seconds_of: object, batches: int = 200, most: int = 8) -> BatchCost:
    rng, cost = random.Random(3), BatchCost()
    for _ in range(batches):
        records = rng.randint(1, most)
        cost.add(records, seconds_of(records) * rng.uniform(0.9, 1.1), LIMIT)  # type: ignore[operator]
    return cost


def charged(cost: BatchCost, records: int, seconds: float, limit: int = LIMIT) -> float:
    return seconds / records * cost.factor(records, limit)


def test_records_worked_on_at_once_cost_as_much_in_any_batch() -> None:
    """It took half a second for five as for twenty: with more members each looked dearer."""
    cost = fed(lambda records: 0.5)
    assert charged(cost, 1, 0.5) == pytest.approx(0.5 / LIMIT, rel=0.15)
    assert charged(cost, 8, 0.5) == pytest.approx(0.5 / LIMIT, rel=0.15)
    assert charged(cost, LIMIT, 0.5) == pytest.approx(0.5 / LIMIT)


def test_records_worked_on_one_after_the_other_cost_what_they_take() -> None:
    cost = fed(lambda records: 0.01 * records)
    for records in (1, 5, 20):
        assert charged(cost, records, 0.01 * records) == pytest.approx(0.01, rel=0.1)


def test_a_part_of_each() -> None:
    cost = fed(lambda records: 0.2 + 0.01 * records)
    assert charged(cost, 4, 0.24) == pytest.approx(0.2 / LIMIT + 0.01, rel=0.1)


def test_it_does_not_reach_far_beyond_what_was_seen() -> None:
    cost = fed(lambda records: 0.5, most=4)
    assert charged(cost, 2, 0.5, limit=1_000) == pytest.approx(0.5 / 12, rel=0.1)


def test_sizes_that_never_vary_tell_nothing() -> None:
    cost = BatchCost()
    assert cost.factor(5, LIMIT) == 1.0
    for _ in range(100):
        cost.add(5, 0.5, LIMIT)
    assert cost.factor(5, LIMIT) == 1.0


def test_a_full_batch_is_charged_as_it_is() -> None:
    cost = fed(lambda records: 0.5)
    assert cost.factor(LIMIT, LIMIT) == pytest.approx(1.0)
    assert cost.factor(50, LIMIT) == pytest.approx(1.0)


def test_it_follows_a_program_that_changes() -> None:
    cost = fed(lambda records: 0.5)
    rng = random.Random(4)
    for _ in range(3_000):
        records = rng.randint(1, 8)
        cost.add(records, 0.02 * records, LIMIT)
    assert charged(cost, 4, 0.08) == pytest.approx(0.02, rel=0.1)


def test_the_parts_of_a_batch_count_as_one_batch() -> None:
    """A batch of several partitions was taken in once for each of them, so that what was learnt was soon forgotten."""
    whole, parts, rng = BatchCost(), BatchCost(), random.Random(5)
    for _ in range(300):
        records, seconds = 4 * rng.randint(1, 4), rng.uniform(0.2, 0.6)
        whole.add(records, seconds, LIMIT)
        for _ in range(4):
            parts.add(records, seconds, LIMIT, records // 4)
    assert charged(parts, 4, 0.4) == pytest.approx(charged(whole, 4, 0.4), rel=0.01)


def test_what_is_learnt_of_batches_counts_for_those_before_as_well() -> None:
    """The first ones were charged as if every record took all of the time, and were remembered as dear."""
    cost, charged_then = BatchCost(), []
    for records in (5, 4, 6):
        charged_then.append(charged(cost, records, 0.5))
        cost.add(records, 0.5, LIMIT)
    revision, rng = cost.revision(), random.Random(3)
    for _ in range(200):
        cost.add(rng.randint(3, 7), 0.5, LIMIT)
        revision *= cost.revision()
    assert sum(charged_then) / 3 * revision == pytest.approx(charged(cost, 5, 0.5), rel=0.25)
    assert charged_then[0] == 0.1
    assert charged(cost, 5, 0.5) == pytest.approx(0.025, rel=0.1)


def test_a_charge_that_hardly_changes_revises_nothing() -> None:
    cost = fed(lambda records: 0.5)
    cost.revision()
    cost.add(4, 0.5, LIMIT)
    assert cost.revision() == 1.0
    one_by_one = BatchCost()
    for _ in range(50):
        one_by_one.add(1, 0.5, 1)
        assert one_by_one.revision() == 1.0


def test_a_batch_that_took_no_time_at_all_is_one_like_any_other() -> None:
    """A coarse clock, or virtual time: the next batch was measured with an error."""
    cost = BatchCost()
    cost.add(5, 0.0, LIMIT)
    assert charged(cost, 5, 0.0) == 0.0
    cost.add(5, 0.5, LIMIT)
    assert cost.revision() > 0.0
    assert 0.0 < charged(cost, 5, 0.5) <= 0.1


def test_a_first_batch_with_room_tells_no_cost_until_a_second_one_does_or_takes_long() -> None:
    """A batch of one record took as long as a full one: a group of one replica asked for twelve."""
    cost = BatchCost()
    assert not cost.is_provisional(0.0), "nothing is done, so nothing is told anyhow"
    cost.add(1, 0.9, LIMIT, at=100.0)
    assert cost.is_provisional(100.0)
    assert cost.is_provisional(102.6)
    assert not cost.is_provisional(102.8), "a second one takes three times as long"
    cost.add(11, 1.0, LIMIT, at=101.0)
    assert not cost.is_provisional(101.0)


@pytest.mark.parametrize("limit", [1, 5])
def test_a_first_batch_that_is_full_tells_what_a_record_costs(limit: int) -> None:
    cost = BatchCost()
    for _ in range(limit):
        cost.add(limit, 0.9, limit, part=1, at=100.0)
    assert not cost.is_provisional(100.0)


def test_a_first_batch_of_many_partitions_is_one_batch() -> None:
    cost = BatchCost()
    for _ in range(5):
        cost.add(5, 0.9, LIMIT, part=1, at=100.0)
    assert cost.is_provisional(100.0)


# -- for how long a record is in hand beside what it costs


def test_a_batch_takes_as_long_however_few_its_records_are() -> None:
    assert BatchCost().own_seconds(0.0) == 0.0
    assert fed(lambda records: 0.3 + 0.02 * records).own_seconds(0.0) == pytest.approx(0.3, rel=0.15)
    assert fed(lambda records: 0.1 * records).own_seconds(0.0) == pytest.approx(0.0, abs=0.02), "one after the other"
    assert fed(lambda records: 0.3, most=1).own_seconds(0.0) == 0.0, "one at a time"


def test_few_batches_tell_nothing_and_those_of_long_ago_nothing_any_more() -> None:
    cost = BatchCost()
    for number, records in enumerate((2, 20, 5, 12, 8)):
        assert cost.own_seconds(float(number)) == 0.0
        cost.add(records, 0.5, LIMIT, at=float(number))
    cost.add(20, 0.5, LIMIT, at=5.0)
    assert cost.own_seconds(65.0) == pytest.approx(0.5, rel=0.1)
    assert cost.own_seconds(65.1) == 0.0


@pytest.mark.parametrize("sizes", [(19, 20), (1, 20)])
def test_chance_is_not_taken_for_the_time_of_a_batch(sizes: tuple[int, int]) -> None:
    """Of records that are worked on one after the other a third of the lines pass far above nothing by chance."""
    told = []
    for seed in range(60):
        rng, cost = random.Random(seed), BatchCost()
        for _ in range(30):
            records = rng.randint(*sizes)
            cost.add(records, sum(rng.expovariate(10.0) for _ in range(records)), LIMIT)
        told.append(cost.own_seconds(0.0))
    assert sum(seconds > 0.1 for seconds in told) <= 6
    assert max(told) < 0.5, "of two seconds that a batch takes"


def test_a_stall_is_not_taken_for_the_time_of_a_batch() -> None:
    """A service that did not answer for a minute left nothing of the objective, or was all that was known for long."""
    for records, seconds in ((1, 60.0), (20, 60.0), (4, 300.0)):
        stalled = fed(lambda records: 0.5)
        usual = stalled.own_seconds(0.0)
        stalled.add(records, seconds, LIMIT)
        assert 0.6 * usual < stalled.own_seconds(0.0) <= 1.05 * usual


def test_a_stall_bends_no_line() -> None:
    """For minutes after it what full batches had cost was charged anew by a third."""
    cost, before = BatchCost(), []
    for number in range(400):
        records = 5 + number % 16
        if number == 200:
            before.append(charged(cost, 20, 0.4))
            cost.add(20, 60.0, LIMIT)
        cost.add(records, 0.02 * records, LIMIT)
    assert charged(cost, 20, 0.4) == pytest.approx(before[0], rel=0.05)


def test_batches_of_two_kinds_have_no_time_of_their_own() -> None:
    """Few dear records by turns with many cheap ones, all of them one after the other."""
    rng, cost = random.Random(4), BatchCost()
    for turn in range(200):
        many, few = rng.randint(300, 500), rng.randint(1, 5)
        cost.add(many, 0.001 * many, 500) if turn % 2 else cost.add(few, 0.3 * few, 500)
    assert cost.own_seconds(0.0) == 0.0


def test_batches_that_take_minutes_are_told_while_the_next_one_is_in_hand() -> None:
    cost = BatchCost()
    for number in range(40):
        cost.add(1 + number % 8, 90.0, LIMIT, at=90.0 * number)
    assert cost.own_seconds(90.0 * 39 + 89.0) == pytest.approx(90.0, rel=0.1)
