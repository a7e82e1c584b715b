"""What an hour's looks come to."""

from __future__ import annotations

import pytest
from benchmarks.suite.bench_soak import CHANGE_SECONDS, MB, Soak, Vitals, judge, slope_per_hour
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


def missed(minutes: float, per_hour_mb: float, *, quick: bool = False, more: int = 0, sockets: int = 0) -> set[str]:
    """Targets that a run misses whose member grows so fast, and has so many more tasks and sockets at its end."""
    soak, count = Soak(), round(minutes * 60 / CHANGE_SECONDS)
    for number in range(1, count + 1):
        at = number * CHANGE_SECONDS
        size = round((40 + per_hour_mb * at / 3600) * MB)
        tasks_more, sockets_more = (more, sockets) if number > count - 6 else (0, 0)
        soak.vitals.setdefault("one", []).append(Vitals(at, size, 5, 7 + sockets_more, 9, 11 + tasks_more, 10 * number))
    return {figure.name for figure in judge(soak, minutes * 60, quick=quick).figures if figure.met is False}


SLOPE, GROWTH = "one: resident set, growth", "one: resident set, more than before"


@pytest.mark.parametrize(
    ("minutes", "per_hour_mb", "wanted"),
    [(60, 0.9, set()), (60, 1.1, {SLOPE}), (10, 60.0, set()), (10, 90.0, {GROWTH}), (2, 200.0, set())],
)
def test_an_hour_is_judged_by_its_slope_and_less_by_what_is_more_at_its_end(
    minutes: float, per_hour_mb: float, wanted: set[str]
) -> None:
    assert missed(minutes, per_hour_mb, quick=minutes == 2) == wanted


@pytest.mark.parametrize("quick", [False, True])
def test_a_task_that_stays_is_found_in_ten_minutes(quick: bool) -> None:
    assert missed(10, 0.0, quick=quick, more=1) == {"one: tasks more than before"}


def test_one_socket_more_is_no_leak_in_ten_minutes_and_is_one_in_an_hour() -> None:
    leak = {"one: sockets more than before"}
    assert (missed(10, 0.0, sockets=1), missed(10, 0.0, sockets=2), missed(60, 0.0, sockets=1)) == (set(), leak, leak)
