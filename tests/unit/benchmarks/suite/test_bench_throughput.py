"""What the page says of throughput: beside each peer a figure of its own, each peer at its best."""

from __future__ import annotations

import pytest
from benchmarks.suite.bench_throughput import CASES, Told, faster, figures_of, ratio

ROUND = {
    ("loadtrim", "async for"): Told(200.0, 1.0),
    ("loadtrim", "getmany"): Told(300.0, 1.0),
    ("aiokafka", "async for"): Told(100.0, 1.0),
    ("aiokafka", "getmany"): Told(300.0, 1.0),
    ("confluent-kafka", "poll"): Told(400.0, 1.0),
    ("confluent-kafka", "consume"): Told(900.0, 1.0),
}


def test_the_peer_reads_with_the_batch_that_was_faster() -> None:
    assert faster({500: Told(10.0, 1.0), 10_000: Told(20.0, 1.0)}) == 10_000
    assert faster({500: Told(20.0, 1.0), 10_000: Told(20.0, 1.0)}) == 500


def test_the_page_says_where_confluent_kafka_is_faster_than_we_are() -> None:
    told = {figure.name: figure for figure in figures_of(CASES[0], [ROUND])}
    assert {name.partition(": ")[2]: (figure.value, figure.met) for name, figure in told.items()} == {
        "`async for`, relative to aiokafka's": (2.0, False),
        "`async for`, relative to confluent-kafka's `poll` (below 1: it is faster)": (0.5, None),
        "`getmany`, relative to aiokafka's": (1.0, True),
        "`getmany`, relative to confluent-kafka's `consume` (below 1: it is faster)": (pytest.approx(1 / 3), None),
    }


def test_ratios_are_taken_within_each_round() -> None:
    """The machine was twice as fast in the second round, for both."""
    twice = {key: Told(2 * told.records_per_second, 1.0) for key, told in ROUND.items()}
    assert ratio([ROUND, twice], ("loadtrim", "async for"), ("aiokafka", "async for")) == 2.0
