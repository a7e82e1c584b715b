"""What is said of members' clocks, by the brokers' time stamps of their reports."""

from __future__ import annotations

import pytest

from loadtrim.observer.checkup import Verdict
from loadtrim.observer.clock_checkup import clock_offsets, clocks
from loadtrim.observer.control_topic import Entry
from loadtrim_agent.wire.telemetry_records import ReportRecord

T = 1_700_000_000.0


def report(instance: str, ahead: float, at: float = T, group: str = "g", member: str = "m") -> Entry:
    record = ReportRecord(group=group, member=member, at=at + ahead, sequence=1, generation=1, instance=instance)
    return Entry(record, at)


def test_the_median_of_an_instances_reports_counts() -> None:
    entries = [report("a", ahead, T + at) for at, ahead in enumerate((-0.004, -0.006, -3.0))]
    assert clock_offsets([*entries, report("b", 2.0), report("c", 9.0, group="other")], "g") == {
        "a": pytest.approx(-0.006, abs=1e-6),
        "b": pytest.approx(2.0, abs=1e-6),
    }


def test_a_member_without_an_instance_is_one() -> None:
    assert clock_offsets([report("", 0.0, member="m7")], "g") == {"m7": 0.0}


def test_what_is_off_is_named_with_its_direction() -> None:
    found = clocks({"a": 0.1, "b": 3.21, "c": -0.75})
    assert found.verdict is Verdict.MISSING
    assert found.detail.startswith("b is 3.2 s ahead of, c is 0.8 s behind the brokers' clock.")
    assert "NTP" in found.detail


def test_what_is_within_the_sending_of_reports_is_well() -> None:
    assert clocks({"a": -0.2}).detail == "the member's clock is within 0.5 s of the brokers'"
    assert clocks({"a": -0.2, "b": 0.49}).verdict is Verdict.OK
    assert clocks({"a": -0.5}).verdict is Verdict.MISSING


def test_where_nobody_reports_nothing_is_known() -> None:
    assert clocks({}).verdict is Verdict.UNKNOWN
