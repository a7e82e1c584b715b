"""What slices cost is told by pairs, with the interval that the median is in."""

from __future__ import annotations

from benchmarks.suite.bench_slices_cost import figures_of, interval
from benchmarks.suite.bench_throughput import Told


def test_ratios_are_taken_within_a_pair() -> None:
    """The machine was half as fast in the second pair, for both."""
    pairs = [
        (Told(98.0, 1.02), Told(100.0, 1.0)),
        (Told(49.0, 2.04), Told(50.0, 2.0)),
        (Told(95.0, 1.1), Told(100.0, 1.0)),
    ]
    rate, cost = figures_of("1 kB", "getmany", pairs)
    assert (rate.value, rate.met) == (0.98, True)
    assert (round(cost.value, 3), cost.met) == (1.02, None)
    assert rate.peer == "95 %: 0.950 to 0.980"


def test_the_interval_of_a_median_is_by_order() -> None:
    assert interval([float(value) for value in range(1, 25)]) == (8.0, 17.0)
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert interval([1.0]) == (1.0, 1.0)
