"""What a group does while one thing fails for long: how often it rebalances, and that it goes on."""

from __future__ import annotations

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import AssignmentRecord
from sim.controllog import AppendFate
from sim.coordinator import GroupState, SyncRequest
from sim.network import Fate
from sim.options import GroupOptions
from sim.script import Script

P0 = Partition("orders", 0)
IN_THE_LOG = GroupOptions(auto_commit_seconds=600.0, inline_limit_bytes=0)
"""Assignments travel in the log, as in groups of more than some fifty members."""


def test_one_member_that_cannot_read_the_log_leaves_the_others_in_peace() -> None:
    world = Script(topics=(("orders", 6),), group=IN_THE_LOG)
    first, second, blind = world.members_in(3)
    world.moved(P0, first, blind)
    generation = world.coordinator.generation
    blind.reader.block(world.scheduler.now + 60.0)
    newcomer = world.join()
    world.run(30.0)
    assert world.coordinator.generation == generation + 1, "the newcomer's, and no other"
    assert world.all_in()
    assert all(world.owner(partition) for partition in world.data), "and the blind one delivers what it owns"
    partition = next(iter(first.machine.snapshot().assigned))
    world.moved(partition, first, second)
    world.run(35.0)
    assert world.coordinator.generation == generation + 1, "when it reads the log again, it needs no rebalance"
    world.moved(P0, blind, newcomer)


def test_a_slow_append_of_the_assignment_costs_the_group_its_moves_for_a_second_or_two() -> None:
    world = Script(topics=(("orders", 6),), group=IN_THE_LOG)
    first, second = world.members_in(2)
    world.next_append(first, AssignmentRecord, AppendFate(land_seconds=1.5))
    third = world.join()
    world.run_until(lambda: third.machine.snapshot().stable)
    assert first.machine.partitions.ownership is None
    world.run(5.0)
    assert all(m.machine.partitions.ownership is not None for m in (first, second, third))
    world.moved(next(iter(first.machine.snapshot().assigned)), first, second)


def test_a_coordinator_that_cannot_store_assignments_is_not_asked_all_the_time() -> None:
    world = Script(topics=(("orders", 6),))
    world.members_in(3)
    generation = world.coordinator.generation
    world.coordinator.refuses_sync = lambda: True
    world.join()
    world.run(2.0)
    world.coordinator.refuses_sync = lambda: False
    world.settle(seconds=3.0)
    assert world.coordinator.generation - generation <= 15


def test_a_leader_that_dies_before_it_assigns_costs_nobody_the_lease() -> None:
    world = Script(topics=(("orders", 6),))
    leader, second, third = world.members_in(3)
    world.moved(P0, leader, second)
    world.next_request(leader, SyncRequest, Fate(arrives=False))
    world.join()
    world.run_until(lambda: world.coordinator.state is GroupState.COMPLETING)
    leader.crash()
    for _ in range(150):
        world.run(0.1)
        assert world.scheduler.now < min(second.lease_until, third.lease_until)
    assert world.all_in()
    assert len(world.coordinator.members) == 3
