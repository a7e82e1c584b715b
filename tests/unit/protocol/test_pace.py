"""The shortest time between two rebalances, by the size of the group."""

from __future__ import annotations

import pytest

from loadtrim_agent.protocol.pace import UNPACED_MEMBERS_MAX, load_seconds, overdue_seconds, pace_seconds


@pytest.mark.parametrize(
    ("members", "seconds"), [(0, 0.0), (UNPACED_MEMBERS_MAX, 0.0), (30, 0.2), (100, 0.9), (110, 1.0), (3_000, 1.0)]
)
def test_only_large_groups_are_paced_and_none_for_longer_than_a_second(members: int, seconds: float) -> None:
    assert pace_seconds(members) == pytest.approx(seconds)


@pytest.mark.parametrize(("members", "seconds"), [(0, 1.0), (10, 1.0), (100, 1.0), (300, 3.0), (1_000, 10.0)])
def test_all_members_together_tell_their_load_a_hundred_times_a_second_at_most(members: int, seconds: float) -> None:
    assert load_seconds(members) == seconds
    assert overdue_seconds(members) == seconds + 2.0, "a record that is late is no death"
