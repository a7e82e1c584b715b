"""Passing work on inside the objective: computed by hand, and what must always hold."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.slicing import Limits, Own, Peer, SliceError, Tier, predicted, sliced

LIMITS = Limits(objective_seconds=0.5, margin_seconds=0.02, handoff_seconds=0.015)
COST = 0.01


def own(index: int, records: int, **changes: object) -> Own:
    given: dict[str, object] = {"work": records * COST, "cost": COST, "newest_age": 0.0} | changes
    return Own(partition=Partition("t", index), **given)  # type: ignore[arg-type]


def test_what_fits_is_left_alone() -> None:
    assert sliced([own(0, 20)], [Peer(member="b", busy_seconds=0.0)], LIMITS) is None
    assert sliced([], [Peer(member="b", busy_seconds=0.0)], LIMITS) is None


def test_the_excess_of_two_partitions_is_the_end_of_one() -> None:
    """60 records of 10 ms in 0.48 s: 12 are too many, so 18 of a partition's 30 are done first and 12 go."""
    choice = sliced([own(0, 30), own(1, 30)], [Peer(member="b", busy_seconds=0.2)], LIMITS)
    assert choice is not None
    assert (choice.partition.partition, choice.target, choice.tier, choice.keep_records) == (0, "b", Tier.HARD, 18)


def test_the_smallest_partition_that_holds_the_excess_is_taken() -> None:
    choice = sliced([own(0, 40), own(1, 5), own(2, 13)], [Peer(member="b", busy_seconds=0.38)], LIMITS)
    assert choice is not None
    assert (choice.partition.partition, choice.keep_records) == (2, 3)


def test_who_has_the_time_for_all_of_it_gets_it_at_once() -> None:
    """It would have nothing to do while the first part is done here."""
    choice = sliced([own(0, 40), own(1, 5), own(2, 13)], [Peer(member="b", busy_seconds=0.3)], LIMITS)
    assert choice is not None
    assert (choice.partition.partition, choice.keep_records) == (2, 0)


def test_of_those_who_have_the_time_who_can_keep_it_gets_it() -> None:
    """ "b" would be done sooner with this, and overloaded by what comes after it."""
    peers = [
        Peer(member="b", busy_seconds=0.1, slack=-0.05),
        Peer(member="c", busy_seconds=0.3, slack=0.2),
        Peer(member="d", busy_seconds=0.45, slack=0.9),
    ]
    choice = sliced([own(0, 40), own(1, 5), own(2, 13)], peers, LIMITS)
    assert choice is not None
    assert (choice.partition.partition, choice.target, choice.keep_records) == (2, "c", 0)


def test_hardly_more_than_the_excess_goes_at_once() -> None:
    choice = sliced([own(0, 40), own(1, 10)], [Peer(member="b", busy_seconds=0.42)], LIMITS)
    assert choice is not None
    assert (choice.partition.partition, choice.keep_records) == (1, 8)
    choice = sliced([own(0, 47), own(1, 3)], [Peer(member="b", busy_seconds=0.455)], LIMITS)
    assert choice is not None
    assert (choice.partition.partition, choice.keep_records) == (1, 0), "one of three records is not worth waiting for"


def test_one_record_too_many_is_noise() -> None:
    """The one in hand counts as a whole one however much of it is done."""
    assert sliced([own(0, 40), own(1, 9)], [Peer(member="b", busy_seconds=0.0)], replace(LIMITS, soft=False)) is None


def test_what_is_older_leaves_less_time() -> None:
    """0.3 s after a burst 0.18 s are left: of 30 records 12 are too many."""
    queues = [own(0, 15, newest_age=0.3), own(1, 15, newest_age=0.3)]
    choice = sliced(queues, [Peer(member="b", busy_seconds=0.05)], LIMITS)
    assert choice is not None
    assert choice.keep_records == 3


def test_the_least_busy_is_given_all_that_the_others_together_can_do() -> None:
    """Excess 12. "b" alone has time for 8 of them, "c" for 3 more: "b" gets 11, and passes 3 of its own on."""
    peers = [Peer(member="c", busy_seconds=0.45), Peer(member="b", busy_seconds=0.4)]
    choice = sliced([own(0, 30), own(1, 30)], peers, LIMITS)
    assert choice is not None
    assert (choice.target, choice.keep_records) == ("b", 19)
    alone = sliced([own(0, 30), own(1, 30)], peers[1:], LIMITS)
    assert alone is not None
    assert (alone.target, alone.keep_records) == ("b", 22)
    assert sliced([own(0, 30), own(1, 30)], [Peer(member="b", busy_seconds=0.48)], LIMITS) is None


