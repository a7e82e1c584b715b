"""No test but those of behaviour itself plays the probes: half a minute of CPU where nothing is stored yet."""

from __future__ import annotations

import pytest
from benchmarks.compare import runs
from benchmarks.papers import bench, runner


@pytest.fixture(autouse=True)
def _behaviour_is_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (runs, runner):
        monkeypatch.setattr(module, "behaviour", lambda *given: repr(given))
    monkeypatch.setattr(bench, "behaviour_of_all", lambda without: "unchanged")
