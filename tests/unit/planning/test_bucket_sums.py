"""The group's work per slot: dense, bounded, and the same as a plain dictionary would tell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadtrim_agent.planning.bucket_sums import BucketSums

KEPT, SPARE = 20, 5


def filled(*works: tuple[int, float]) -> BucketSums:
    sums = BucketSums(KEPT, SPARE)
    for slot, work in works:
        sums.add(slot, work)
    return sums


def test_what_members_tell_is_added_up_and_what_nobody_told_is_nothing() -> None:
    sums = filled((100, 1.0), (101, 2.0), (100, 0.5), (104, 4.0))
    assert sums.until(105) == [1.5, 2.0, 0.0, 0.0, 4.0]
    assert sums.until(107) == [1.5, 2.0, 0.0, 0.0, 4.0, 0.0, 0.0]
    assert sums.until(102) == [1.5, 2.0]
    assert sums.until(50) == []
    assert not BucketSums(KEPT, SPARE)
    assert BucketSums(KEPT, SPARE).until(7) == []


def test_a_guess_is_taken_back_but_never_below_nothing() -> None:
    sums = filled((100, 1.0), (101, 2.0))
    sums.take(100, 0.25)
    sums.take(101, 3.0)
    sums.take(5_000, 3.0)
    assert sums.until(102) == [0.75, 0.0]


def test_times_that_are_wild_cost_no_memory() -> None:
    sums = filled((100, 1.0), (10**12, 2.0), (101, 3.0))
    assert sums.until(10**12 + 1) == [2.0]
    assert sums.until(200) == []


ENTRIES = st.lists(st.tuples(st.integers(1_000, 1_018), st.floats(0.0, 9.0)), max_size=40)


@given(ENTRIES, st.integers(995, 1_030))
def test_in_any_order_it_is_what_a_dictionary_holds(entries: list[tuple[int, float]], end: int) -> None:
    plain: dict[int, float] = {}
    for slot, work in entries:
        plain[slot] = plain.get(slot, 0.0) + work
    sums = filled(*entries)
    sums.prune()
    first = max(min(plain, default=end), end - KEPT)
    assert sums.until(end) == [plain.get(slot, 0.0) for slot in range(first, end)]


def test_old_slots_are_dropped() -> None:
    sums = BucketSums(KEPT, SPARE)
    for slot in range(1_000):
        sums.add(slot, float(slot))
        sums.prune()
        assert len(sums.until(slot + 1)) == min(slot + 1, KEPT)
    sums.add(970, 5.0)  # longer ago than anybody asks for
    assert sums.until(1_000) == [float(slot) for slot in range(980, 1_000)]


def test_the_total_of_what_was_told() -> None:
    sums = BucketSums(10, 5)
    assert sums.total(0, 5) == 0
    for slot in (3, 4, 7):
        sums.add(slot, float(slot))
    assert sums.total(0, 5) == 7
    assert sums.total(4, 100) == 11
    assert sums.total(8, 9) == 0
