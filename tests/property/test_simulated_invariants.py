"""The invariants of the pure simulation see what they are there to see: a schedule is clean, and is not with a fault.

A fault is planted in the product by the smallest patch that does it. What the rules of the protocol are for:
``test_group_regressions.py``.
"""

from __future__ import annotations

from loadtrim_agent.protocol.assigned_partition import AssignedPartition
from loadtrim_agent.protocol.partitions import PartitionTable
from sim.script import Script

from .test_group_regressions import P0, Patch, fails_without

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
