"""The shortest time between two rebalances, by the size of the group."""

from __future__ import annotations

import pytest

from loadtrim_agent.protocol.group_config import GroupConfig
from loadtrim_agent.protocol.pace import UNPACED_MEMBERS_MAX, load_seconds, overdue_seconds, pace_seconds, read_seconds


@pytest.mark.parametrize(
    ("members", "seconds"), [(0, 0.0), (UNPACED_MEMBERS_MAX, 0.0), (30, 0.2), (100, 0.9), (110, 1.0), (3_000, 1.0)]
)
def test_only_large_groups_are_paced_and_none_for_longer_than_a_second(members: int, seconds: float) -> None:
    assert pace_seconds(members) == pytest.approx(seconds)


@pytest.mark.parametrize(("members", "seconds"), [(0, 1.0), (16, 1.0), (32, 2.0), (96, 6.0), (100, 6.0), (1_000, 6.0)])
def test_all_members_together_tell_their_load_sixteen_times_a_second(members: int, seconds: float) -> None:
    assert load_seconds(members) == seconds
    assert overdue_seconds(members) == seconds + 2.0, "a record that is late is no death"


@pytest.mark.parametrize("members", [0, 10, 30, 96, 97, 300, 1_000])
def test_a_member_of_a_quiet_group_reads_the_log_sixteen_times_a_second_at_most(members: int) -> None:
    told = members / load_seconds(members)
    assert min(told, 1.0 / read_seconds(members)) <= 16.0


def test_an_eviction_is_watched_for_before_the_default_session_ends() -> None:
    assert overdue_seconds(1_000) < GroupConfig(group="g", topics=()).session_timeout
