"""What a plan is about to bring is fetched before it comes, and owned by nobody for that."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.group_config import Code
from loadtrim_agent.protocol.prefetch import PREFETCH_SECONDS, PREFETCHES_MAX, Prefetches
from loadtrim_agent.wire.ownership_records import MovePlan, PlanRecord
from sim.driver import GROUP, ME, OTHER, Driver, release

P0, P1, P2 = (Partition("orders", index) for index in range(3))


def member() -> Driver:
    """P0 is mine, P1 and P2 are the other's, P3 is the third one's."""
    return Driver().running(0, owns={ME: (0,), OTHER: (1, 2), "m3": (3,)})


def plan(d: Driver, sequence: int, *moves: tuple[int, str, str], generation: int = 1) -> list[c.Command]:
    """(partition, from, to)"""
    advised = tuple(MovePlan(topic="orders", partition=p, source=source, target=to) for p, source, to in moves)
    return d.read(
        PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=generation, sequence=sequence, moves=advised)
    )


def expecting(*indexes: int) -> Driver:
    d = member()
    plan(d, 1, *((index, OTHER, ME) for index in indexes))
    return d


def test_what_a_plan_brings_is_prefetched() -> None:
    d = member()
    assert plan(d, 1, (1, OTHER, ME), (2, OTHER, "m3")) == [c.PrefetchCommand(partitions=(P1,))]
    assert P1 not in d.machine.partitions.assigned
    assert d.machine.owned_partitions() == (P0,)


def test_the_release_opens_it_and_the_prefetch_is_over() -> None:
    d = expecting(1)
    d.read(release(1, 1, 0, OTHER, ME, offset=33))
    assert d.kinds() == ["Open"]
    assert d.after(PREFETCH_SECONDS) == [] or "DropPrefetch" not in d.kinds()


def test_a_void_release_changes_nothing() -> None:
    d = expecting(1)
    d.read(release(1, 1, 5, OTHER, ME))
    assert d.kinds() == []
    d.read(release(1, 1, 0, OTHER, "m3"))
    assert d.out == [c.DropPrefetchCommand(partitions=(P1,))], "this one counts: it went elsewhere"


def test_the_next_plan_keeps_what_it_advises_too_and_drops_the_rest() -> None:
    d = expecting(1, 2)
    d.after(PREFETCH_SECONDS / 2)
    assert plan(d, 2, (2, OTHER, ME)) == [c.DropPrefetchCommand(partitions=(P1,))]
    d.after(PREFETCH_SECONDS * 0.75)
    assert "DropPrefetch" not in d.kinds(), "its time has begun anew"
    assert plan(d, 3) == [c.DropPrefetchCommand(partitions=(P2,))]


def test_an_owner_that_takes_too_long_is_not_waited_for() -> None:
    d = expecting(1)
    assert d.machine.wakeup() <= d.now + PREFETCH_SECONDS
    d.after(PREFETCH_SECONDS)
    assert d.only(c.DropPrefetchCommand).partitions == (P1,)
    d.read(release(1, 1, 0, OTHER, ME, offset=33))
    assert d.only(c.OpenCommand).offset == 33, "it comes all the same"


@pytest.mark.parametrize("ending", ["barrier", "forgotten", "log", "leaving"])
def test_whatever_ends_moves_ends_prefetches(ending: str) -> None:
    d = expecting(1)
    match ending:
        case "barrier":
            d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
            kinds = d.kinds()
            assert kinds.index("DropPrefetch") < kinds.index("SendJoin")
        case "forgotten":
            d.heartbeat_answered(Code.UNKNOWN_MEMBER_ID)
        case "log":
            d.feed(e.LogFailedEvent, failed=True)
        case _:
            d.feed(e.LeaveWantedEvent, deadline=d.now)
            d.after(1.0)
    assert "DropPrefetch" in d.kinds() or ending == "leaving"
    assert d.machine._prefetches.wakeup() == float("inf")


@pytest.mark.parametrize(
    ("move", "why"),
    [
        ((1, "m3", ME), "not that one's to give"),
        ((0, ME, OTHER), "given away, not taken"),
        ((0, OTHER, ME), "mine already"),
    ],
)
def test_advice_that_cannot_be_followed_is_not_prefetched(move: tuple[int, str, str], why: str) -> None:
    d = member()
    plan(d, 1, move)
    assert "Prefetch" not in d.kinds(), why


def test_a_plan_of_another_generation_or_an_old_one_brings_nothing() -> None:
    d = member()
    plan(d, 9, (1, OTHER, ME), generation=0)
    assert d.kinds() == []
    plan(d, 5, (1, OTHER, ME))
    assert d.kinds() == ["Prefetch"]
    assert plan(d, 4, (2, OTHER, ME)) == []


def test_who_leaves_prefetches_nothing() -> None:
    d = member()
    d.feed(e.LeaveWantedEvent, deadline=d.now + 5.0)
    plan(d, 1, (1, OTHER, ME))
    assert "Prefetch" not in d.kinds()


def test_they_are_bounded() -> None:
    out: list[c.Command] = []
    prefetches = Prefetches(out.append)
    prefetches.advised(0.0, (Partition("orders", index) for index in range(PREFETCHES_MAX + 1)))
    count, begun = out
    assert isinstance(count, c.CountCommand)
    assert isinstance(begun, c.PrefetchCommand)
    assert len(begun.partitions) == PREFETCHES_MAX
