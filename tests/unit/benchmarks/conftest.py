"""No test but those of behaviour itself plays the probes: half a minute of CPU where nothing is stored yet."""

from __future__ import annotations

import pytest
from benchmarks.compare import runs
from benchmarks.papers import bench, runner
from benchmarks.papers.runner import SimulatedResult


@pytest.fixture(autouse=True)
def _behaviour_is_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (runs, runner):
        monkeypatch.setattr(module, "behaviour", lambda *given: repr(given))
    monkeypatch.setattr(bench, "source_digest", lambda: "unchanged")


@pytest.fixture
def played() -> SimulatedResult:
    """A run of any kind."""
    return SimulatedResult(
        share_in_time=0.9,
        replica_minutes=2.0,
        ups=1,
        downs=1,
        up_actions=1,
        down_actions=1,
        latency_mean=0.2,
        latency_max=2.0,
        replicas=(1, 2) * 105,
        latency_by_second=(0.1, 2.0) * 105,
        records=1000,
        waiting=(3, 40) * 105,
        latencies=tuple(at / 100 for at in range(201)),
    )
