"""Which channel asks what, and whose answers count."""

from __future__ import annotations

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.channels import (
    EXPRESS_WAIT_MS,
    FETCH_GROUP_PARTITIONS,
    FETCH_GROUPS_MAX,
    BrokerChannels,
    FetchChannel,
    fetch_group_for,
)
from loadtrim_agent.kafka.fetch.chunk import frame
from loadtrim_agent.kafka.fetch.state import Budget, Taken

from .batches import batch

ONE, TWO = Partition("topic", 0), Partition("topic", 1)
WAIT_MS = 500


def lanes_of(*states: Taken, full: set[Partition] | None = None) -> BrokerChannels:
    refused = full if full is not None else set()
    channels = BrokerChannels(1, wait_ms=WAIT_MS, has_room=lambda state: state.partition not in refused)
    for state in states:
        channels.add(state)
    return channels


def test_what_is_taken_while_a_poll_is_out_goes_by_the_express_at_once() -> None:
    one, two = Taken(ONE, 1, 5), Taken(TWO, 2, 9)
    channels = lanes_of(one)
    poll = channels.next(FetchChannel.POLL)
    assert poll is not None
    assert (poll.fetch, poll.wait_ms) == ([(ONE, 5)], WAIT_MS)
    assert channels.next(FetchChannel.EXPRESS) is None
    channels.add(two)
    express = channels.next(FetchChannel.EXPRESS)
    assert express is not None
    assert (express.fetch, express.wait_ms, express.session) == ([(TWO, 9)], 0, (0, -1))
    channels.answered(FetchChannel.EXPRESS, 0, 1.0)
    again = channels.next(FetchChannel.EXPRESS)
    assert again is not None
    assert again.wait_ms == EXPRESS_WAIT_MS, "nothing was there: it waits a moment now"
    channels.answered(FetchChannel.POLL, 77, 1.0)
    poll = channels.next(FetchChannel.POLL)
    assert poll is not None
    assert (poll.fetch, poll.session) == ([(TWO, 9)], (77, 1)), "the poll takes it over, the express out or not"


def test_what_is_fetched_ahead_is_asked_for_once_and_then_left_to_the_poll() -> None:
    one, two, three = Taken(ONE, 1, 5), Taken(TWO, 2, 9), Taken(Partition("topic", 2), 3, 1)
    two.ahead = True
    channels = lanes_of(one)
    channels.next(FetchChannel.POLL)
    channels.add(two)
    express = channels.next(FetchChannel.EXPRESS)
    assert express is not None
    assert express.fetch == [(TWO, 9)]
    channels.answered(FetchChannel.EXPRESS, 0, 1.0)
    assert channels.next(FetchChannel.EXPRESS) is None, "the channel is free for what is ours"
    channels.add(three)
    express = channels.next(FetchChannel.EXPRESS)
    assert express is not None
    assert express.fetch == [(three.partition, 1)]
    channels.answered(FetchChannel.EXPRESS, 0, 1.0)
    channels.answered(FetchChannel.POLL, 77, 1.0)
    poll = channels.next(FetchChannel.POLL)
    assert poll is not None
    assert (TWO, 9) in poll.fetch


def test_a_hot_partition_is_not_asked_for_twice() -> None:
    one, two = Taken(ONE, 1, 5), Taken(TWO, 2, 9)
    channels = lanes_of(one)
    channels.next(FetchChannel.POLL)
    channels.add(two)
    channels.next(FetchChannel.EXPRESS)
    channels.answered(FetchChannel.POLL, 77, 1.0)
    poll = channels.next(FetchChannel.POLL)
    assert poll is not None
    assert poll.fetch == []
    channels.failed(FetchChannel.EXPRESS)
    again = channels.next(FetchChannel.EXPRESS)
    assert again is not None
    assert again.fetch == [(TWO, 9)], "an express request that failed is asked again"


def test_a_poll_that_asks_from_an_earlier_offset_answers_at_once_and_needs_no_express_beside_it() -> None:
    one = Taken(ONE, 1, 5)
    channels = lanes_of(one)
    channels.next(FetchChannel.POLL)
    one.offset = 7  # an express request that was out when the poll was sent has brought two records
    channels.mark_dirty(ONE)
    assert channels.next(FetchChannel.EXPRESS) is None
    channels.remove(ONE)
    channels.add(Taken(ONE, 2, 6))
    assert channels.next(FetchChannel.EXPRESS) is not None, "another take, even where its offset is no lower"


def test_answers_to_an_earlier_take_or_offset_count_for_nothing() -> None:
    one = Taken(ONE, 1, 5)
    channels = lanes_of(one)
    channels.next(FetchChannel.POLL)
    assert channels.asked(FetchChannel.POLL, ONE) is one
    one.offset = 6
    assert channels.asked(FetchChannel.POLL, ONE) is None
    channels.remove(ONE)
    assert channels.asked(FetchChannel.POLL, ONE) is None
    channels.add(Taken(ONE, 2, 5))
    assert channels.asked(FetchChannel.POLL, ONE) is None


def test_a_full_partition_is_forgotten_until_there_is_room() -> None:
    full: set[Partition] = set()
    channels = lanes_of(Taken(ONE, 1, 5), Taken(TWO, 2, 9), full=full)
    channels.next(FetchChannel.POLL)
    channels.answered(FetchChannel.POLL, 77, 1.0)
    full.add(ONE)
    channels.mark_dirty(ONE)
    poll = channels.next(FetchChannel.POLL)
    assert poll is not None
    assert (poll.fetch, poll.forget) == ([], [ONE])
    full.clear()
    channels.mark_dirty(ONE)
    express = channels.next(FetchChannel.EXPRESS)
    assert express is not None
    assert express.fetch == [(ONE, 5)]


def test_nothing_to_fetch_is_nothing_to_ask() -> None:
    channels = lanes_of(Taken(ONE, 1, 5))
    channels.remove(ONE)
    assert channels.next(FetchChannel.POLL) is None
    assert channels.next(FetchChannel.EXPRESS) is None


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
    for _ in range(FETCH_GROUPS_MAX * FETCH_GROUP_PARTITIONS + 3 * FETCH_GROUPS_MAX):
        number = fetch_group_for(filled)
        if number == len(filled):
            assert all(count >= FETCH_GROUP_PARTITIONS for count in filled)
            filled.append(0)
        filled[number] += 1
    assert filled == [FETCH_GROUP_PARTITIONS + 3] * FETCH_GROUPS_MAX
    filled[2] = FETCH_GROUP_PARTITIONS - 1
    assert fetch_group_for(filled) == 2, "what went leaves room"
