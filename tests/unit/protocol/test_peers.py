"""What the log says of the other members."""

from __future__ import annotations

from typing import Any

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol.pace import overdue_seconds
from loadtrim_agent.protocol.peers import Peers
from loadtrim_agent.wire.ownership_records import LoadRecord, MemberEntry

P0 = Partition("orders", 0)
OVERDUE_SECONDS = overdue_seconds(3)


def load(member: str, slack: float = 1.0) -> LoadRecord:
    return LoadRecord(group="g", member=member, at=0.0, generation=1, slack=slack)


@pytest.fixture
def peers() -> Peers:
    peers = Peers()
    peers.enter(100.0, ("a", "b", "me"))
    return peers


def test_nobody_is_overdue_at_first(peers: Peers) -> None:
    assert not peers.overdue(100.0, "me")
    assert peers.next_overdue == 100.0 + OVERDUE_SECONDS


def test_overdue_until_heard(peers: Peers) -> None:
    peers.note_load(101.0, load("a"))
    assert peers.overdue(100.0 + OVERDUE_SECONDS, "me")
    assert peers.next_overdue == 101.0 + OVERDUE_SECONDS, "one that is overdue wakes nobody again"
    peers.note_load(104.0, load("b"))
    assert not peers.overdue(103.5, "me")


def test_one_that_is_heard_of_again_may_be_overdue_again(peers: Peers) -> None:
    peers.note_load(101.0, load("a"))
    assert peers.overdue(103.0, "me")
    assert not peers.well("b")
    peers.note_load(103.2, load("b"))
    assert peers.well("b")
    assert not peers.overdue(103.5, "me")
    assert peers.overdue(104.0, "me")
    assert (peers.well("a"), peers.well("b")) == (False, True)
    assert peers.next_overdue == 103.2 + OVERDUE_SECONDS
    assert peers.overdue(106.2, "me")
    assert not peers.well("b")


def test_a_silent_member_is_given_nothing(peers: Peers) -> None:
    entries = {member: MemberEntry(attempt=1, topics=("orders",)) for member in "ab"}
    peers.note_load(100.0, load("a", slack=0.9))
    peers.note_load(102.0, load("b", slack=0.1))
    assert peers.takers(P0, entries, "me") == ["a", "b"]
    peers.overdue(103.0, "me")
    assert peers.takers(P0, entries, "me") == ["b"], "its session may be over in a moment"


def test_a_record_costs_no_look_at_all_members(peers: Peers) -> None:
    """Some thousand records a second are read in a group of 500, which has as many members to look at."""
    peers.enter(0.0, [f"m{index}" for index in range(500)])
    looks: list[float] = []

    class Looked(dict[str, Any]):
        def items(self) -> Any:
            looks.append(now)
            return super().items()

    peers._peers = Looked(peers._peers)
    for number in range(10_000):
        now = number / 1_000
        peers.note_load(now, load(f"m{number % 500}"))
        assert not peers.overdue(now, "me")
    assert 1 <= len(looks) <= 5


def test_own_silence_does_not_count(peers: Peers) -> None:
    peers.note_load(200.0, load("a"))
    peers.note_load(200.0, load("b"))
    assert not peers.overdue(201.0, "me")


def test_alone_nobody_is_overdue() -> None:
    assert Peers().next_overdue == float("inf")


def test_strangers_are_not_listened_to(peers: Peers) -> None:
    peers.note_load(200.0, load("stranger"))
    assert peers.next_overdue == 100.0 + OVERDUE_SECONDS


def test_takers_have_the_topic_stay_and_have_most_slack_first(peers: Peers) -> None:
    entries = {
        "a": MemberEntry(attempt=1, topics=("orders",)),
        "b": MemberEntry(attempt=1, topics=("orders", "refunds")),
        "c": MemberEntry(attempt=1, topics=("refunds",)),
        "me": MemberEntry(attempt=1, topics=("orders",)),
    }
    peers.note_load(100.0, load("b", slack=0.9))
    peers.note_load(100.0, load("a", slack=0.5))
    assert peers.takers(P0, entries, "me") == ["b", "a"]
    peers.charge("b", 0.5)
    assert peers.takers(P0, entries, "me") == ["a", "b"]
    peers.charge("nobody", 1.0)
    peers.announce_leaving("a")
    assert peers.takers(P0, entries, "me") == ["b"]


def test_leaving_is_remembered_while_the_member_is_there(peers: Peers) -> None:
    peers.announce_leaving("a")
    peers.enter(101.0, ("a", "me"))
    assert peers.leaving == {"a"}
    peers.enter(102.0, ("b", "me"))
    assert peers.leaving == frozenset()


def test_leaving_ends_when_it_has_left(peers: Peers) -> None:
    peers.announce_leaving("a")
    peers.forget_leaving("a")
    peers.forget_leaving("a")
    assert peers.leaving == frozenset()


def test_a_new_generation_gives_everybody_time_again(peers: Peers) -> None:
    peers.note_load(100.0, load("a", slack=0.25))
    peers.enter(110.0, ("a", "b"))
    assert not peers.overdue(110.0 + OVERDUE_SECONDS - 0.1, "me")
    assert peers.takers(P0, {m: MemberEntry(attempt=1, topics=("orders",)) for m in "ab"}, "me") == ["a", "b"]


def test_members_of_a_large_group_are_heard_of_less_often() -> None:
    peers = Peers()
    peers.enter(100.0, [f"m{index}" for index in range(300)])
    assert peers.next_overdue == 108.0
    assert not peers.overdue(107.9, "m1")
    assert peers.overdue(108.0, "m1")
    peers.enter(200.0, ("a", "me"))
    assert peers.next_overdue == 203.0, "a small group watches closely again"
