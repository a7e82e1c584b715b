"""What an hour's looks come to."""

from __future__ import annotations

from benchmarks.suite.bench_soak import MB, Vitals, slope_per_hour
from benchmarks.suite.stamps import Count


def looks(*sizes_mb: float) -> list[Vitals]:
    return [Vitals(600.0 * n, int(size * MB), 5, 7, 9, 11, 13) for n, size in enumerate(sizes_mb)]


def test_growth_is_told_for_an_hour() -> None:
    assert round(slope_per_hour(looks(40, 41, 42, 43)), 3) == 6.0
    assert slope_per_hour(looks(40, 40, 40)) == 0.0
    assert slope_per_hour(looks(40)) == 0.0


def test_a_count_keeps_no_records() -> None:
    count = Count()
    for offset in range(1_000):
        count.add(0, offset, 1)
    assert len(count) == 1_000
    assert len(count.values) == 0
