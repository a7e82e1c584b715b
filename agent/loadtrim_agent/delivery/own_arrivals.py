"""Note what came to this member's partitions, as far as what was fetched tells: ends, ages and bursts."""

from __future__ import annotations

import math

import msgspec

from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.kafka.fetch.chunk import Chunk
from loadtrim_agent.metering.meter import Meter

__all__ = ["Arrived", "OwnArrivals"]

RATE_SECONDS = 0.5
"""The rate of all own partitions is looked up so often. Chosen: rates are means over 10 s."""


class Arrived(msgspec.Struct):
    """Note of one partition's records that were fetched."""

    acquired_at: float
    """Boot clock."""
    newest_at: float = 0.0
    """When the youngest record came, own wall clock."""
    end: int = -1
    """Behind the last record that was fetched."""
    caught_up_at: float = 0.0
    """When the broker had nothing behind that, own wall clock; 0: never so far."""


class OwnArrivals:
    """Note of what arrives at one member, by the meter's costs and rates of this moment."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._arrived: dict[Partition, Arrived] = {}
        self._expected: dict[Partition, float] = {}
        self._rate = 0.0
        self._rate_at = -math.inf

    def acquired(self, partition: Partition) -> None:
        """The partition is owned from now on."""
        self._arrived[partition] = Arrived(boot_time())
        self._rate_at = -math.inf

    def lost(self, partition: Partition) -> None:
        """The partition is not owned any more."""
        self._arrived.pop(partition, None)
        self._rate_at = -math.inf

    def of(self, partition: Partition) -> Arrived | None:
        """Return what came in a partition; None: it is not owned."""
        return self._arrived.get(partition)

    def expect(self, partition: Partition, work_rate: float) -> None:
        """Note the busy seconds/s of a partition that is promised to this member; 0: it is not, or nobody knows."""
        self._expected.pop(partition, None)
        if work_rate:
            self._expected[partition] = work_rate

    def expect_nothing(self) -> None:
        """No promise stands."""
        self._expected.clear()

    def expected_rate(self, partition: Partition) -> float | None:
        """Return, once, the busy seconds/s that were promised with a partition; None: it was not promised."""
        return self._expected.pop(partition, None)

    def fetched(self, partition: Partition, chunk: Chunk, end_offset: int | None, clock_offset: float) -> float:
        """Records were fetched.

        Args:
            partition: one that is owned; of others nothing is noted.
            chunk: the records.
            end_offset: end of the log as told with them.
            clock_offset: own wall clock less that of the log, seconds.

        Returns:
            The work that came just now: so many seconds' worth of what arrives in all own partitions.
        """
        arrived = self._arrived.get(partition)
        if arrived is None:
            return 0.0
        now, newest = wall_time(), max(chunk.stamps()[0], default=-1.0)
        at = newest + clock_offset if newest >= 0.0 else now
        # Producers' clocks may be off. What was not there when the broker was asked last came after that.
        since = arrived.caught_up_at if arrived.end == chunk.start else 0.0
        arrived.newest_at = min(max(at, since), now)
        arrived.end = chunk.end
        if end_offset is not None and end_offset <= chunk.end:
            arrived.caught_up_at = now
        if now - arrived.newest_at >= boot_time() - arrived.acquired_at:
            return 0.0  # what came before the partition did came to its last owner
        work, rate = self._meter.work_of(partition), self._work_rate()
        return chunk.records * work.cost_seconds / rate if work is not None and rate > 0.0 else 0.0

    def _work_rate(self) -> float:
        """Return the busy seconds/s that arrive in all own partitions; after a handoff they are looked up anew."""
        if (now := boot_time()) - self._rate_at > RATE_SECONDS:
            works = map(self._meter.work_of, self._arrived)
            self._rate, self._rate_at = sum(work.rate for work in works if work is not None), now
        return self._rate
