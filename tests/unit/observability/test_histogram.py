"""Bucketing of batches, against the definition and against prometheus_client's own histogram."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as TheirHistogram

from loadtrim_agent.observability.histogram import LATENCY_BOUNDS, Histogram, tally

BOUNDS = (0.1, 0.5, 1.0)
values = st.lists(st.floats(0.0, 5.0) | st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.0000001]), max_size=200)


def by_definition(batch: list[float]) -> dict[int, int]:
    """Value by value: the first bucket whose bound is not below it."""
    counts: dict[int, int] = {}
    for value in batch:
        index = next((i for i, bound in enumerate(BOUNDS) if value <= bound), len(BOUNDS))
        counts[index] = counts.get(index, 0) + 1
    return counts


@given(values)
def test_a_batch_is_bucketed_as_its_values_are(batch: list[float]) -> None:
    counts, total = tally(BOUNDS, batch)
    assert counts == by_definition(batch)
    assert total == pytest.approx(sum(batch))


@given(st.lists(values, max_size=5))
def test_it_shows_what_prometheus_own_histogram_shows(batches: list[list[float]]) -> None:
    ours = Histogram(LATENCY_BOUNDS)
    registry = CollectorRegistry()
    theirs = TheirHistogram("x", "x", buckets=LATENCY_BOUNDS, registry=registry)
    for batch in batches:
        ours.add(tally(ours.bounds, batch))
        for value in batch:
            theirs.observe(value)
    shown = [
        (sample.labels["le"], sample.value)
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "x_bucket"
    ]
    assert ours.buckets() == shown
    assert ours.total == pytest.approx(registry.get_sample_value("x_sum") or 0.0)


@pytest.mark.parametrize("size", [1, 15, 16, 100])
def test_values_that_are_no_numbers_are_left_out(size: int) -> None:
    counts, total = tally(BOUNDS, [0.3] * size + [math.nan, math.inf, -math.inf])
    assert counts == {1: size}
    assert total == pytest.approx(0.3 * size)


@pytest.mark.parametrize("size", [1, 100])
def test_values_below_zero_count_as_zero(size: int) -> None:
    """A producer's clock that is ahead: the sum must never fall."""
    assert tally(BOUNDS, [-3.0] * size) == ({0: size}, 0.0)


def test_an_empty_batch() -> None:
    assert tally(BOUNDS, []) == ({}, 0.0)


def test_a_value_that_is_a_bound_belongs_to_it() -> None:
    histogram = Histogram((1.0, 0.5, 0.5))
    histogram.add(tally(histogram.bounds, [0.5, 1.0, 1.1]))
    assert histogram.buckets() == [("0.5", 1), ("1.0", 2), ("+Inf", 3)]


def test_a_bound_that_comes_later_counts_exactly_from_then_on_and_never_flatters() -> None:
    histogram = Histogram((0.5, 1.0))
    histogram.add(tally(histogram.bounds, [0.6]))
    histogram.add_bound(0.7)
    histogram.add_bound(0.7)
    histogram.add(tally(histogram.bounds, [0.6, 0.8, 0.1]))
    assert histogram.buckets() == [("0.5", 1), ("0.7", 2), ("1.0", 4), ("+Inf", 4)]


def test_a_copy_is_independent() -> None:
    histogram = Histogram((0.5,))
    copy = histogram.copy()
    histogram.add(tally(histogram.bounds, [0.1]))
    assert copy.buckets() == [("0.5", 0), ("+Inf", 0)]
    assert copy.total == 0.0
