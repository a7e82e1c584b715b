"""A member's capacity is learnt from the seconds in which it was saturated."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from loadtrim.simulate.loads.load import poisson
from loadtrim_agent.metering.capacity import KNOWN_SECONDS, ROOM, LearntCapacity, MemberWork
from loadtrim_agent.metering.readings import Working
from loadtrim_agent.wire.telemetry_records import Capacity


def fed(capacity: LearntCapacity, seconds: int, busy: float, asleep: float = 0.0, *, waited: bool = True) -> None:
    for _ in range(seconds):
        capacity.add(1.0, busy, asleep, done=int(busy), waited=waited)


def test_what_a_saturated_member_gives_is_what_it_can_give() -> None:
    capacity = LearntCapacity(1.0)
    fed(capacity, int(KNOWN_SECONDS), 10.0)
    assert capacity.known
    assert capacity.value(one_by_one=False).value == pytest.approx(10.0)


@pytest.mark.parametrize(("asleep", "waited"), [(0.5, True), (0.0, False)], ids=["slept", "nothing waited"])
def test_a_member_with_time_to_spare_proves_the_least_only(asleep: float, waited: bool) -> None:
    capacity = LearntCapacity(1.0)
    fed(capacity, 60, 4.0, asleep, waited=waited)
    assert not capacity.known
    assert capacity.value(one_by_one=False).value == pytest.approx(ROOM * 4.0)
    assert capacity.value(one_by_one=True).value == 1.0


def test_a_hint_counts_until_more_is_known() -> None:
    capacity = LearntCapacity(20.0)
    assert capacity.value(one_by_one=True).value == 20.0
    fed(capacity, 1, 0.5)
    assert capacity.value(one_by_one=True).value == 20.0
    fed(capacity, 1, 1.0)
    assert capacity.value(one_by_one=True).value == pytest.approx(0.75, rel=0.02), "the hint was wrong"


def test_it_follows_a_program_that_changes() -> None:
    capacity = LearntCapacity(1.0)
    fed(capacity, 120, 10.0)
    fed(capacity, 90, 4.0)
    assert capacity.value(one_by_one=False).value == pytest.approx(4.75, abs=0.1)


def test_quiet_hours_take_nothing_from_what_is_known() -> None:
    capacity = LearntCapacity(1.0)
    fed(capacity, 30, 10.0)
    fed(capacity, 20_000, 0.1, 0.9, waited=False)
    assert capacity.value(one_by_one=False).value == pytest.approx(10.0)


def test_noise_is_averaged() -> None:
    rng = random.Random(1)
    capacity = LearntCapacity(1.0)
    for _ in range(60):
        capacity.add(1.0, rng.uniform(0.0, 2.0), 0.0, done=1, waited=True)
    assert capacity.value(one_by_one=True).value == pytest.approx(1.0, abs=0.2)


def test_the_error_is_that_of_a_mean() -> None:
    """Of members that give 8 records a second by chance, nine in ten know it to two standard errors."""
    rng = random.Random(7)
    right, errors = 0, []
    for _ in range(400):
        capacity = LearntCapacity(1.0)
        for _ in range(20):
            done = poisson(8.0, rng)
            capacity.add(1.0, 4.0, 0.0, done=done, waited=True)
        known = capacity.value(one_by_one=False, cost_seconds=0.5)
        right += abs(known.value - 4.0) <= 2.0 * known.error
        errors.append(known.error)
    assert 0.9 < right / 400 < 0.99
    assert statistics.fmean(errors) == pytest.approx(0.5 * math.sqrt(8.0 / 20), rel=0.15)


def test_what_is_steady_is_known_well() -> None:
    capacity = LearntCapacity(1.0)
    fed(capacity, 60, 10.0)
    fed(capacity, 20_000, 0.1, 0.9, waited=False)
    assert capacity.value(one_by_one=False).error == pytest.approx(0.0, abs=1e-6)


def test_a_single_interval_tells_of_no_error() -> None:
    capacity = LearntCapacity(1.0)
    capacity.add(30.0, 300.0, 0.0, done=300, waited=True)
    assert capacity.value(one_by_one=False) == Capacity(10.0, 10.0, known=True)


def test_a_guess_may_be_as_little_as_was_given() -> None:
    capacity = LearntCapacity(1.0)
    fed(capacity, 60, 4.0, 0.5)
    assert capacity.value(one_by_one=False) == Capacity(ROOM * 4.0, (ROOM - 1.0) * 4.0, known=False)


@pytest.mark.parametrize("busy", [0.0, 5e-324, 1e-300, 1e9])
def test_no_work_is_too_small_or_too_large_for_an_error(busy: float) -> None:
    capacity = LearntCapacity(1.0)
    for seconds in (1e-3, 1.0, 1e6, 3.0):
        capacity.add(seconds, busy, 0.0, done=0, waited=True)
    known = capacity.value(one_by_one=False)
    assert 0.0 <= known.error <= known.value < math.inf


def flowed(capacity: LearntCapacity, seconds: int, taken: float, most_done: float, cost: float) -> int:
    """Feed a program that takes every record at once, and does so many a second. Returns what it has in hand."""
    in_hand = 0.0
    for _ in range(seconds):
        in_hand += taken
        done = min(most_done, in_hand)
        in_hand -= done
        capacity.add(1.0, in_hand, 1.0, done=int(done), waited=False)
        capacity.flowed(1.0, int(done), int(in_hand), cost + in_hand / most_done)
    return int(in_hand)


def test_a_program_that_takes_everything_in_hand_is_saturated_inside() -> None:
    """Nothing waited outside, and it always asked for more: 18 s late, it was told to have time to spare."""
    capacity = LearntCapacity(1.0)
    in_hand = flowed(capacity, 30, taken=12.0, most_done=8.0, cost=0.5)
    assert in_hand > 100
    assert capacity.known
    for cost in (0.5, 15.0):
        assert capacity.value(one_by_one=False, cost_seconds=cost).value == pytest.approx(8.0 * cost, rel=0.05)


def test_a_step_of_the_load_that_it_can_do_is_no_saturation() -> None:
    capacity = LearntCapacity(1.0)
    flowed(capacity, 30, taken=3.0, most_done=100.0, cost=0.5)
    flowed(capacity, 30, taken=14.0, most_done=100.0, cost=0.5)
    assert not capacity.known


def test_one_long_interval_tells_of_no_growth() -> None:
    """A member that was frozen reports of minutes at once."""
    capacity = LearntCapacity(1.0)
    for seconds in (1.0, 300.0, 1.0, 300.0):
        capacity.flowed(seconds, 0, 500, 0.5)
    assert not capacity.known


def working(records: int, seconds: float, asleep: float = 0.0, *, tells: bool = False, filled: bool = True) -> Working:
    return Working(records=records, open_seconds=seconds, asleep_seconds=asleep, tells=tells, batches_filled=filled)


def test_work_counts_while_it_lasts() -> None:
    """A record of four seconds was nothing for three, and 400 % in the fourth."""
    work = MemberWork(1.0)
    given = []
    for second in range(1, 5):
        work.working(float(second), working(1, float(second)))
        given.append(work.close(1.0, 0, 4.0))
    work.done(4.5, 4.5, 1)
    work.working(4.5, working(0, 0.0))
    assert given == [1.0] * 4
    assert work.close(1.0, 0, 4.0) == pytest.approx(0.5)


def test_what_waits_beside_a_batch_with_room_is_no_backlog_yet() -> None:
    work = MemberWork(1.0)
    for second in range(1, 11):
        work.working(float(second), working(14, 0.5 * second, filled=False))
        work.close(1.0, 16, 0.1)
    assert work.capacity.value == 1.0
    for second in range(11, 21):
        work.working(float(second), working(14, 0.5 * second, filled=True))
        work.close(1.0, 16, 0.1)
    assert work.capacity.value == pytest.approx(0.5, rel=0.05)


def test_one_record_at_a_time_is_one_until_it_was_seen_to_be_less() -> None:
    """And what the user says is taken as it is: it is no standard error that it may be wrong by."""
    work = MemberWork(4.0)
    work.working(1.0, working(1, 1.0))
    work.close(1.0, 0, 0.1)
    assert work.capacity == Capacity(4.0, 0.0, known=True)
    tells = MemberWork(4.0)
    tells.working(1.0, working(1, 1.0, tells=True))
    tells.close(1.0, 0, 0.1)
    assert tells.capacity == Capacity(4.0, 3.0, known=False)


def test_nobody_who_tells_nothing_of_hands_learns() -> None:
    work = MemberWork(3.0)
    work.done(1.0, 0.2, 5)
    assert work.close(1.0, 100, 0.1) == pytest.approx(0.2)
    assert work.capacity == Capacity(3.0, 0.0, known=True)


def test_what_is_untold_is_sized_by_records_per_second() -> None:
    """The time between calls falls to nothing when there is little to do: two members looked idle, one went."""
    learnt = LearntCapacity(1.0)
    assert learnt.value(one_by_one=True, untold=True, cost_seconds=1e-5).value == 1.0, "only the hint is known"
    for _ in range(4):
        learnt.add(1.0, 1.0, 0.0, done=10, waited=True)
    assert learnt.value(one_by_one=True, untold=True, cost_seconds=0.1).value == pytest.approx(1.0)
    assert learnt.value(one_by_one=True, untold=True, cost_seconds=1e-4).value == pytest.approx(1e-3)
    assert learnt.value(one_by_one=True, cost_seconds=1e-4).value == pytest.approx(1.0)


def test_a_program_that_stands_still_can_not_be_said_to_do_nothing() -> None:
    """A downstream hung: a capacity of 0 was learnt, and what is shared out by it broke every report from then on."""
    work = MemberWork(1.0)
    for second in range(1, 11):
        work.done(float(second), 1.0, 10)
        work.working(float(second), working(0, 0.0, tells=True))
        work.close(1.0, 0, 0.1)
    for second in range(11, 41):
        held = 10 * (second - 10)
        work.working(float(second), working(held, held * 0.5, tells=True))
        work.close(1.0, 0, 0.1)
        assert work.capacity.value >= 1.0, "as before: it tells nothing of that"
        assert 0.0 <= work.busy.share(float(second)) <= 1.0
