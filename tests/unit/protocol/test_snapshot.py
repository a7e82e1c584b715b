"""What the other rooms may know of the machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.group_config import Code
from loadtrim_agent.protocol.membership_table import Phase
from loadtrim_agent.wire.ownership_records import LeavingRecord, MovePlan, PlanRecord
from sim.driver import GROUP, ME, OTHER, Driver, release

P0, P1 = Partition("orders", 0), Partition("orders", 1)


def test_before_the_start_it_is_empty() -> None:
    known = Driver().machine.snapshot()
    assert (known.phase, known.member, known.generation, known.stable) == (Phase.IDLE, "", -1, False)
    assert (known.assignment, known.owners, known.assigned, known.leaving) == (None, None, {}, frozenset())
    assert known.topics == known.subscribed == ("orders",)


def test_it_tells_the_membership_and_the_assigned_partitions() -> None:
    d = Driver().running(0, leader=OTHER)
    known = d.machine.snapshot()
    assert (known.member, known.generation, known.leader) == (ME, 1, OTHER)
    assert known.stable
    assert known.speaks_loadtrim
    assert not known.is_leader
    assert known.owners == {P0: ME}
    assert known.assigned[P0].state is AssignedState.RUNNING
    assert known.assigned[P0].committed == 5
    assert known.assigned[P0].opened
    assert known.assigned[P0].delivered


def test_it_is_made_once_an_event_and_does_not_change_afterwards() -> None:
    d = Driver().running(owns={ME: (0,), OTHER: (1,)})
    before = d.machine.snapshot()
    assert d.machine.snapshot() is before, "nothing happened"
    d.read(release(1, 1, 0, OTHER, ME))
    after = d.machine.snapshot()
    assert (before.owners, set(before.assigned)) == ({P0: ME, P1: OTHER}, {P0})
    assert (after.owners, set(after.assigned)) == ({P0: ME, P1: ME}, {P0, P1})


def test_a_member_that_leaves_is_among_those_that_leave() -> None:
    d = Driver().running(0)
    d.feed(e.LeaveWantedEvent, deadline=d.now + 10.0)
    assert d.machine.snapshot().leaving == {ME}


def test_use_of_the_log_shows_at_once() -> None:
    d = Driver()
    assert d.machine.snapshot().config.log_usable
    d.machine.use_log(False)
    assert not d.machine.snapshot().config.log_usable


def test_other_rooms_read_nothing_else_of_the_machine() -> None:
    root = Path(__file__).parents[3]
    door = "handle|wakeup|successor|use_log|snapshot|trace"
    reach = re.compile(rf"\bmachine(\(\))?\.(?!({door}|py)\b)\w+")
    found = [
        f"{path.relative_to(root)}: {match[0]}"
        for place in ("agent", "consumer_sdk", "spark", "benchmarks", "examples", "tests/integration", "tests/chaos")
        for path in sorted((root / place).rglob("*.py"))
        if path.parent.name != "protocol"
        for match in reach.finditer(path.read_text(encoding="utf-8"))
        if not path.read_text(encoding="utf-8")[: match.start()].endswith("protocol.")  # the module's name
    ]
    assert not found


def test_the_log_is_awaited_in_a_rebalance_and_while_something_comes_or_goes() -> None:
    d = Driver()
    assert d.machine.snapshot().awaits_log, "it is not in a generation"
    d.running(0, owns={ME: (0,), OTHER: (1,)})
    assert not d.machine.snapshot().awaits_log
    d.give(P0)
    assert d.machine.snapshot().awaits_log, "its own release is to be read"
    d.heartbeat_answered(Code.REBALANCE_IN_PROGRESS)
    assert d.machine.snapshot().awaits_log


def test_the_log_is_awaited_by_the_receiver_that_a_plan_names() -> None:
    d = Driver().running(0, owns={ME: (0,), OTHER: (1,)})
    move = MovePlan(topic="orders", partition=1, source=OTHER, target=ME)
    d.read(PlanRecord(group=GROUP, member=OTHER, at=0.0, generation=1, sequence=1, moves=(move,)))
    assert d.machine.snapshot().awaits_log
    d.read(release(1, 1, 0, OTHER, ME))
    assert not d.machine.snapshot().awaits_log, "it has come"


def test_the_log_is_awaited_while_a_member_leaves() -> None:
    d = Driver().running(0, owns={ME: (0,), OTHER: (1,)})
    d.read(LeavingRecord(group=GROUP, member=OTHER, at=0.0, generation=1))
    assert d.machine.snapshot().awaits_log, "it may give away what it has to any member"


@pytest.mark.parametrize(("members", "seconds"), [(2, 0.02), (96, 0.02), (97, 1 / 16)])
def test_the_log_is_read_as_often_as_the_size_of_the_group_allows_or_at_once(members: int, seconds: float) -> None:
    others = {f"other{i}": () for i in range(members - 2)}
    d = Driver().running(0, owns={ME: (0,), OTHER: (1,), **others})
    assert d.machine.snapshot().log_read_seconds == pytest.approx(seconds)
    d.give(P0)
    assert d.machine.snapshot().log_read_seconds == 0, "its own release is to be read"
