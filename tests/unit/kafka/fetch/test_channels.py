"""Which lane asks what, and whose answers count."""

from __future__ import annotations

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.channels import (
    BUNDLE_PARTITIONS,
    BUNDLES_MAX,
    EXPRESS_WAIT_MS,
    BrokerLanes,
    Lane,
    bundle_for,
)
from loadtrim_agent.kafka.fetch.chunk import frame
from loadtrim_agent.kafka.fetch.state import Budget, Taken

from .batches import batch

ONE, TWO = Partition("topic", 0), Partition("topic", 1)
WAIT_MS = 500


def lanes_of(*states: Taken, full: set[Partition] | None = None) -> BrokerLanes:
    refused = full if full is not None else set()
    lanes = BrokerLanes(1, wait_ms=WAIT_MS, has_room=lambda state: state.partition not in refused)
    for state in states:
        lanes.add(state)
    return lanes


def test_what_is_taken_while_a_poll_is_out_goes_by_the_express_at_once() -> None:
    one, two = Taken(ONE, 1, 5), Taken(TWO, 2, 9)
    lanes = lanes_of(one)
    poll = lanes.next(Lane.POLL)
    assert poll is not None
    assert (poll.fetch, poll.wait_ms) == ([(ONE, 5)], WAIT_MS)
    assert lanes.next(Lane.EXPRESS) is None
    lanes.add(two)
    express = lanes.next(Lane.EXPRESS)
    assert express is not None
    assert (express.fetch, express.wait_ms, express.session) == ([(TWO, 9)], 0, (0, -1))
    lanes.answered(Lane.EXPRESS, 0, 1.0)
    again = lanes.next(Lane.EXPRESS)
    assert again is not None
    assert again.wait_ms == EXPRESS_WAIT_MS, "nothing was there: it waits a moment now"
    lanes.answered(Lane.POLL, 77, 1.0)
    poll = lanes.next(Lane.POLL)
    assert poll is not None
    assert (poll.fetch, poll.session) == ([(TWO, 9)], (77, 1)), "the poll takes it over, the express out or not"


def test_what_is_fetched_ahead_is_asked_for_once_and_then_left_to_the_poll() -> None:
    one, two, three = Taken(ONE, 1, 5), Taken(TWO, 2, 9), Taken(Partition("topic", 2), 3, 1)
    two.ahead = True
    lanes = lanes_of(one)
    lanes.next(Lane.POLL)
    lanes.add(two)
    express = lanes.next(Lane.EXPRESS)
    assert express is not None
    assert express.fetch == [(TWO, 9)]
    lanes.answered(Lane.EXPRESS, 0, 1.0)
    assert lanes.next(Lane.EXPRESS) is None, "the lane is free for what is ours"
    lanes.add(three)
    express = lanes.next(Lane.EXPRESS)
    assert express is not None
    assert express.fetch == [(three.partition, 1)]
    lanes.answered(Lane.EXPRESS, 0, 1.0)
    lanes.answered(Lane.POLL, 77, 1.0)
    poll = lanes.next(Lane.POLL)
    assert poll is not None
    assert (TWO, 9) in poll.fetch


def test_a_hot_partition_is_not_asked_for_twice() -> None:
    one, two = Taken(ONE, 1, 5), Taken(TWO, 2, 9)
    lanes = lanes_of(one)
    lanes.next(Lane.POLL)
    lanes.add(two)
    lanes.next(Lane.EXPRESS)
    lanes.answered(Lane.POLL, 77, 1.0)
    poll = lanes.next(Lane.POLL)
    assert poll is not None
    assert poll.fetch == []
    lanes.failed(Lane.EXPRESS)
    again = lanes.next(Lane.EXPRESS)
    assert again is not None
    assert again.fetch == [(TWO, 9)], "an express request that failed is asked again"


def test_a_poll_that_asks_from_an_earlier_offset_answers_at_once_and_needs_no_express_beside_it() -> None:
    one = Taken(ONE, 1, 5)
    lanes = lanes_of(one)
    lanes.next(Lane.POLL)
    one.offset = 7  # an express request that was out when the poll was sent has brought two records
    lanes.touch(ONE)
    assert lanes.next(Lane.EXPRESS) is None
    lanes.remove(ONE)
    lanes.add(Taken(ONE, 2, 6))
    assert lanes.next(Lane.EXPRESS) is not None, "another take, even where its offset is no lower"


def test_answers_to_an_earlier_take_or_offset_count_for_nothing() -> None:
    one = Taken(ONE, 1, 5)
    lanes = lanes_of(one)
    lanes.next(Lane.POLL)
    assert lanes.asked(Lane.POLL, ONE) is one
    one.offset = 6
    assert lanes.asked(Lane.POLL, ONE) is None
    lanes.remove(ONE)
    assert lanes.asked(Lane.POLL, ONE) is None
    lanes.add(Taken(ONE, 2, 5))
    assert lanes.asked(Lane.POLL, ONE) is None


def test_a_full_partition_is_forgotten_until_there_is_room() -> None:
    full: set[Partition] = set()
    lanes = lanes_of(Taken(ONE, 1, 5), Taken(TWO, 2, 9), full=full)
    lanes.next(Lane.POLL)
    lanes.answered(Lane.POLL, 77, 1.0)
    full.add(ONE)
    lanes.touch(ONE)
    poll = lanes.next(Lane.POLL)
    assert poll is not None
    assert (poll.fetch, poll.forget) == ([], [ONE])
    full.clear()
    lanes.touch(ONE)
    express = lanes.next(Lane.EXPRESS)
    assert express is not None
    assert express.fetch == [(ONE, 5)]


def test_nothing_to_fetch_is_nothing_to_ask() -> None:
    lanes = lanes_of(Taken(ONE, 1, 5))
    lanes.remove(ONE)
    assert lanes.next(Lane.POLL) is None
    assert lanes.next(Lane.EXPRESS) is None


def test_buffers_are_counted_until_they_are_unpacked() -> None:
    state, budget = Taken(ONE, 1, 0), Budget(10_000)
    chunks = []
    for number in range(3):
        chunk = frame(
            ONE, number, batch(number, [(number, 1, b"x" * 2_000)]), (), committed_only=False, check_crcs=True
        )
        assert chunk is not None
        chunks.append(chunk)
        state.buffer(chunk)
        budget.grew(chunk.size_bytes)
    assert not state.has_room(4_000)
    assert [chunk.refill for chunk in chunks] == [False, True, False]
    assert budget.room(4_000, [state]) == 0
    assert budget.exhausted
    chunks[0].done = chunks[1].done = True
    assert state.has_room(4_000)
    assert budget.room(4_000, [state]) == 4_000
    assert not budget.exhausted


def test_few_partitions_are_one_bundle_and_many_are_dealt_out_over_a_bounded_number() -> None:
    filled: list[int] = []
    for _ in range(BUNDLES_MAX * BUNDLE_PARTITIONS + 3 * BUNDLES_MAX):
        number = bundle_for(filled)
        if number == len(filled):
            assert all(count >= BUNDLE_PARTITIONS for count in filled)
            filled.append(0)
        filled[number] += 1
    assert filled == [BUNDLE_PARTITIONS + 3] * BUNDLES_MAX
    filled[2] = BUNDLE_PARTITIONS - 1
    assert bundle_for(filled) == 2, "what went leaves room"
