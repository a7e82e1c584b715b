"""The constructor's arguments that become something else."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from loadtrim.arguments import Arguments
from loadtrim_agent.protocol.group_config import GroupConfig


@pytest.mark.parametrize(
    ("given", "wanted_ms", "warned"),
    [
        ({}, 1000.0, False),
        ({"heartbeat_interval_ms": 250}, 250.0, False),
        ({"session_timeout_ms": 1_500}, 500.0, False),
        ({"session_timeout_ms": 6_000, "heartbeat_interval_ms": 5_000}, 1000.0, False),
        ({"session_timeout_ms": 1_800, "heartbeat_interval_ms": 1_800}, 600.0, True),
    ],
)
def test_several_heartbeats_fit_into_a_session(
    given: dict[str, Any], wanted_ms: float, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="loadtrim")
    arguments = Arguments.read(("orders",), {"group_id": "g", **given}, enabled=True)
    assert arguments.heartbeat_interval_ms == wanted_ms
    assert ("heartbeat_interval_ms" in caplog.text) is warned
    GroupConfig(
        group="g",
        topics=("orders",),
        session_timeout=arguments.session_timeout_ms / 1000,
        rebalance_timeout=arguments.rebalance_timeout_ms / 1000,
        heartbeat_interval=arguments.heartbeat_interval_ms / 1000,
    )


def test_too_few_heartbeats_are_refused_by_the_protocol() -> None:
    with pytest.raises(ValueError, match="third of session_timeout"):
        GroupConfig(group="g", topics=(), session_timeout=2.0, rebalance_timeout=4.0, heartbeat_interval=1.0)
