"""The leader's ways of measuring arrival rates at the broker, by name
(:mod:`loadtrim_agent.planning.published.rate_sources`).

``landau24`` needs the ACL ``Describe`` on the cluster (DescribeLogDirs); ``iccbdc22`` what every consumer may do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.published.rate_sources import DELAY_SECONDS, LogGrowth, RateSourceName, rate_source_of
from loadtrim_agent.planning.values import Rates, RateUnit

from .fetch.offsets import OffsetQueries

__all__ = ["LogSizeRates", "OffsetTimeRates", "RateSource", "make_rate_source"]


class RateSource(Protocol):
    """Measures at the broker what arrives. Asked by the leader only, once per decision."""

    async def rates(self, partitions: Sequence[Partition], now: float) -> Rates | None:
        """What arrives in each partition.

        Args:
            partitions: all of the group's, sorted.
            now: seconds since the epoch.

        Returns:
            None while there is nothing to compare with yet.

        Raises:
            KafkaError, OSError, TimeoutError: the broker could not be asked, or refused.
        """
        ...


class LogSizeRates:
    """Landau'24: how the partitions' logs grow on their leaders' disks."""

    def __init__(self, queries: OffsetQueries) -> None:
        self._queries = queries
        self._growth = LogGrowth()

    async def rates(self, partitions: Sequence[Partition], now: float) -> Rates | None:
        """See :class:`RateSource`."""
        sizes = await self._queries.log_sizes(_asked(partitions))
        self._growth.add(now, {Partition(*at): size for at, size in sizes.items()})
        grown = self._growth.per_second()
        return None if grown is None else Rates(at=now, unit=RateUnit.BYTES, per_second=grown)


class OffsetTimeRates:
    """ICCBDC'22: offsets at the two ends of an interval that ended a while ago.

    Args:
        queries: of the fetcher.
        interval_seconds: length of the interval; the decision interval in the authors' runs.
    """

    def __init__(self, queries: OffsetQueries, interval_seconds: float) -> None:
        self._queries = queries
        self._interval = interval_seconds

    async def rates(self, partitions: Sequence[Partition], now: float) -> Rates | None:
        """See :class:`RateSource`."""
        asked = _asked(partitions)
        end = now - DELAY_SECONDS
        first, last = await asyncio.gather(self._offsets(asked, end - self._interval), self._offsets(asked, end))
        per_second = {Partition(*at): max(0, last[at] - first[at]) / self._interval for at in asked}
        return Rates(at=now, unit=RateUnit.RECORDS, per_second=per_second)

    async def _offsets(self, asked: Sequence[TopicPartition], at: float) -> dict[TopicPartition, int]:
        """The first offset stamped at or after a time; where there is none, the end.

        Raises:
            KafkaError: the broker could not be asked, or left one out, as it does where messages have no time stamps.
        """
        found = await self._queries.offsets_for_times(dict.fromkeys(asked, max(0, int(at * 1000))))
        offsets = {entry: int(offset.offset) for entry, offset in found.items() if offset is not None}
        offsets |= await self._queries.end_offsets([entry for entry, offset in found.items() if offset is None])
        # A partition left out would count as one where nothing arrives.
        if missing := [entry for entry in asked if entry not in offsets]:
            raise KafkaError(f"the broker tells no offset by time of {len(missing)} partitions, such as {missing[0]}")
        return offsets


def make_rate_source(name: str, queries: OffsetQueries, interval_seconds: float) -> RateSource | None:
    """Make the rate source with this name; None: the members' reports do."""
    match rate_source_of(name):
        case RateSourceName.REPORTS:
            return None
        case RateSourceName.LANDAU24:
            return LogSizeRates(queries)
        case RateSourceName.ICCBDC22:
            return OffsetTimeRates(queries, interval_seconds)


def _asked(partitions: Sequence[Partition]) -> list[TopicPartition]:
    return [TopicPartition(partition.topic, partition.partition) for partition in partitions]
