"""Judging a new member's first records by what the owners before it told of the same partitions.

The first records of a process are dear: caches are empty, connections are made. Where a program takes batches, its
first batch often is one record, and it takes as long as a full one. What such a member tells is several times too much.
Its partitions seemed to need a group of their own, which was asked for, and whose members said the same.

Source: the mean of a normal with a conjugate prior, as within a member (:mod:`loadtrim_agent.metering.cost`). The prior
is what the owner before told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import mul

from msgspec import structs

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord

__all__ = ["Newcomer"]

PRIOR_RECORDS = 10.0
"""The word of the owner before counts as so many records. Chosen: as many as a partition's topic within a member."""
KNOWN_RECORDS = 100
"""A member that has done so many is believed. Chosen: then its own word is nine tenths."""
FACTOR_MAX = 1e6
"""Work is made so many times as much at most: a cost next to nothing would make it endless. Chosen: well above what a
first record can be off by."""


class Newcomer:
    """The word of one member, tempered as long as it has done few records.

    Cost: O(partitions of a report) until :data:`KNOWN_RECORDS` are done, nothing after that.
    """

    __slots__ = ("_before", "_records")

    def __init__(self) -> None:
        self._records = 0
        """Done since it was first heard of, counted to :data:`KNOWN_RECORDS`."""
        self._before: dict[Partition, float] = {}
        """Cost of a record by the owner before."""

    @property
    def has_begun(self) -> bool:
        """Return whether it has done a record since it was first heard of."""
        return self._records > 0

    def tempered(self, report: ReportRecord, told_before: Callable[[Partition], float | None]) -> ReportRecord:
        """Return the report with costs, and work that follows from them, as far as they are to be believed.

        Args:
            report: of this member.
            told_before: what a record of a partition costs by an owner that is not this member; None: nobody told.
        """
        if self._records >= KNOWN_RECORDS:
            return report
        self._records += sum(entry.done for entry in report.partitions)
        if self._records >= KNOWN_RECORDS:
            self._before.clear()
            return report
        factors = [self._factor(entry, told_before) for entry in report.partitions]
        works = [(entry.arrived + entry.done) * (entry.cost_mean or 0.0) for entry in report.partitions]
        own = sum(works)
        factor = sum(map(mul, works, factors)) / own if own else 1.0
        return structs.replace(
            report,
            partitions=tuple(map(_scaled, report.partitions, factors)),
            slots=_times(report.slots, factor),
            slots_second=_times(report.slots_second, factor),
            slots_open=_times(report.slots_open, factor),
        )

    def _factor(self, entry: PartitionReport, told_before: Callable[[Partition], float | None]) -> float:
        partition = Partition(entry.topic, entry.partition)
        before = self._before.get(partition)
        if before is None and (before := told_before(partition)) is not None:
            # Asked for at once: with its next report, this member is the one that told last.
            self._before[partition] = before
        if before is None or not entry.cost_mean:
            return 1.0
        share = self._records / (self._records + PRIOR_RECORDS)
        factor = share + (1.0 - share) * before / entry.cost_mean
        return factor if factor <= FACTOR_MAX else 1.0


def _scaled(entry: PartitionReport, factor: float) -> PartitionReport:
    if factor == 1.0 or entry.cost_mean is None:
        return entry
    return structs.replace(
        entry,
        cost_mean=entry.cost_mean * factor,
        cost_variance=None if entry.cost_variance is None else entry.cost_variance * factor * factor,
        work_windows=tuple(
            structs.replace(
                each,
                mean=each.mean * factor,
                variance=each.variance * factor * factor,
                largest=each.largest * factor,
            )
            for each in entry.work_windows
        ),
    )


def _times(works: Iterable[float], factor: float) -> tuple[float, ...]:
    return tuple(work * factor for work in works)
