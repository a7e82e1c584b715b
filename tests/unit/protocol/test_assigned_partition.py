"""The life of one acquisition: the table is complete, and nothing but the table moves it."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.assigned_partition import (
    HISTORY_ENTRIES_MAX,
    TRANSITIONS,
    AssignedEvent,
    AssignedPartition,
    AssignedState,
)

P0 = Partition("orders", 0)


def entry(state: AssignedState) -> AssignedPartition:
    return AssignedPartition(partition=P0, acquisition_id=1, state=state)


@pytest.mark.parametrize("state", AssignedState)
@pytest.mark.parametrize("event", AssignedEvent)
def test_what_the_table_names_happens_and_all_else_is_a_contradiction(
    state: AssignedState, event: AssignedEvent
) -> None:
    one = entry(state)
    if event in TRANSITIONS[state]:
        one.advance(event)
        assert one.state is (TRANSITIONS[state][event] or state)
    else:
        with pytest.raises(InvariantError, match=rf"orders-0 \(acquisition 1\): {event.name} in {state.name}"):
            one.advance(event)
        assert one.state is state


def test_every_state_is_reached_and_every_acquisition_ends() -> None:
    reached = {follower for row in TRANSITIONS.values() for follower in row.values()}
    assert reached - {None} == set(AssignedState) - {AssignedState.FETCHING}
    assert all(AssignedEvent.DROPPED in row for row in TRANSITIONS.values())


def test_only_the_log_or_a_generation_ends_what_was_released() -> None:
    assert set(TRANSITIONS[AssignedState.TRANSFERRED]) == {AssignedEvent.DROPPED}


def test_a_contradiction_tells_the_partitions_history() -> None:
    one = entry(AssignedState.OPENING)
    one.advance(AssignedEvent.OPENED)
    one.advance(AssignedEvent.STOPPED)
    with pytest.raises(InvariantError) as caught:
        one.advance(AssignedEvent.RELEASE_SENT)
    assert caught.value.item == P0
    assert caught.value.history == ("OPENING: OPENED", "RUNNING: STOPPED")
    assert str(caught.value).splitlines() == [
        "orders-0 (acquisition 1): RELEASE_SENT in DRAINING",
        "  OPENING: OPENED",
        "  RUNNING: STOPPED",
    ]


def test_the_history_is_bounded() -> None:
    one = entry(AssignedState.RUNNING)
    for _ in range(HISTORY_ENTRIES_MAX):
        one.advance(AssignedEvent.STOPPED)
        one.advance(AssignedEvent.RESUMED)
    assert len(one.history) == HISTORY_ENTRIES_MAX
