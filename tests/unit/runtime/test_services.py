"""What the companion of a consumer says when it is made."""

from __future__ import annotations

import logging

import pytest
from prometheus_client import CollectorRegistry

from loadtrim_agent.common.settings import AgentSettings
from loadtrim_agent.runtime.services import Services


@pytest.mark.parametrize(
    ("policy", "monitor", "said"),
    [("keda", "landau24", ["looks at no arrival rates"]), ("linear", "landau24", []), ("keda", "reports", [])],
)
def test_the_start_says_what_a_monitor_does_not_reach(
    policy: str, monitor: str, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "loadtrim"):
        Services(AgentSettings(policy=policy, monitor=monitor), group="g", client_id="c", registry=CollectorRegistry())
    assert len(caplog.messages) == len(said)
    assert all(text in message for text, message in zip(said, caplog.messages, strict=True))
