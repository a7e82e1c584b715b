"""Midnights where clocks change."""

from __future__ import annotations

import datetime
import itertools

import pytest

from loadtrim_spark.learning.local_days import begin_of, midnight, spans

HOUR, DAY = 3600, 86_400
BERLIN = "Europe/Berlin"


def at(text: str) -> int:
    """Seconds since the epoch of a time with its offset."""
    return int(datetime.datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(
    ("begin", "hours"),
    [
        ("2026-10-23T00:00+02:00", [24, 24, 25, 24]),  # clocks go back on the 25th
        ("2026-03-27T00:00+01:00", [24, 24, 23, 24]),  # and forward on the 29th
    ],
)
def test_days_begin_at_midnight_on_both_sides_of_a_change_of_clocks(begin: str, hours: list[int]) -> None:
    first = at(begin)
    found = spans(first, first + sum(hours) * HOUR, BERLIN)
    assert [(end - start) // HOUR for start, end in found] == hours
    assert found[0][0] == first
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(found))
    assert all(start == midnight(start, BERLIN) for start, _ in found)


def test_spans_of_several_days_end_where_all_ends() -> None:
    monday = at("2026-10-19T00:00+02:00")
    end = monday + 10 * DAY
    week = at("2026-10-26T00:00+01:00")
    assert spans(monday, end, BERLIN, 7) == [(monday, week), (week, end)]
    assert spans(monday + HOUR, monday + DAY + 1, BERLIN) == [(monday, monday + DAY), (monday + DAY, monday + DAY + 1)]
    assert spans(monday, monday, BERLIN) == []


def test_midnights_before_and_after() -> None:
    sunday = at("2026-10-25T00:00+02:00")
    for hour in (0, 2, 3, 24):  # the 25th hour of that day is the last one
        assert midnight(sunday + hour * HOUR, BERLIN) == sunday
    assert midnight(sunday, BERLIN, 1) == sunday + 25 * HOUR
    assert midnight(sunday + 25 * HOUR, BERLIN, -28) == at("2026-09-28T00:00+02:00")


def test_a_midnight_that_clocks_leave_out() -> None:
    """In Cairo the 24th of April 2026 begins at one o'clock."""
    begin = begin_of(datetime.date(2026, 4, 24), "Africa/Cairo")
    assert begin == at("2026-04-24T01:00+03:00")
    assert midnight(begin, "Africa/Cairo") == begin
