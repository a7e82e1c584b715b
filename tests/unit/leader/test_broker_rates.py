"""The leader and its monitor: what it said last counts a little longer, then nothing does, and it is said once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import ClusterAuthorizationFailedError

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.leader import broker_rates
from loadtrim_agent.leader.broker_rates import BrokerRates
from loadtrim_agent.planning.values import PlanConfig, Rates, RateUnit

P0 = Partition("t", 0)


class Told:
    """A monitor that answers what it is told to."""

    answer: Rates | Exception | None = None

    async def rates(self, partitions: Sequence[Partition], now: float) -> Rates | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_monitor_that_fails(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now, broken = [1_000.0], []
    boundary: Any = SimpleNamespace(broke=broken.append)
    monitor = Told()
    measured = BrokerRates(PlanConfig(group="g", monitor="landau24"), monitor, boundary)
    monkeypatch.setattr(broker_rates, "wall_time", lambda: now[0])

    def look() -> Rates | None:
        asyncio.run(measured.look(lambda: [P0]))
        return measured.rates

    assert look() is None
    monitor.answer = first = Rates(at=1_000.0, unit=RateUnit.BYTES, per_second={P0: 5.0})
    assert look() == first
    monitor.answer = ClusterAuthorizationFailedError("needs the ACL Describe on the cluster")
    with caplog.at_level(logging.WARNING, "loadtrim"):
        now[0] += 3.0
        assert look() == first, "one answer lost is none"
        now[0] += 3.0
        assert look() is None
    assert broken == ["monitor", "monitor"]
    (said,) = caplog.messages
    assert "landau24 has no answer" in said
    assert "ACL Describe" in said
    assert "LOADTRIM_MONITOR=reports" in said
    monitor.answer = second = Rates(at=now[0], unit=RateUnit.BYTES, per_second={P0: 6.0})
    assert look() == second
