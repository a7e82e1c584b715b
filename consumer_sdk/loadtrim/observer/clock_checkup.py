"""A checkup compares the clocks of a group's members with the brokers', by the records that members write. Pure.

A report tells when it was written by its member's clock, and the broker stamps it when it is appended. Members report
at once, so what lies between the two is a few milliseconds, or the difference of the clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from loadtrim_agent.wire.telemetry_records import ReportRecord

from .checkup import Finding, Verdict
from .control_topic import Entry

__all__ = ["OFF_SECONDS", "clock_offsets", "clocks"]

OFF_SECONDS = 0.5
"""A clock that is off by less is well. Chosen: far more than a report takes to be sent and appended."""
WHAT = "clocks"


def clock_offsets(entries: Iterable[Entry], group: str) -> dict[str, float]:
    """Return how many seconds each instance's clock is ahead of the brokers', the median of its reports.

    Args:
        entries: of the telemetry.
        group: others' records count for nothing.
    """
    seen: dict[str, list[float]] = {}
    for record, at in entries:
        if isinstance(record, ReportRecord) and record.group == group:
            seen.setdefault(record.instance or record.member, []).append(record.at - at)
    return {instance: median(offsets) for instance, offsets in sorted(seen.items())}


def clocks(offsets: Mapping[str, float]) -> Finding:
    """Return what there is to say of the members' clocks.

    Args:
        offsets: seconds ahead of the brokers' clock by instance; empty: nobody reports.
    """
    if not offsets:
        return Finding(what=WHAT, verdict=Verdict.UNKNOWN, detail="no member has reported in the last minute")
    wrong = {instance: seconds for instance, seconds in offsets.items() if abs(seconds) >= OFF_SECONDS}
    if not wrong:
        whose = "the member's clock is" if len(offsets) == 1 else f"the clocks of {len(offsets)} instances are"
        return Finding(what=WHAT, verdict=Verdict.OK, detail=f"{whose} within {OFF_SECONDS:g} s of the brokers'")
    told = ", ".join(
        f"{instance} is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"
        for instance, seconds in wrong.items()
    )
    detail = (
        f"{told} the brokers' clock. Measuring takes it into account; records that such a process produces carry its "
        "wrong time, and whoever consumes them takes them for late or early. Have NTP set the clock"
    )
    return Finding(what=WHAT, verdict=Verdict.MISSING, detail=detail)