def test_a_receiver_that_has_nothing_has_to_wait_for_the_handoff() -> None:
    """Of 0.48 s 0.38 are gone: 16 records, of which 6 are too many here. From 0.015 s on it has time for 8 records."""
    queues = [own(0, 8, newest_age=0.38), own(1, 8, newest_age=0.38)]
    idle = sliced(queues, [Peer(member="b", busy_seconds=0.0)], LIMITS)
    assert idle is not None
    assert idle.keep_records == 0
    assert sliced(queues, [Peer(member="b", busy_seconds=0.015)], LIMITS) == idle
    later = sliced(queues, [Peer(member="b", busy_seconds=0.03)], LIMITS)
    assert later is not None
    assert later.keep_records == 2


def test_work_on_its_way_counts() -> None:
    assert sliced([own(0, 40)], [Peer(member="b", busy_seconds=0.0)], LIMITS, incoming_seconds=0.2) is not None
    quiet = Limits(objective_seconds=0.5, soft=False)
    assert sliced([own(0, 40)], [Peer(member="b", busy_seconds=0.0)], quiet) is None


def test_what_may_not_move_stays() -> None:
    peers = [Peer(member="b", busy_seconds=0.0)]
    assert sliced([own(0, 30, movable=False), own(1, 30, movable=False)], peers, LIMITS) is None
    assert sliced([own(0, 60, taken_seconds=0.05)], peers, LIMITS) is None
    choice = sliced([own(0, 30, taken_seconds=0.05), own(1, 30)], peers, LIMITS)
    assert choice is not None
    assert choice.partition.partition == 1


def test_a_large_difference_is_halved_where_it_is_allowed() -> None:
    """40 records, in time; the other has nothing: the partition nearest to 20 goes."""
    queues, peers = [own(0, 15), own(1, 22), own(2, 3)], [Peer(member="b", busy_seconds=0.0)]
    choice = sliced(queues, peers, LIMITS)
    assert choice is not None
    assert (choice.partition.partition, choice.tier, choice.keep_records) == (1, Tier.SOFT, 0)
    assert sliced(queues, peers, Limits(objective_seconds=0.5, soft=False)) is None
    assert sliced(queues, [Peer(member="b", busy_seconds=0.35)], LIMITS) is None


def test_a_busy_member_is_busy_by_what_it_told_and_what_came_and_went_since() -> None:
    assert predicted(0.4, 10.0, [], 10.3, 1.0) == pytest.approx(0.1)
    assert predicted(0.4, 10.0, [], 10.5, 1.0) == 0.0
    assert predicted(0.4, 10.0, [], 10.3, 2.0) == 0.0
    burst = (10.5, 0.3)
    assert predicted(0.1, 10.0, [burst], 10.6, 1.0) == pytest.approx(0.2), "it was idle before the burst"
    assert predicted(0.0, 10.0, [(10.55, -0.1), burst], 10.6, 1.0) == pytest.approx(0.1), "what it passed on is gone"
    assert predicted(0.0, 10.0, [burst, (10.55, 0.2)], 10.6, 1.0) == pytest.approx(0.4), "what it was given is there"
    assert predicted(0.0, 10.5, [(10.499, 0.3)], 10.6, 1.0) == pytest.approx(0.2), "on its way when it told"
    assert predicted(0.0, 0.0, [], 0.0, 0.0) == math.inf


def test_what_nobody_could_finish_in_time_stays_and_the_others_make_room() -> None:
    idle = [Peer(member="b", busy_seconds=0.0)]
    choice = sliced([own(0, 60), own(1, 10)], idle, LIMITS)
    assert choice is not None
    assert (choice.partition.partition, choice.keep_records) == (1, 0)
    assert sliced([own(0, 60)], idle, LIMITS) is None, "a handoff would only make it later"
    fast = sliced([own(0, 60)], [Peer(member="b", busy_seconds=0.0, speed=2.0)], LIMITS)
    assert fast is not None, "a faster member can do it"
    two = sliced([own(0, 60), own(1, 70)], idle, LIMITS)
    assert two is not None
    assert (two.partition.partition, two.keep_records) == (0, 0), "the larger one stays, the other one goes whole"


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_numbers_that_are_none_are_refused(bad: float) -> None:
    with pytest.raises(SliceError):
        own(0, 1, work=bad)
    with pytest.raises(SliceError):
        Peer(member="b", busy_seconds=bad)
    with pytest.raises(SliceError):
        Limits(objective_seconds=bad)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_a_member_is_not_taken_for_idle_because_of_a_number_that_is_none(bad: float) -> None:
    with pytest.raises(SliceError):
        predicted(bad, 10.0, [], 10.3, 1.0)
    with pytest.raises(SliceError):
        predicted(0.4, 10.0, [], 10.3, bad)
    if bad != -1.0:
        with pytest.raises(SliceError):
            predicted(0.4, bad, [], 10.3, 1.0)
        with pytest.raises(SliceError):
            predicted(0.4, 10.0, [], bad, 1.0)


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_nothing_is_decided_by_a_capacity_or_work_on_its_way_that_is_none(bad: float) -> None:
    peers = [Peer(member="b", busy_seconds=0.0)]
    with pytest.raises(SliceError):
        sliced([own(0, 30), own(1, 30)], peers, LIMITS, capacity=bad)
    with pytest.raises(SliceError):
        sliced([own(0, 30), own(1, 30)], peers, LIMITS, incoming_seconds=bad)
    assert sliced([own(0, 30), own(1, 30)], peers, LIMITS, capacity=0.0) is None


