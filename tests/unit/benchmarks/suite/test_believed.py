"""How far a simulated run is from real ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.suite.believed import differences


def run(share: float, minutes: float) -> Any:
    return SimpleNamespace(share_in_time=share, replica_minutes=minutes)


def test_medians_are_compared_and_the_real_ones_are_the_measure() -> None:
    real = [run(0.99, 10.0), run(0.995, 20.0), run(0.2, 90.0)]
    share, minutes = differences(real, [run(1.0, 21.0)], points_at_most=0.5, percent_at_most=None, of="day: ")
    assert (share.name, share.value, share.at_most) == ("day: share of records in time, difference", 1.0, 0.5)
    assert share.peer == "real 99.00 %, simulated 100.00 %"
    assert minutes.value == pytest.approx(5.0)
    assert minutes.at_most is None
