"""Figures of a small history by hand, and the page that is made of them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.telemetry_records import DecisionRecord, PartitionReport, ReportRecord
from loadtrim_agent.wire.topic_names import control_topic
from loadtrim_spark.evaluation.backtest import counted_days
from loadtrim_spark.learning.learn import Calendar
from loadtrim_spark.pipeline.parse import first_of_each, parsed
from loadtrim_spark.reporting.charts import Line, bars, lines
from loadtrim_spark.reporting.report import best_hours, page, worst_hours
from loadtrim_spark.reporting.story import Interval, Mode, Period, Story, explained, gather
from spark.harness import DAY, MONDAY, decision, report

HOUR = 3600
PERIOD = Period(begin=MONDAY, end=MONDAY + 2 * HOUR)
CALENDAR = Calendar(MONDAY + 2 * HOUR, "UTC", 900, 2)


def history(spark: SparkSession, records: list[ReportRecord | DecisionRecord]) -> DataFrame:
    rows = [
        (b"k", bytearray(encode(one)), control_topic(one.group), 1, n, float(one.at)) for n, one in enumerate(records)
    ]
    raw = spark.createDataFrame(
        rows, "key binary, value binary, topic string, `partition` int, offset bigint, at double"
    )
    return first_of_each(parsed(raw.withColumn("timestamp", F.timestamp_seconds("at")), 1e6, "b/0"))


def worked(sequence: int, at: float, records: int, **fields: object) -> ReportRecord:
    parts = (PartitionReport(topic="t", partition=0, arrived=records, done=records, cost_mean=0.01),)
    return report(sequence, at, partitions=parts, busy_seconds=records * 0.01, **fields)


def decided(sequence: int, at: float, actual: int, wanted: int, mode: str = "active", **late: int) -> DecisionRecord:
    from msgspec.structs import replace as changed

    return changed(
        decision(sequence, at), replicas_actual=actual, replicas_wanted=wanted, mode=mode, late=late,
        objective_seconds=0.5, objective_share=0.999,
    )  # fmt: skip


def test_figures_by_hand(spark: SparkSession) -> None:
    """Two members, one of whom loses time; a leader that wants more, then goes into shadow mode."""
    records = [
        worked(1, MONDAY + 1, 100, in_time=90, late={"queued": 8, "serial": 2}, handoffs=(0.01, 0.02)),
        worked(2, MONDAY + 30, 50, in_time=50),
        worked(3, MONDAY + 3700, 10, in_time=10),
        worked(9, MONDAY - 5, 1000, in_time=1000),  # before the time that is told of
        decided(1, MONDAY + 10, 2, 3, startup=3, placement=1),
        decided(2, MONDAY + 20, 3, 3),
        decided(3, MONDAY + 3600, 3, 2, "shadow"),
        decided(4, MONDAY + 3610, 3, 4, "shadow"),
    ]
    (story,) = gather(history(spark, list(records)), None, PERIOD, CALENDAR)
    assert PERIOD.interval_seconds == 60
    assert [each.start - MONDAY for each in story.intervals] == [0, 3600, 3660]
    first = story.intervals[0]
    assert (first.arrived, first.in_time, first.late, first.moves) == (150, 140, 10, 2)
    assert first.busy_seconds == pytest.approx(1.5)
    # 10 s with 2 replicas, then at most 30 s of the next hour with 3.
    assert (first.replica_seconds, first.wanted_seconds, first.decided_seconds) == (20 + 90, 30 + 90, 40)
    assert first.wanted_max == 3
    assert story.causes == {MONDAY: {"placement": 2, "serial": 2, "startup": 6}}
    assert story.modes == {
        "active": Mode(seconds=40, replica_seconds=110, wanted_seconds=120, more_seconds=10, largest=3),
        "shadow": Mode(seconds=11, replica_seconds=33, wanted_seconds=24, more_seconds=1, largest=3),
    }
    assert (story.objective_seconds, story.objective_share, story.expected) == (0.5, 0.999, {})


def test_counts_that_nobody_measured_do_not_end_the_page(spark: SparkSession) -> None:
    """A leader's may be as large as any number, and so may all of a history from before there were ranges."""
    records = [decided(number, MONDAY + number, 1, 1, startup=9 * 10**18) for number in (1, 2)]
    records += [worked(number, MONDAY + number, 7, in_time=7, late={"queued": 3}) for number in (1, 2)]
    huge = F.lit(9 * 10**18)
    spoilt = history(spark, list(records)).withColumns({
        "in_time": huge, "partitions": F.transform("partitions", lambda part: part.withField("arrived", huge)),
    })  # fmt: skip
    (story,) = gather(spoilt, None, PERIOD, CALENDAR)
    (interval,) = story.intervals
    assert (interval.arrived, interval.in_time, interval.late) == (10**18, 10**18, 6)
    assert story.causes == {MONDAY: {"startup": 6}}


@pytest.mark.parametrize(
    ("members", "leaders", "found"),
    [
        ({"queued": 8, "serial": 2}, {"startup": 3, "placement": 1}, {"startup": 6, "placement": 2, "serial": 2}),
        ({"queued": 8}, {"unasked": 3, "placement": 1}, {"unasked": 6, "placement": 2}),
        ({"queued": 7}, {"startup": 1, "placement": 1, "forecast": 1}, {"startup": 2, "placement": 2, "forecast": 3}),
        ({"queued": 5, "blocked": 1}, {}, {"queued": 5, "blocked": 1}),
        ({"serial": 1}, {"startup": 9}, {"serial": 1}),
        ({}, {"startup": 9}, {}),
    ],
)
def test_every_late_record_has_one_cause(
    members: dict[str, int], leaders: dict[str, int], found: dict[str, int]
) -> None:
    assert explained(members, leaders) == found


