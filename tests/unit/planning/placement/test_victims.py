"""What is known of a member that may go."""

from __future__ import annotations

from loadtrim_agent.planning.placement.victims import _owned
from unit.planning.virtual_group import item


def test_partitions_are_counted_and_their_work_with_what_waits_is_added_up() -> None:
    items = [item(0, "a", 0.25), item(1, "a", 0.5), item(2, "b", 1.0), item(3, None, 2.0)]
    assert _owned(items) == {"a": (2, 0.75), "b": (1, 1.0)}
