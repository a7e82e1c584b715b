"""The rhythm that members share."""

from __future__ import annotations

import pytest

from loadtrim_agent.common.clock import seconds_to_beat


@pytest.mark.parametrize(
    ("now", "phase", "expected"),
    [(10.0, 0.3, 0.3), (10.3, 0.3, 1.0), (10.25, 0.3, 1.05), (10.31, 0.3, 0.99), (10.9, 0.0, 1.1), (10.8, 0.0, 0.2)],
)
def test_the_next_beat(now: float, phase: float, expected: float) -> None:
    assert seconds_to_beat(now, 1.0, phase) == pytest.approx(expected)


@pytest.mark.parametrize("period", [0.2, 1.0, 5.0])
def test_waking_a_little_early_or_late_skips_and_doubles_nothing(period: float) -> None:
    now, beats = 1_700_000_000.123, []
    for number in range(50):
        now += seconds_to_beat(now, period, 0.3 * period) + (-0.004 if number % 2 else 0.03) * period
        beats.append(round((now - 0.3 * period) / period))
    assert beats == list(range(beats[0], beats[0] + 50))
