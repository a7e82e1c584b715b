"""Settings of the protocol."""

from __future__ import annotations

import pytest

from loadtrim_agent.protocol.group_config import COORDINATOR_MOVED, RETRIABLE, Code, GroupConfig


def test_a_barrier_outlasts_a_session_twice() -> None:
    with pytest.raises(ValueError, match="rebalance_timeout must be at least twice session_timeout"):
        GroupConfig(group="g", topics=(), session_timeout=10.0, rebalance_timeout=19.9)


def test_codes_that_call_for_another_look_up_may_be_sent_again() -> None:
    assert COORDINATOR_MOVED < RETRIABLE
    assert Code.UNKNOWN_MEMBER_ID not in RETRIABLE
    assert Code.ILLEGAL_GENERATION not in RETRIABLE


def test_two_heartbeats_may_go_amiss() -> None:
    GroupConfig(group="g", topics=(), session_timeout=3.0, rebalance_timeout=6.0, heartbeat_interval=1.0)
    with pytest.raises(ValueError, match="at most a third of session_timeout"):
        GroupConfig(group="g", topics=(), session_timeout=2.9, rebalance_timeout=6.0, heartbeat_interval=1.0)