def test_expected_is_told_by_the_day_before(spark: SparkSession) -> None:
    """Four weeks of 60 records a minute, twice as many on Mondays: so much is expected of this one."""
    rows = [(start, 120 if (start - MONDAY) // DAY % 7 == 0 else 60) for start in range(MONDAY - 28 * DAY, MONDAY, 60)]
    today = [(MONDAY + minute * 60, 500) for minute in range(120)]
    days = counted_days(spark.createDataFrame(rows + today, "start bigint, arrived bigint"), 60, 900, "g", "t")
    calendar = Calendar(MONDAY + 2 * HOUR, "UTC", 900, 3)
    (story,) = gather(history(spark, [worked(1, MONDAY + 1, 5), decision(1, MONDAY + 2)]), days, PERIOD, calendar)
    assert sorted(story.expected) == [MONDAY + minute * 60 for minute in range(120)]
    for quantiles in story.expected.values():
        assert quantiles == pytest.approx((2.0, 2.0, 2.0))


def test_hours_in_order() -> None:
    def hour(number: int, in_time: int, late: int, busy: float) -> Interval:
        return Interval(start=MONDAY + number * HOUR, arrived=in_time + late, in_time=in_time, late=late,
                        busy_seconds=busy, replica_seconds=7200.0, decided_seconds=3600.0)  # fmt: skip

    halves = [replace(hour(1, 40, 10, 300.0), start=MONDAY + HOUR), replace(hour(1, 50, 0, 300.0), start=MONDAY + 5400)]
    story = Story(group="g", intervals=(hour(0, 99, 1, 10.0), *halves, hour(2, 7, 0, 1.0), hour(3, 9, 0, 2.0)),
                  causes={}, modes={}, expected={})  # fmt: skip
    assert [(each.start - MONDAY) // HOUR for each in worst_hours(story)] == [1, 0]
    assert worst_hours(story)[0].share_in_time == pytest.approx(0.9)
    assert [(each.start - MONDAY) // HOUR for each in best_hours(story)] == [3, 2]


class _Page(HTMLParser):
    """Text and what would have to be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [
            f"{tag} {name}" for name, value in attrs if name in ("src", "href") and (value or "#")[0] != "#"
        ]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


STORY = Story(
    group="pay<ments>",
    intervals=tuple(
        Interval(start=MONDAY + 60 * minute, arrived=600, in_time=590, late=10 if minute == 70 else 0,
                 busy_seconds=30.0, moves=int(minute % 7 == 0), replica_seconds=120.0, wanted_seconds=180.0,
                 decided_seconds=60.0)
        for minute in range(120) if minute != 30
    ),
    causes={MONDAY + 4200: {"startup": 8, "unheard_of": 2}},
    modes={"shadow": Mode(seconds=7140, replica_seconds=14_280, wanted_seconds=10_710, more_seconds=714, largest=2)},
    expected={MONDAY + 60 * minute: (9.0, 11.0, 14.0) for minute in range(120)},
    objective_seconds=0.5, objective_share=0.999,
)  # fmt: skip


def test_page_stands_by_itself() -> None:
    text = page([STORY, replace(STORY, group="other", modes={}, causes={}, expected={})], PERIOD, "today")
    parser = _Page()
    parser.feed(text)
    assert parser.fetched == []
    said = "".join(parser.text)
    for words in (
        "pay<ments>", "71,400", "99.986%", "replica on its way", "unheard_of", "25% less", "For 10.0% of the time",
        "Unknown: there are no decisions", "Nothing was expected", "Mon 24 Nov 01:00", "within 0.5 s",
    ):  # fmt: skip
        assert words in said
    plots = [part.split("</svg>")[0] for part in text.split("<svg")[1:]]
    assert len(plots) == 4 + 3
    for plot in plots:
        ET.fromstring(f"<svg{plot}</svg>")


def test_curves_break_where_nothing_is_known() -> None:
    times = [MONDAY + 900 * place for place in range(8)]
    values = [0.0, 1.0, None, 3.0, 7.3, None, None, 2.0]
    curves = [Line(name="a", values=values), Line(name="b<", values=values, below=[0.0] * 8)]
    text = lines(times, curves, zone="UTC", unit="u", title="t")
    paths = [part.attrib for part in ET.fromstring(text).iter() if "clip-path" in part.attrib]
    (curve,) = (path["d"] for path in paths if path["style"].startswith("fill: none; stroke: #0072b2"))
    assert (curve.count("M"), curve.count("L")) == (3, 2), "a value between two unknown ones is no line"
    assert "b&lt;" in text
    assert text == lines(times, curves, zone="UTC", unit="u", title="t")


def test_bars_of_nothing_and_of_one() -> None:
    for values in ([], [0.0], [5.0]):
        text = bars([MONDAY + HOUR * place for place in range(len(values))] or [MONDAY], {"a": values or [0.0]},
                    zone="Europe/Berlin", unit="u", title="t & t")  # fmt: skip
        ET.fromstring(text)
        assert text.count("fill: #0072b2") == sum(value > 0 for value in values)


def test_what_nobody_decided_is_unknown() -> None:
    """Without a leader's decisions nobody knows how many replicas there were: that is not none."""
    blind = tuple(replace(each, replica_seconds=0.0, decided_seconds=0.0) for each in STORY.intervals)
    text = page([replace(STORY, intervals=blind, modes={})], PERIOD, "today")
    assert "0.0</b>" not in text
    assert text.count("<b>unknown</b>") == 2
