"""The agent counts and measures per batch: one method for each thing that happens.

:mod:`.families` has the metrics themselves, :mod:`.series` keeps the numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Literal

from prometheus_client import CollectorRegistry

from loadtrim_agent.wire.telemetry_records import Capacity

from . import families as f
from .families import FAMILIES, OTHER, WORDS_MAX, Family, Labels
from .histogram import tally
from .series import Series

__all__ = ["FAMILIES", "OTHER", "WORDS_MAX", "Family", "Metrics"]

GONE_SECONDS = 600.0
"""A topic's counters go so long after its last partition. Chosen: longer than a deploy."""
_UNKNOWN = ""
"""No cause has this name."""


class Metrics:
    """One consumer counts and measures by this.

    Every method may be called from any thread, takes about a microsecond (``records_done``: and 0.1 us per
    record), never blocks for longer than a scrape copies its numbers, and does nothing after :meth:`close`.
    Times are seconds.

    Args:
        registry: Where the metrics are registered; None: Prometheus' default registry.
        group: Consumer group id.
        client_id: The consumer's client id. Consumers of one group with the same client id share their
            series.
        sla_seconds: The objective W, > 0: a bucket of the latency histogram of its own.
        clock: Monotonic seconds, for the ages of the heartbeat and of the record in hand.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None,
        group: str,
        client_id: str,
        sla_seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not sla_seconds > 0:
            raise ValueError(f"the objective is {sla_seconds!r} seconds; it must be above 0")
        self._clock = clock
        self._labels: dict[tuple[str, int], Labels] = {}
        """Of the partitions owned, and of those of which something was told."""
        self._gone: dict[str, float] = {}
        """Topic of which no partition is owned any more -> since when (clock)."""
        self._late: dict[str, int] = {}
        """Records late by cause, as told last. Invariant: never falls."""
        self._series = Series(registry, (group, client_id), float(sla_seconds), clock)
        self._series.show(f.OBJECTIVE_SECONDS, float(sla_seconds))
        self._series.show(f.IN_HAND_AGE, 0)

    @property
    def registry(self) -> CollectorRegistry:
        """Return where the metrics are."""
        return self._series.registry

    def close(self, *, at_once: bool = True) -> None:
        """Take this consumer's series out of the registry, and the collector with the last consumer.

        Args:
            at_once: False: before anything else is shown. So it may be called while garbage is collected.
        """
        if at_once:
            self._series.close()
        else:
            self._series.abandon()

    def about(self, *, version: str, policy: str, packer: str, mode: str, share: float) -> None:
        """Tell what runs, and the share of the records that must meet the objective."""
        series = self._series
        series.show_at((*series.member_labels, version, policy, packer, mode), {f.INFO: 1})
        series.show(f.OBJECTIVE_SHARE, share)

    # Records and partitions

    def records_done(
        self, topic: str, partition: int, count: int, latencies: Sequence[float], busies: Sequence[float]
    ) -> dict[float, int]:
        """A batch of one partition is done.

        Args:
            topic: Topic.
            partition: Partition.
            count: Records done, >= 0.
            latencies: Seconds from each record's timestamp until it was done; records without timestamp are
                left out.
            busies: Busy seconds of each record of which they were measured.

        Returns:
            How many latencies are in each bucket, by its upper bound, without the empty ones. The objective is one of
            the bounds.
        """
        labels, series = self._partition_labels(topic, partition), self._series
        latency, busy = series.histogram(f.LATENCY, labels[:3]), series.histogram(f.BUSY, labels[:3])
        # The batches are bucketed outside the lock, so a scrape never waits for a sort.
        bounds = latency.bounds
        late, worked = tally(bounds, latencies), tally(busy.bounds, busies)
        with series.page.lock:
            if not series.closed:
                done = series.page.counters[f.RECORDS_DONE]
                done[labels] = done.get(labels, 0) + count
                if latency.bounds is not bounds:
                    bounds = latency.bounds
                    late = tally(bounds, latencies)
                latency.add(late)
                busy.add(worked)
        return {(*bounds, inf)[index]: more for index, more in late.counts.items()}

    def records_late(self, totals: Mapping[str, int], unknown: int = 0) -> None:
        """Count the records that were late: so many since the start, by cause.

        Args:
            totals: by cause.
            unknown: so many since the start were perhaps late.
        """
        if unknown > (before := self._late.get(_UNKNOWN, 0)):
            self._late[_UNKNOWN] = unknown
            self._series.count(f.LATENCY_UNKNOWN, more=unknown - before)
        for cause, total in totals.items():
            more = total - self._late.get(cause, 0)
            if more > 0:
                self._late[cause] = total
                self._series.count(f.RECORDS_LATE, cause, more)

    def in_hand(self, since: float | None) -> None:
        """Show the record that user code has had for longest, handed out at ``since`` (clock); None: it has none."""
        self._series.show_since(f.IN_HAND_AGE, since)

    def partition(
        self,
        topic: str,
        partition: int,
        lag_records: int | None,
        lag_seconds: float | None,
        arrival_rate: float | None,
    ) -> None:
        """State of one owned partition.

        Args:
            topic: Topic.
            partition: Partition.
            lag_records: Records not done; None: not known, no series.
            lag_seconds: Age of the oldest of them, 0 without lag; None: not known.
            arrival_rate: Records per second; None: not known.
        """
        self._series.show_at(
            self._partition_labels(topic, partition),
            {
                f.LAG_RECORDS: lag_records,
                f.LAG_SECONDS: lag_seconds,
                f.ARRIVAL_RATE: arrival_rate,
                f.ARRIVAL_RATE_UNNAMED: arrival_rate,
            },
        )

    def dropped_partition(self, topic: str, partition: int) -> None:
        """The partition is owned no more: its gauges go, what was done stays counted.

        Where no partition of the topic comes again for :data:`GONE_SECONDS`, what was done of it goes too: topics that
        come and go would make a page without end.
        """
        self.partition(topic, partition, None, None, None)
        self._labels.pop((topic, partition), None)
        self._gone[topic] = self._clock()

    def owned(self, count: int) -> None:
        """How many partitions the member owns."""
        self._series.show(f.OWNED, count)
        for topic, since in tuple(self._gone.items()):
            if any(owned == topic for owned, _ in tuple(self._labels)):
                del self._gone[topic]
            elif self._clock() - since > GONE_SECONDS:
                del self._gone[topic]
                self._series.forget((*self._series.member_labels, topic))

    def utilization(self, ratio: float | None, capacity: Capacity | None = None) -> None:
        """Show busy seconds per second over capacity, 0 .. 1 and above, and the capacity; None: not known."""
        self._series.show(f.UTILIZATION, ratio)
        self._series.show(f.CAPACITY, capacity.value if capacity else None, "expected")
        self._series.show(f.CAPACITY, capacity.value - capacity.error if capacity else None, "least")

    def handoff(self, side: Literal["release", "acquire"], seconds: float) -> None:
        """One side of a handoff is over."""
        self._series.observe(f.HANDOFF, seconds, side)

    def move(self, outcome: str, *, slice_: bool = False) -> None:
        """Count one move of this member's (``done``, ``dropped``, ...), or one slice (``promised``, ``kept``, ...)."""
        self._series.count(f.SLICES if slice_ else f.MOVES, outcome)

    def commit_failed(self, reason: str) -> None:
        """Count a commit request that was not acknowledged; ``reason``: a value of
        :class:`~loadtrim_agent.protocol.commits.CommitFailure`."""
        self._series.count(f.COMMITS_FAILED, reason)

    # Group and leader

    def leader(self, leads: bool) -> None:
        """Whether the member leads. A member that does not tells nothing of the group's size either."""
        self._series.show(f.LEADER, int(leads))
        if not leads:
            for state in f.REPLICAS.words:
                self._series.show(f.REPLICAS, None, state)
            self.unowned(None)

    def entered(self, generation: int, protocol: str) -> None:
        """Show a new generation; ``protocol``: one of :data:`.families.GROUP_PROTOCOLS`."""
        self._series.show(f.GENERATION, generation)
        self._series.count(f.REBALANCES)
        self._series.show_state(f.GROUP_PROTOCOL, protocol)

    def manual_override(self, action: str | None) -> None:
        """Show the command line's order in force, ``hold`` or ``scale``; None: there is none."""
        self._series.show_state(f.MANUAL_OVERRIDE, action)

    def replicas(self, state: Literal["wanted", "actual", "max"], count: int | None) -> None:
        """Replicas as the leader wants, sees and allows them; None: not known."""
        self._series.show(f.REPLICAS, count, state)

    def requested(self, read: Callable[[], int | None]) -> None:
        """Show the replicas that an autoscaler is to make so, as they are at each scrape; None: they are not shown."""
        self._series.show_live(f.REPLICAS, read, "requested")

    def unowned(self, count: int | None) -> None:
        """Show how many partitions have no owner; None: not known."""
        self._series.show(f.UNOWNED, count)

    def plan(self, outcome: str, seconds: float) -> None:
        """The leader made a decision (``DecisionRecord.outcome``) in so many seconds."""
        self._series.count(f.PLANS, outcome)
        self._series.observe(f.PLAN_SECONDS, seconds)

    def scaler_request(self, outcome: str) -> None:
        """One request for replicas was answered: ``accepted``, ``refused`` or ``failed``."""
        self._series.count(f.SCALER_REQUESTS, outcome)

    # The agent itself

    def heartbeat_age(self, seconds: float = 0.0) -> None:
        """The last answered heartbeat was sent so many seconds ago; the age grows by itself between calls."""
        self._series.show_since(f.HEARTBEAT_AGE, self._clock() - seconds)

    def agent_error(self, where: str) -> None:
        """Something broke and was contained. ``where`` is one word out of a small set, never a message."""
        self._series.count(f.AGENT_ERRORS, where)

    # Leaves

    def _partition_labels(self, topic: str, partition: int) -> Labels:
        key = (topic, partition)
        labels = self._labels.get(key)
        if labels is None:
            labels = self._labels[key] = (*self._series.member_labels, topic, str(partition))
        return labels
