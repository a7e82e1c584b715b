"""Slots of the local week: changes of clocks, odd zones, zones that do not exist."""

from __future__ import annotations

import logging
import zoneinfo
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from loadtrim_agent.common import local_week
from loadtrim_agent.common.local_week import LocalWeek

BERLIN = "Europe/Berlin"
HOUR = 3600


def moment(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


def hours(zone: str, begin: int, count: int) -> list[int]:
    """Hour of the local day of each hour from ``begin`` on."""
    slots = LocalWeek().slots(zone, HOUR, begin, count)
    assert slots is not None
    return [slot % 24 for slot in slots]


def test_the_week_begins_on_monday_at_midnight() -> None:
    assert LocalWeek().slots("UTC", 900, moment("2024-05-06T00:00"), 3) == [0, 1, 2]
    assert LocalWeek().slots("UTC", 900, moment("2024-05-12T23:45"), 2) == [671, 0]
    assert LocalWeek().slots("UTC", 300, moment("2024-05-07T00:05"), 1) == [289]


def test_clocks_go_forward_and_back() -> None:
    """The hour that is left out has no slot, the one that comes twice has its slots twice."""
    assert hours(BERLIN, moment("2024-03-31T00:00", BERLIN), 4) == [0, 1, 3, 4]
    assert hours(BERLIN, moment("2024-10-27T01:00", BERLIN), 4) == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("Asia/Kolkata", [5, 6]),
        ("Asia/Kathmandu", [5, 6]),
        ("America/St_Johns", [21, 22]),
        ("Pacific/Auckland", [12, 13]),
    ],
)
def test_a_slot_is_told_by_where_its_bucket_begins(zone: str, expected: list[int]) -> None:
    """As the pipeline counts: buckets are cut in UTC, and the local time of their beginning names the slot."""
    assert hours(zone, moment("2024-06-05T00:00"), 2) == expected


def test_a_leap_day_is_a_day() -> None:
    slots = LocalWeek().slots("UTC", 86_400, moment("2024-02-28T00:00"), 3)
    assert slots == [2, 3, 4]


def test_baselines_without_a_zone_follow_the_configured_one() -> None:
    begin = moment("2024-06-05T00:00")
    assert LocalWeek(BERLIN).slots("", HOUR, begin, 5) == LocalWeek().slots(BERLIN, HOUR, begin, 5)


def test_a_zone_that_is_not_known_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    week = LocalWeek()
    with caplog.at_level(logging.WARNING, "loadtrim"):
        assert week.slots("Moon/Sea", 900, 0, 1) is None
        assert week.slots("../etc/passwd", 900, 0, 1) is None
        assert week.slots("Moon/Sea", 900, 0, 1) is None
    assert len(caplog.messages) == 2
    assert "tzdata" in caplog.messages[0]


def test_utc_needs_no_time_zone_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> None:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", unknown)
    local_week._zone.cache_clear()
    week = LocalWeek()
    assert week.slots("UTC", HOUR, 0, 2) == [72, 73]
    assert week.slots("", HOUR, 0, 2) == [72, 73]
    assert week.slots("Europe/Berlin", HOUR, 0, 2) is None
    local_week._zone.cache_clear()


def test_made_up_zones_are_warned_about_for_some_time(caplog: pytest.LogCaptureFixture) -> None:
    week = LocalWeek()
    for number in range(100):
        assert week.slots(f"Moon/Base-{number}", HOUR, 0, 1) is None
    for odd in ("../../etc/passwd", "\x00", "America", "x" * 100_000, "/etc/passwd"):
        assert week.slots(odd, HOUR, 0, 1) is None
    assert len(caplog.records) == local_week.WARNINGS_MAX
