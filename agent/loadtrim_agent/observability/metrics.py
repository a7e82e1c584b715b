"""The agent's Prometheus metrics, gathered per batch.

Theory of operation: one *page* per registry is the only collector registered there, however many consumers of
the process use that registry. A consumer writes through its own :class:`Metrics`. Counters and histograms
live in the page, by label values, so that two consumers with the same group and client id (aiokafka's default
client id is the same for all) add up instead of clashing; gauges live with the consumer and are merged when
the page is read. The last consumer with some label values takes their series with it.

One lock per page guards everything; it is held for microseconds per batch, and while a scrape copies the
numbers, never while the text is made. Prometheus' multi-process mode (files shared by forked workers) is not
supported, as by every collector of one's own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Final, Literal
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from .histogram import BUSY_BOUNDS, HANDOFF_BOUNDS, LATENCY_BOUNDS, PLAN_BOUNDS, Histogram, tally

__all__ = ["FAMILIES", "OTHER", "WORDS_MAX", "Family", "Metrics"]

_log = logging.getLogger("loadtrim.metrics")

OTHER: Final = "other"
"""Stands for every further value of ``outcome``, ``where``, ``side`` or ``state`` beyond
:data:`WORDS_MAX`.
"""
WORDS_MAX: Final = 64
"""Most different values of such a label per consumer, so that a wrong caller cannot fill a Prometheus."""

Labels = tuple[str, ...]
Merge = Literal["sum", "max"]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One metric: its name, its labels and how several consumers' gauges with the same labels are merged."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels
    merge: Merge = "max"

    @property
    def per_member(self) -> bool:
        """Whether the second label is the client id."""
        return self.labels[:2] == _MEMBER


_GROUP = ("group",)
_MEMBER = ("group", "client_id")
_TOPIC = (*_MEMBER, "topic")
_PARTITION = (*_MEMBER, "topic", "partition")

RECORDS_DONE = Family("loadtrim_records_done_total", "counter", "Records done.", _PARTITION)
LATENCY = Family(
    "loadtrim_record_latency_seconds",
    "histogram",
    "Seconds from a record's timestamp until it is done. One bucket is exactly the objective.",
    _TOPIC,
)
BUSY = Family("loadtrim_record_busy_seconds", "histogram", "Seconds of processing one record takes.", _TOPIC)
LAG_RECORDS = Family("loadtrim_partition_lag_records", "gauge", "Records not done, of owned partitions.", _PARTITION)
LAG_SECONDS = Family(
    "loadtrim_partition_lag_seconds",
    "gauge",
    "Age of the oldest record not done, of owned partitions.",
    _PARTITION,
)
ARRIVAL_RATE = Family(
    "loadtrim_partition_arrival_rate",
    "gauge",
    "Records per second that arrive, of owned partitions.",
    _PARTITION,
)
OWNED = Family("loadtrim_partitions_owned", "gauge", "Partitions that the member owns.", _MEMBER, "sum")
HANDOFF = Family(
    "loadtrim_handoff_seconds",
    "histogram",
    "Seconds of a handoff. Side release: from the stop until the release is in the log; side acquire: from "
    "reading the release until the partition can be handed out.",
    (*_MEMBER, "side"),
)
UTILIZATION = Family(
    "loadtrim_utilization_ratio", "gauge", "Busy seconds per second over the member's capacity.", _MEMBER
)
LEADER = Family("loadtrim_leader", "gauge", "1 when the member leads its group, else 0.", _MEMBER)
GENERATION = Family("loadtrim_generation", "gauge", "Generation of the group that the member is in.", _MEMBER)
REPLICAS = Family("loadtrim_replicas", "gauge", "Replicas, told by the leader only.", (*_GROUP, "state"))
PLANS = Family("loadtrim_plans_total", "counter", "Decisions that the leader made.", (*_GROUP, "outcome"))
MOVES = Family("loadtrim_moves_total", "counter", "Moves that the member was to make.", (*_MEMBER, "outcome"))
PLAN_SECONDS = Family("loadtrim_plan_seconds", "histogram", "Seconds that making a decision takes.", _GROUP)
HEARTBEAT_AGE = Family(
    "loadtrim_heartbeat_age_seconds", "gauge", "Seconds since the last answered heartbeat was sent.", _MEMBER
)
SCALER_REQUESTS = Family("loadtrim_scaler_requests_total", "counter", "Requests for replicas.", (*_GROUP, "outcome"))
AGENT_ERRORS = Family(
    "loadtrim_agent_errors_total",
    "counter",
    "What broke in the agent and was contained.",
    (*_MEMBER, "where"),
)

FAMILIES: Final = (
    RECORDS_DONE, LATENCY, BUSY, LAG_RECORDS, LAG_SECONDS, ARRIVAL_RATE, OWNED, HANDOFF, UTILIZATION, LEADER,
    GENERATION, REPLICAS, PLANS, MOVES, PLAN_SECONDS, HEARTBEAT_AGE, SCALER_REQUESTS, AGENT_ERRORS,
)  # fmt: skip
"""Every metric, in the order of the page."""

_PARTITION_GAUGES = (LAG_RECORDS, LAG_SECONDS, ARRIVAL_RATE)


class _Page(Collector):
    """All series of one registry."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users: list[Metrics] = []
        self.counters: dict[Family, dict[Labels, float]] = {f: {} for f in FAMILIES if f.kind == "counter"}
        self.histograms: dict[Family, dict[Labels, Histogram]] = {f: {} for f in FAMILIES if f.kind == "histogram"}

    def describe(self) -> Iterable[Metric]:
        """The families without samples, so that a registry knows the names without a scrape."""
        return [_filled(family, {}, {}) for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """The families with their samples. Called by a scrape, on any thread. About 3 us per sample."""
        with self.lock:
            counters = {family: dict(series) for family, series in self.counters.items()}
            histograms = {
                family: {labels: histogram.copy() for labels, histogram in series.items()}
                for family, series in self.histograms.items()
            }
            gauges = [gauge for user in self.users for gauge in user._read_gauges()]
        merged: dict[Family, dict[Labels, float]] = {}
        for family, labels, value in gauges:
            series = merged.setdefault(family, {})
            if labels not in series:
                series[labels] = value
            else:
                series[labels] = series[labels] + value if family.merge == "sum" else max(series[labels], value)
        values = counters | merged
        return [_filled(family, values.get(family, {}), histograms.get(family, {})) for family in FAMILIES]

    def drop_series(self, user: Metrics) -> None:
        """Forget the series that nobody but ``user`` writes to. The lock is held."""
        others = [other for other in self.users if other is not user]
        lone_member = all(other.member_labels != user.member_labels for other in others)
        lone_group = all(other.group != user.group for other in others)
        families: list[tuple[Family, dict[Labels, float] | dict[Labels, Histogram]]] = [
            *self.counters.items(),
            *self.histograms.items(),
        ]
        for family, series in families:
            own = user.member_labels if family.per_member else (user.group,)
            if lone_member if family.per_member else lone_group:
                for labels in [labels for labels in series if labels[: len(own)] == own]:
                    del series[labels]


def _filled(family: Family, values: dict[Labels, float], histograms: dict[Labels, Histogram]) -> Metric:
    if family.kind == "histogram":
        curves = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels in sorted(histograms):
            curves.add_metric(labels, histograms[labels].buckets(), histograms[labels].total)
        return curves
    plain = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    page = plain(family.name, family.help, labels=family.labels)
    for labels in sorted(values):
        page.add_metric(labels, values[labels])
    return page


def _registered(page: _Page, registry: CollectorRegistry, group: str) -> CollectorRegistry:
    """Register the page; where that is not possible, in a registry of its own. Return the registry."""
    try:
        registry.register(page)
    except ValueError as error:
        _log.error(
            "The metrics of group %s are not in the registry that was given, because something else "
            "there has the same names (%s). The consumer runs on; the agent's own /metrics shows them. "
            "Give the consumer a registry of its own, or take the other one out.",
            group,
            error,
        )
        registry = CollectorRegistry()
        registry.register(page)
    return registry


_pages: WeakKeyDictionary[CollectorRegistry, _Page] = WeakKeyDictionary()
_pages_lock = threading.Lock()


class Metrics:
    """What one consumer counts and measures.

    Every method may be called from any thread, takes about a microsecond (``records_done``: and 0.1 us per
    record), never blocks for longer than a scrape copies its numbers, and does nothing after :meth:`close`.
    Times are seconds.

    Args:
        registry: Where the metrics are registered; None: Prometheus' default registry.
        group: Consumer group id.
        client_id: The consumer's client id. Consumers of one group with the same client id share their
            series.
        sla_seconds: The objective W, > 0: a bucket of the latency histogram of its own.
        clock: Monotonic seconds, for the age of the heartbeat.
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
        self.group = group
        self.member_labels: Labels = (group, client_id)
        self._sla_seconds = float(sla_seconds)
        self._clock = clock
        self._closed = False
        self._heartbeat_at: float | None = None
        self._gauges: dict[Family, dict[Labels, float]] = {f: {} for f in FAMILIES if f.kind == "gauge"}
        self._labels: dict[tuple[str, int], Labels] = {}
        self._words: dict[Family, set[str]] = {}
        self.registry: CollectorRegistry = REGISTRY if registry is None else registry
        self._page = self._open()

    def _open(self) -> _Page:
        with _pages_lock:
            page = _pages.get(self.registry)
            if page is None:
                page = _Page()
                self.registry = _registered(page, self.registry, self.group)
                _pages[self.registry] = page
            with page.lock:
                page.users.append(self)
                # Another consumer with these labels may have another objective: its histograms get our bucket
                # too.
                for labels, histogram in page.histograms[LATENCY].items():
                    if labels[:2] == self.member_labels:
                        histogram.add_bound(self._sla_seconds)
        return page

    def close(self) -> None:
        """Take this consumer's series out of the registry, and the collector with the last consumer."""
        with _pages_lock:
            with self._page.lock:
                if self._closed:
                    return
                self._closed = True
                self._page.drop_series(self)
                self._page.users.remove(self)
                unused = not self._page.users
            if unused and _pages.get(self.registry) is self._page:
                del _pages[self.registry]
                with suppress(KeyError):  # somebody emptied the registry
                    self.registry.unregister(self._page)

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
        labels = self._partition_labels(topic, partition)
        latency, busy = self._histogram(LATENCY, labels[:3]), self._histogram(BUSY, labels[:3])
        # The batches are bucketed outside the lock, so a scrape never waits for a sort.
        bounds = latency.bounds
        late, worked = tally(bounds, latencies), tally(busy.bounds, busies)
        with self._page.lock:
            if not self._closed:
                done = self._page.counters[RECORDS_DONE]
                done[labels] = done.get(labels, 0) + count
                if latency.bounds is not bounds:
                    bounds = latency.bounds
                    late = tally(bounds, latencies)
                latency.add(late)
                busy.add(worked)
        return {(*bounds, inf)[index]: more for index, more in late.counts.items()}

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
        labels = self._partition_labels(topic, partition)
        with self._page.lock:
            if self._closed:
                return
            for family, value in zip(_PARTITION_GAUGES, (lag_records, lag_seconds, arrival_rate), strict=True):
                if value is None:
                    self._gauges[family].pop(labels, None)
                else:
                    self._gauges[family][labels] = value

    def dropped_partition(self, topic: str, partition: int) -> None:
        """The partition is owned no more: its gauges go, what was done stays counted."""
        labels = self._partition_labels(topic, partition)
        with self._page.lock:
            for family in _PARTITION_GAUGES:
                self._gauges[family].pop(labels, None)
            self._labels.pop((topic, partition), None)

    def owned(self, count: int) -> None:
        """How many partitions the member owns."""
        self._set(OWNED, self.member_labels, count)

    def utilization(self, ratio: float | None) -> None:
        """Busy seconds per second over capacity, 0 .. 1 and above; None: not known."""
        self._set(UTILIZATION, self.member_labels, ratio)

    def handoff(self, side: Literal["release", "acquire"], seconds: float) -> None:
        """One side of a handoff is over."""
        self._observe(HANDOFF, (*self.member_labels, self._word(HANDOFF, side)), seconds)

    def move(self, outcome: str) -> None:
        """What became of one move of this member's (``done``, ``timed_out``, ``dropped``, ...)."""
        self._count(MOVES, (*self.member_labels, self._word(MOVES, outcome)))

    # Group and leader

    def leader(self, leads: bool) -> None:
        """Whether the member leads. A member that does not tells no number of replicas either."""
        self._set(LEADER, self.member_labels, int(leads))
        if not leads:
            self.replicas("wanted", None)
            self.replicas("actual", None)

    def generation(self, number: int) -> None:
        """The generation that the member is in."""
        self._set(GENERATION, self.member_labels, number)

    def replicas(self, state: Literal["wanted", "actual"], count: int | None) -> None:
        """Replicas as the leader wants and sees them; None: not known."""
        self._set(REPLICAS, (self.group, self._word(REPLICAS, state)), count)

    def plan(self, outcome: str, seconds: float) -> None:
        """The leader made a decision (``DecisionRecord.outcome``) in so many seconds."""
        self._count(PLANS, (self.group, self._word(PLANS, outcome)))
        self._observe(PLAN_SECONDS, (self.group,), seconds)

    def scaler_request(self, outcome: str) -> None:
        """One request for replicas was answered: ``accepted``, ``refused`` or ``failed``."""
        self._count(SCALER_REQUESTS, (self.group, self._word(SCALER_REQUESTS, outcome)))

    # The agent itself

    def heartbeat_age(self, seconds: float = 0.0) -> None:
        """The last answered heartbeat was sent so many seconds ago.

        The age grows by itself between calls, so that it shows an agent that has stopped calling.
        """
        with self._page.lock:
            self._heartbeat_at = self._clock() - seconds

    def agent_error(self, where: str) -> None:
        """Something broke and was contained. ``where`` is one word out of a small set, never a message."""
        self._count(AGENT_ERRORS, (*self.member_labels, self._word(AGENT_ERRORS, where)))

    # Leaves

    def _partition_labels(self, topic: str, partition: int) -> Labels:
        key = (topic, partition)
        labels = self._labels.get(key)
        if labels is None:
            labels = self._labels[key] = (*self.member_labels, topic, str(partition))
        return labels

    def _word(self, family: Family, word: str) -> str:
        words = self._words.setdefault(family, set())
        if word in words:
            return word
        if len(words) >= WORDS_MAX:
            return OTHER
        words.add(word)
        return word

    def _histogram(self, family: Family, labels: Labels) -> Histogram:
        """The histogram with these labels; one that is in no page after close."""
        series = self._page.histograms[family]
        found = series.get(labels)
        if found is not None:
            return found
        with self._page.lock:
            created = Histogram(self._bounds(family))
            return created if self._closed else series.setdefault(labels, created)

    def _bounds(self, family: Family) -> tuple[float, ...]:
        if family is not LATENCY:
            return _BOUNDS[family]
        twins = [user for user in self._page.users if user.member_labels == self.member_labels]
        return (*LATENCY_BOUNDS, self._sla_seconds, *(user._sla_seconds for user in twins))

    def _observe(self, family: Family, labels: Labels, value: float) -> None:
        histogram = self._histogram(family, labels)
        batch = tally(histogram.bounds, (value,))
        with self._page.lock:
            if not self._closed:
                histogram.add(batch)

    def _count(self, family: Family, labels: Labels) -> None:
        with self._page.lock:
            if not self._closed:
                series = self._page.counters[family]
                series[labels] = series.get(labels, 0) + 1

    def _set(self, family: Family, labels: Labels, value: float | None) -> None:
        with self._page.lock:
            if self._closed:
                return
            if value is None:
                self._gauges[family].pop(labels, None)
            else:
                self._gauges[family][labels] = value

    def _read_gauges(self) -> list[tuple[Family, Labels, float]]:
        """Everything this consumer shows. The lock is held."""
        shown = [(family, labels, value) for family, series in self._gauges.items() for labels, value in series.items()]
        if self._heartbeat_at is not None:
            shown.append((HEARTBEAT_AGE, self.member_labels, max(0.0, self._clock() - self._heartbeat_at)))
        return shown


_BOUNDS: Final = {BUSY: BUSY_BOUNDS, HANDOFF: HANDOFF_BOUNDS, PLAN_SECONDS: PLAN_BOUNDS}
