"""The weeks before: what the members of a group would have reported, had it run for weeks.

The load is one whose truth is known (:mod:`loadtrim_spark.evaluation.truth`): every day it rises at the same moment,
for an hour,
with growth, better and worse days, and noise. What is played today is how the same load goes on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from demo.load import LoadRates
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord
from loadtrim_spark.evaluation.truth import DAY_SECONDS, MINUTE_SECONDS, WEEK_SECONDS, Busy, Truth

__all__ = ["HIGH", "LOW", "PastWeeks", "load_of", "reports", "truth_rising_at"]

LOW, HIGH = 25.0, 180.0
"""Records/s before and after the rise, without growth and noise."""
RAMP_SECONDS = 2.0
BUSY_MINUTES = 60
SEED = 5
GROWTH, NOISE, DAY_NOISE = 0.02, 0.05, 0.03
EPOCH_MONDAY = 345_600
"""1970-01-05 00:00 UTC."""
EARLY_SECONDS = 1e-3
START_SECONDS = (1.0, 2.5)
"""What a process takes to start and to join, beside the orchestrator's delay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastWeeks:
    """A group's history.

    Attributes:
        group: its id.
        topic: what it reads.
        truth: the load.
        begin: of the first minute that was reported, seconds since the epoch.
        end: of the last one.
        objective_seconds: W; there were as many members as it took.
        startup_seconds: that the orchestrator takes for a replica.
    """

    group: str
    topic: str
    truth: Truth
    begin: int
    end: int
    objective_seconds: float
    startup_seconds: float

    def members(self, minute: int) -> int:
        """How many there were in the minute that begins at ``minute`` (seconds since the epoch)."""
        (busy,) = self.truth.busy
        of_day = minute % DAY_SECONDS / MINUTE_SECONDS
        rate = self.truth.night + (busy.height if busy.begin_minute <= of_day < busy.end_minute else 0.0)
        needed = math.ceil(rate * self.truth.cost_seconds / self.objective_seconds)
        return min(max(1, needed), len(self.truth.shares))


def truth_rising_at(rise_at: int, weeks: int, shares: tuple[float, ...], cost_seconds: float) -> Truth:
    """A load over the ``weeks`` before ``rise_at`` and the days after it, that rises at that time of every day.

    Args:
        rise_at: a full minute, seconds since the epoch.
        weeks: that the history is to have.
        shares: of the partitions.
        cost_seconds: of a record.
    """
    minute = rise_at % DAY_SECONDS // MINUTE_SECONDS
    # What is played is still part of it, and begins no earlier than the history.
    end = EPOCH_MONDAY + math.ceil((rise_at + DAY_SECONDS - EPOCH_MONDAY) / WEEK_SECONDS) * WEEK_SECONDS
    # Midnight ends a busy time: days are told one by one.
    busy = Busy(
        begin_minute=minute, end_minute=min(minute + BUSY_MINUTES, DAY_SECONDS // MINUTE_SECONDS),
        height=HIGH - LOW, ramp_seconds=RAMP_SECONDS,
    )  # fmt: skip
    return Truth(
        seed=SEED, end=end, weeks=weeks + 2, night=LOW, busy=(busy,), weekend=1.0, growth=GROWTH, noise=NOISE,
        day_noise=DAY_NOISE, shares=shares, cost_seconds=cost_seconds,
    )  # fmt: skip


def load_of(truth: Truth, begin: int, seconds: int) -> LoadRates:
    """Some seconds of it, to be played; as many whole records as it has on the mean."""
    per_second = tuple(float(round(rate)) for rate in truth.seconds(begin, seconds))
    return LoadRates(per_second, "how the load of the weeks before goes on today")


def reports(past: PastWeeks) -> Iterator[ReportRecord]:
    """A report per minute and member, in the order of time. Everything was done in time."""
    random = Random(f"{past.truth.seed}:start-ups")
    counts = past.truth.counts()
    first = (past.begin - past.truth.begin) // MINUTE_SECONDS
    there = 0
    for number, minute in enumerate(range(past.begin, past.end, MINUTE_SECONDS), first):
        arrived = _dealt(counts[number], past.truth.shares)
        members = past.members(minute)
        for member in range(members):
            started = past.startup_seconds + random.uniform(*START_SECONDS) if member >= there else None
            yield _report(past, minute, number, member, arrived[member::members], members, started)
        there = members


def _report(
    past: PastWeeks, minute: int, number: int, member: int, arrived: list[int], members: int, started: float | None
) -> ReportRecord:
    cost = past.truth.cost_seconds
    return ReportRecord(
        group=past.group,
        member=f"payments-{member + 1}-of-the-weeks-before",
        # It tells of the time before it, and belongs to the minute that it tells of.
        at=minute + MINUTE_SECONDS - EARLY_SECONDS,
        sequence=number,
        generation=1,
        instance=f"payments-{member + 1}",
        interval=float(MINUTE_SECONDS),
        busy_seconds=sum(arrived) * cost,
        in_time=sum(arrived),
        startup_seconds=started,
        partitions=tuple(
            PartitionReport(topic=past.topic, partition=index, arrived=count, done=count, cost_mean=cost)
            for index, count in zip(itertools.count(member, members), arrived, strict=False)
            if count
        ),
    )


def _dealt(records: int, shares: tuple[float, ...]) -> list[int]:
    """Whole records of each partition, all of them together."""
    bounds = [math.floor(records * until) for until in itertools.accumulate(shares[:-1])]
    return [until - begin for begin, until in itertools.pairwise([0, *bounds, records])]
