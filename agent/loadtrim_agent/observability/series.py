"""The series of one consumer, and the page of its registry.

Theory of operation: one *page* per registry is the only collector registered there, however many consumers of
the process use that registry. A consumer writes through its own :class:`Series`. Counters and histograms
live in the page, by label values, so that two consumers with the same group and client id (aiokafka's default
client id is the same for all) add up instead of clashing; gauges live with the consumer and are merged when
the page is read. The last consumer with some label values takes their series with it.

One lock per page guards everything; it is held for microseconds per batch, and while a scrape copies the
numbers, never while the text is made. Prometheus' multi-process mode (files shared by forked workers) is not
supported, as by every collector of one's own.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final
from weakref import WeakKeyDictionary

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from loadtrim_agent.common.error_boundary import FirstOfKind

from .families import (
    BUSY,
    FAMILIES,
    HANDOFF,
    LATENCY,
    OTHER,
    PLAN_SECONDS,
    WORDS_MAX,
    Family,
    Labels,
)
from .histogram import BUSY_BOUNDS, HANDOFF_BOUNDS, LATENCY_BOUNDS, PLAN_BOUNDS, Histogram, tally

__all__ = ["Series"]

_log = logging.getLogger("loadtrim.metrics")

_BOUNDS: Final = {BUSY: BUSY_BOUNDS, HANDOFF: HANDOFF_BOUNDS, PLAN_SECONDS: PLAN_BOUNDS}


class _Page(Collector):
    """All series of one registry."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users: list[Series] = []
        self.counters: dict[Family, dict[Labels, float]] = {f: {} for f in FAMILIES if f.kind == "counter"}
        self.histograms: dict[Family, dict[Labels, Histogram]] = {f: {} for f in FAMILIES if f.kind == "histogram"}

    def describe(self) -> Iterable[Metric]:
        """The families without samples, so that a registry knows the names without a scrape."""
        return [_filled(family, {}, {}) for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """The families with their samples. Called by a scrape, on any thread. About 3 us per sample."""
        _close_abandoned()
        with self.lock:
            counters = {family: dict(series) for family, series in self.counters.items()}
            histograms = {
                family: {labels: histogram.copy() for labels, histogram in series.items()}
                for family, series in self.histograms.items()
            }
            gauges = [gauge for user in self.users for gauge in user.read_gauges()]
        merged: dict[Family, dict[Labels, float]] = {}
        for family, labels, value in gauges:
            series = merged.setdefault(family, {})
            if labels not in series:
                series[labels] = value
            else:
                series[labels] = series[labels] + value if family.merge == "sum" else max(series[labels], value)
        values = counters | merged
        return [_filled(family, values.get(family, {}), histograms.get(family, {})) for family in FAMILIES]

    def drop_series(self, user: Series) -> None:
        """Forget the series that nobody but ``user`` writes to. The lock is held."""
        others = [other for other in self.users if other is not user]
        lone_member = all(other.member_labels != user.member_labels for other in others)
        lone_group = all(other.group_labels != user.group_labels for other in others)
        families: list[tuple[Family, dict[Labels, float] | dict[Labels, Histogram]]] = [
            *self.counters.items(),
            *self.histograms.items(),
        ]
        for family, series in families:
            own = user.member_labels if family.per_member else user.group_labels
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


def _asked(read: Callable[[], float | None], errors: FirstOfKind) -> float | None:
    """Return a live gauge's value; one that breaks is not shown, and costs no other one."""
    try:
        return read()
    except Exception as error:
        _log.log(
            errors.level(error),
            "A number for the metrics could not be asked for; it is left out. Said once; please report it with this "
            "trace.",
            exc_info=error,
        )
        return None


_abandoned: deque[Series] = deque()


def _close_abandoned() -> None:
    while _abandoned:
        with suppress(IndexError):  # Another thread has taken it.
            _abandoned.popleft().close()


_pages: WeakKeyDictionary[CollectorRegistry, _Page] = WeakKeyDictionary()
_pages_lock = threading.Lock()


def _forked() -> None:
    """Empty the pages, in a child: what they show is the parent's."""
    global _pages_lock
    _pages_lock = threading.Lock()
    for page in _pages.values():
        page.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Series:
    """One consumer writes its numbers into this. Every method may be called from any thread.

    Args:
        registry: Where the metrics are registered; None: Prometheus' default registry.
        member_labels: Consumer group id and client id. Consumers with the same ones share their series.
        objective_seconds: A bucket of the latency histogram of its own.
        clock: Monotonic seconds, for what ages by itself.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None,
        member_labels: tuple[str, str],
        objective_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.member_labels: Labels = member_labels
        self.group_labels: Labels = member_labels[:1]
        self.objective_seconds = objective_seconds
        self.closed = False
        self._clock = clock
        self._gauges: dict[Family, dict[Labels, float]] = {f: {} for f in FAMILIES if f.kind == "gauge"}
        self._since: dict[Family, float] = {}
        """Beginnings (clock) of what is shown as an age."""
        self._live: list[tuple[Family, Labels, Callable[[], float | None]]] = []
        """Gauges that are asked for at each scrape."""
        self._errors = FirstOfKind()
        self._words: dict[Family, set[str]] = {family: set(family.words) for family in FAMILIES}
        self.registry: CollectorRegistry = REGISTRY if registry is None else registry
        self.page = self._open()

    def _open(self) -> _Page:
        _close_abandoned()
        with _pages_lock:
            page = _pages.get(self.registry)
            if page is None:
                page = _Page()
                self.registry = _registered(page, self.registry, self.member_labels[0])
                _pages[self.registry] = page
            with page.lock:
                page.users.append(self)
                # Another consumer with these labels may have another objective: its histograms get our bucket
                # too.
                for labels, histogram in page.histograms[LATENCY].items():
                    if labels[:2] == self.member_labels:
                        histogram.add_bound(self.objective_seconds)
                for family, series in page.counters.items():
                    for word in family.words:
                        series.setdefault((*self._own(family), word), 0)
        return page

    def close(self) -> None:
        """Take this consumer's series out of the registry, and the collector with the last consumer."""
        with _pages_lock:
            with self.page.lock:
                if self.closed:
                    return
                self.closed = True
                self.page.drop_series(self)
                if self in self.page.users:  # not in a forked child, whose page begins anew
                    self.page.users.remove(self)
                unused = not self.page.users
            if unused and _pages.get(self.registry) is self.page:
                del _pages[self.registry]
                with suppress(KeyError):  # somebody emptied the registry
                    self.registry.unregister(self.page)

    def abandon(self) -> None:
        """Have it closed by whoever opens another one, or scrapes, next.

        The garbage collector may call this on a thread that holds any lock, so it takes none.
        """
        _abandoned.append(self)

    # By the labels that are the consumer's own

    def count(self, family: Family, word: str | None = None, more: float = 1) -> None:
        """Add to a counter, with ``word`` as the last label's value where it has one of that kind."""
        labels = self._labels(family, word)
        with self.page.lock:
            if not self.closed:
                series = self.page.counters[family]
                series[labels] = series.get(labels, 0) + more

    def observe(self, family: Family, value: float, word: str | None = None) -> None:
        """Add one value to a histogram."""
        histogram = self.histogram(family, self._labels(family, word))
        batch = tally(histogram.bounds, (value,))
        with self.page.lock:
            if not self.closed:
                histogram.add(batch)

    def show(self, family: Family, value: float | None, word: str | None = None) -> None:
        """Set a gauge; None: it is not known, and not shown."""
        self.show_at(self._labels(family, word), {family: value})

    def show_state(self, family: Family, state: str | None) -> None:
        """Set the gauge of the one state to 1 and those of all others to 0; None: of none is it 1."""
        for word in family.words:
            self.show(family, int(word == state), word)

    def show_since(self, family: Family, at: float | None) -> None:
        """Show the age of what began at ``at`` (by the clock), which grows by itself; None: nothing is shown.

        So it shows an agent that has stopped calling, too.
        """
        with self.page.lock:
            if at is None:
                self._since.pop(family, None)
            else:
                self._since[family] = at

    def show_live(self, family: Family, read: Callable[[], float | None], word: str | None = None) -> None:
        """Show at each scrape what ``read`` returns then, on the scrape's thread; None: nothing is shown."""
        with self.page.lock:
            self._live.append((family, self._labels(family, word), read))

    # By labels that the caller makes

    def show_at(self, labels: Labels, values: Mapping[Family, float | None]) -> None:
        """Set some gauges with the same labels at once; None: it is not known, and not shown."""
        with self.page.lock:
            if self.closed:
                return
            for family, value in values.items():
                if value is None:
                    self._gauges[family].pop(labels, None)
                else:
                    self._gauges[family][labels] = value

    def histogram(self, family: Family, labels: Labels) -> Histogram:
        """Return the histogram with these labels; one that is in no page after close."""
        series = self.page.histograms[family]
        found = series.get(labels)
        if found is not None:
            return found
        with self.page.lock:
            created = Histogram(self._bounds(family))
            return created if self.closed else series.setdefault(labels, created)

    def read_gauges(self) -> list[tuple[Family, Labels, float]]:
        """Return everything this consumer shows. The lock is held."""
        shown = [(family, labels, value) for family, series in self._gauges.items() for labels, value in series.items()]
        now = self._clock()
        shown += [(family, self._own(family), max(0.0, now - at)) for family, at in self._since.items()]
        asked = ((family, labels, _asked(read, self._errors)) for family, labels, read in self._live)
        shown += [(family, labels, value) for family, labels, value in asked if value is not None]
        return shown

    def forget(self, labels: Labels) -> None:
        """Take counters and histograms whose labels begin so out of the registry, where nobody else writes to them."""
        with self.page.lock:
            if any(user is not self and user.member_labels == self.member_labels for user in self.page.users):
                return
            kinds: tuple[Iterable[dict[Labels, float] | dict[Labels, Histogram]], ...] = (
                self.page.counters.values(),
                self.page.histograms.values(),
            )
            for series in itertools.chain.from_iterable(kinds):
                for gone in [each for each in series if each[: len(labels)] == labels]:
                    del series[gone]

    # Leaves

    def _own(self, family: Family) -> Labels:
        return self.member_labels if family.per_member else self.group_labels

    def _labels(self, family: Family, word: str | None) -> Labels:
        own = self._own(family)
        return own if word is None else (*own, self._word(family, word))

    def _word(self, family: Family, word: str) -> str:
        words = self._words[family]
        if word in words:
            return word
        if len(words) >= WORDS_MAX:
            return OTHER
        words.add(word)
        return word

    def _bounds(self, family: Family) -> tuple[float, ...]:
        if family is not LATENCY:
            return _BOUNDS[family]
        twins = [user for user in self.page.users if user.member_labels == self.member_labels]
        return (*LATENCY_BOUNDS, self.objective_seconds, *(user.objective_seconds for user in twins))
