"""How long a smaller group must have been enough."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loadtrim_agent.planning.sizing.stabilization import (
    DECAY_SECONDS,
    Stabilization,
    is_reversal,
    remaining_window,
    window,
    window_min,
)

NOW = 1_000.0


COST = 0.5


def at(now: float, rate: float = 1000.0, series: tuple[float, ...] = ()) -> Any:
    estimate = SimpleNamespace(
        startup_seconds=0.0, restoring_seconds=0.0, cost=COST, grain=COST, dispersion=0.0, series=series
    )
    return SimpleNamespace(
        now=now,
        estimate=estimate,
        forecast=SimpleNamespace(level=rate * COST),
        config=SimpleNamespace(sla_seconds=20.0),
    )


def test_the_window_of_a_reversal_halves_with_each_quiet_time_down_to_the_least() -> None:
    least = window_min(at(NOW))
    state = Stabilization(window_seconds=8.0 * least, reversal_at=NOW)
    windows = [window(at(NOW + halvings * DECAY_SECONDS), state) for halvings in range(6)]
    assert windows == pytest.approx([8.0 * least, 4.0 * least, 2.0 * least, least, least, least])
    assert window(at(NOW - 60.0), state) == 8.0 * least, "a clock that was set back makes it no longer"
    assert window(at(NOW), Stabilization()) == least


def test_few_records_are_waited_for() -> None:
    assert window_min(at(NOW, rate=0.5)) == 200.0, "a hundred of them"
    assert window_min(at(NOW, rate=0.01)) == 300.0, "for five minutes at most"
    assert window_min(at(NOW, rate=0.0)) == window_min(at(NOW)), "of none nothing is waited for"


def of_dear_records(level: float, slope: float, window_seconds: int) -> Any:
    """Records of 60 s. In the last two minutes 8 have come."""
    seen = at(NOW, rate=level, series=(4.0,) * 120)
    seen.estimate.cost = seen.estimate.grain = 60.0
    seen.config.decision_seconds = 1.0
    seen.forecast = SimpleNamespace(level=level * 60.0, slope=slope, window_seconds=window_seconds)
    return seen


def test_a_fall_of_a_few_records_shortens_no_window() -> None:
    """It rested on one or two that did not come, and the group was made smaller at once; nothing at all had 2 s."""
    assert remaining_window(of_dear_records(0.05, -0.01, 60), Stabilization()) > 200.0
    assert remaining_window(of_dear_records(0.0, 0.0, 8), Stabilization()) > 200.0


def test_records_that_come_in_turn_are_known_sooner() -> None:
    """One every second second: what a hundred by chance tell, a few of these do."""
    in_turn = tuple(COST * (second % 2) for second in range(120))
    assert window_min(at(NOW, rate=0.5, series=in_turn)) < 60.0
    in_crowds = tuple(20 * COST * (second % 40 == 0) for second in range(120))
    assert window_min(at(NOW, rate=0.5, series=in_crowds)) == 200.0, "no later than by chance"


@pytest.mark.parametrize(("rate", "soon"), [(1000.0, 10.0), (20.0, 55.6), (5.0, 222.2), (0.5, 300.0), (0.0, 10.0)])
def test_more_that_is_asked_for_before_a_rate_is_known_to_the_margin_reverses_a_down(rate: float, soon: float) -> None:
    """It takes 1,111 records to know a rate to 3 %: what is known of fewer asks for fewer and for more in turns."""
    state = Stabilization(down_at=NOW)
    assert is_reversal(at(NOW + soon - 0.1, rate), state)
    assert not is_reversal(at(NOW + soon + 0.1, rate), state)


def test_the_window_of_few_records_halves_as_slowly_as_they_come() -> None:
    state = Stabilization(window_seconds=160.0, reversal_at=NOW)
    assert window(at(NOW + 60.0), state) == pytest.approx(80.0)
    assert window(at(NOW + 1111.1 / 5.0, 5.0), state) == pytest.approx(80.0, rel=1e-3)