QUEUES = st.lists(st.tuples(st.integers(0, 80), st.booleans(), st.floats(0.0, 0.6)), max_size=6)
PEERS = st.lists(st.tuples(st.floats(0.0, 0.6), st.floats(0.2, 3.0), st.floats(-1.0, 1.0)), max_size=5)


def test_who_is_busier_is_given_nothing_where_all_is_late() -> None:
    """Of one burst that was too large for all of them three members made 540 moves in 5 s."""
    mine = [own(i, records, newest_age=2.0) for i, records in enumerate((400, 500, 600, 700))]
    busier = [Peer(member=name, busy_seconds=seconds) for name, seconds in (("b", 30.0), ("c", 40.0))]
    assert sliced(mine, busier, LIMITS) is None
    choice = sliced(mine, [*busier, Peer(member="d", busy_seconds=0.0)], LIMITS)
    assert choice is not None
    assert choice.target == "d"


@pytest.mark.slow
@given(QUEUES, PEERS, st.floats(0.0, 0.5))
@example([(2, False, 0.0), (6, True, 0.0)], [(0.25, 1.0, 0.0)], 0.25)
def test_nobody_is_given_what_all_together_cannot_do_in_time(
    queues: list[tuple[int, bool, float]], others: list[tuple[float, float, float]], incoming: float
) -> None:
    """Only what is movable goes, to a peer; what goes by the hard tier, the peers have the time for."""
    mine = [own(i, records, movable=movable, newest_age=age) for i, (records, movable, age) in enumerate(queues)]
    peers = [
        Peer(member=f"p{i}", busy_seconds=busy, speed=speed, slack=slack)
        for i, (busy, speed, slack) in enumerate(others)
    ]
    choice = sliced(mine, peers, LIMITS, incoming_seconds=incoming)
    assert choice == sliced(mine[::-1], peers[::-1], LIMITS, incoming_seconds=incoming)
    if choice is None:
        return
    entry = next(entry for entry in mine if entry.partition == choice.partition)
    peer = next(peer for peer in peers if peer.member == choice.target)
    assert entry.movable
    assert entry.work > 0
    records = round(entry.work / COST)
    assert 0 <= choice.keep_records < records
    if choice.tier is Tier.HARD:
        youngest = min(e.newest_age for e in mine if e.work > 0)
        room = LIMITS.objective_seconds - LIMITS.margin_seconds - youngest
        frees = [(room - max(p.busy_seconds, LIMITS.handoff_seconds)) * p.speed for p in peers]
        free = sum(max(0.0, each) for each in frees)
        if entry.work > max(room - LIMITS.handoff_seconds, *frees):
            # Late wherever it is: it makes room for a larger one that stays.
            assert any(e.work >= entry.work for e in mine if e is not entry and e.movable)
            free = math.inf
        # A record's rounding, and one that is not worth being waited for.
        assert (records - choice.keep_records - 2) * COST <= free + 1e-6
        if able := [p for p, left in zip(peers, frees, strict=True) if entry.work <= left]:
            assert peer.slack == max(p.slack for p in able)
            assert choice.keep_records == 0
        else:
            assert peer.busy_seconds == min(p.busy_seconds for p in peers)
    else:
        work = sum(e.work for e in mine) + incoming
        assert peer.busy_seconds + entry.work < work, "the difference is not turned round"


@given(st.lists(st.integers(1, 80), min_size=1, max_size=6), st.floats(0.0, 0.4))
def test_more_waiting_never_passes_on_less(queue: list[int], busy: float) -> None:
    hard = Limits(objective_seconds=0.5, soft=False)
    peers = [Peer(member="b", busy_seconds=busy)]

    def passed_on(extra: float) -> bool:
        mine = [own(i, records) for i, records in enumerate(queue)]
        return sliced(mine, peers, hard, incoming_seconds=extra) is not None

    assert passed_on(0.0) <= passed_on(0.1) <= passed_on(0.2)
