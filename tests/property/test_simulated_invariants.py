"""The invariants of the pure simulation see what they are there to see: a schedule is clean, and is not with a fault.

A fault is planted in the product by the smallest patch that does it. What the rules of the protocol are for:
``test_group_regressions.py``.
"""

from __future__ import annotations

from typing import Any

from loadtrim_agent.protocol.assigned_partition import AssignedPartition
from loadtrim_agent.protocol.counters import ProtocolCount
from loadtrim_agent.protocol.heartbeats import Heartbeats
from loadtrim_agent.protocol.membership_effects import MembershipEffects
from loadtrim_agent.protocol.ownership import Ownership
from loadtrim_agent.protocol.partitions import PartitionTable
from sim.chaos import simulate
from sim.options import FaultOptions, drawn_options
from sim.script import Script

from .test_group_regressions import P0, Patch, fails_without

# -- I4: no pause without a move ---------------------------------------------------------------------------------


def third_member_joins() -> None:
    """A member that is well joins a rebalance that another one began."""
    world = Script()
    world.members_in(2)
    world.join()
    world.run(5.0)


def with_a_pause_in_each_rebalance(patch: Patch) -> None:
    send_join = MembershipEffects.send_join

    def pause_and_send_join(self: MembershipEffects, *args: Any, **options: Any) -> None:
        self._session._lease.revoke()
        send_join(self, *args, **options)

    patch.setattr(MembershipEffects, "send_join", pause_and_send_join)


def test_a_lease_that_is_given_up_for_a_rebalance_is_seen() -> None:
    fails_without(with_a_pause_in_each_rebalance, third_member_joins, "I4")


def nothing_happens() -> None:
    """Two members have nothing to do but to renew their leases."""
    world = Script()
    world.members_in(2)
    world.calm = True
    world.run(20.0)


def with_rare_heartbeats(patch: Patch) -> None:
    def next_one(self: Heartbeats, now: float) -> None:
        self._due_at = now + 5.8

    patch.setattr(Heartbeats, "next", next_one)


def test_a_lease_that_runs_out_though_nothing_happens_is_seen() -> None:
    fails_without(with_rare_heartbeats, nothing_happens, "I4")


def move_called_off_by_a_rebalance() -> None:
    """A is to give its partition to B and user code has a record in hand; a third member's rebalance ends the move."""
    world = Script()
    world.cost_seconds = lambda: 1.0
    a, b = world.members_in(2)
    world.produce(P0, 3)
    a.move(P0, b.member)
    world.join()
    world.run(8.0)
    assert world.owner(P0) is a


def with_moves_that_begin_again(patch: Patch) -> None:
    called_off: list[AssignedPartition] = []
    resume, enter = PartitionTable._resume, PartitionTable.enter

    def resume_for_now(self: PartitionTable, entry: AssignedPartition, *why: ProtocolCount) -> None:
        resume(self, entry, *why)
        called_off.append(entry)

    def enter_and_stop(self: PartitionTable, ownership: Ownership, member: str) -> None:
        enter(self, ownership, member)
        while called_off:
            self.intend(0.0, called_off.pop().partition, "")

    patch.setattr(PartitionTable, "_resume", resume_for_now)
    patch.setattr(PartitionTable, "enter", enter_and_stop)


def test_a_move_that_ended_excuses_no_later_stop() -> None:
    fails_without(with_moves_that_begin_again, move_called_off_by_a_rebalance, "I4")


def test_a_plan_read_before_its_generation_excuses_the_move_that_it_begins() -> None:
    """A wish of the generation before, for the same partition, had ended that excuse: the product did nothing wrong."""
    simulate(155213434)


# -- I3: nothing below a commit ----------------------------------------------------------------------------------


def owner_dies_after_its_commit() -> None:
    """A has done five records and committed them, and dies."""
    world = Script()
    a, b = world.members_in(2)
    world.produce(P0, 5)
    world.run(1.0)
    a.commit_done()
    world.run(1.0)
    a.crash()
    world.run(10.0)
    assert world.owner(P0) is b


def with_starts_below_the_commit(patch: Patch) -> None:
    open_ = PartitionTable._open

    def open_lower(
        self: PartitionTable, entry: AssignedPartition, offset: int | None, handoff_seconds: float | None = None
    ) -> None:
        lower = max(0, offset - 5) if offset is not None and handoff_seconds is None else offset
        open_(self, entry, lower, handoff_seconds)

    patch.setattr(PartitionTable, "_open", open_lower)


def test_a_start_below_the_commit_after_a_crash_is_seen() -> None:
    fails_without(with_starts_below_the_commit, owner_dies_after_its_commit, "I3")


def test_some_random_schedules_are_calm_from_the_beginning() -> None:
    """Else nothing would be said of the leases of a load without faults."""
    calm = [seed for seed in range(40) if drawn_options(seed).faults == FaultOptions()]
    assert len(calm) >= 5
    simulate(calm[0])
