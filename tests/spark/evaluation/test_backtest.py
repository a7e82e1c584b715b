"""Back-tests of loads whose scores are known by hand, or by a slower way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from loadtrim_spark.cli.studies import _table
from loadtrim_spark.evaluation.backtest import METHODS, backtested, counted_days, scores, told
from loadtrim_spark.learning.days import WHOLE_TOPIC
from loadtrim_spark.learning.learn import QUANTILES, Calendar
from loadtrim_spark.pipeline.baselines import baselines
from spark.harness import as_json

HOUR, DAY, WEEK = 3600, 86_400, 604_800
END = 1_795_392_000  # Monday, 2026-11-23 00:00 UTC
CALENDAR = Calendar(END, "UTC", HOUR, 4)
MINUTES = [100] * 50 + [200] * 9 + [400]
"""Of an hour: p50 is 100, p90 200, p99 400; 120 on average."""


def days_of(spark: SparkSession, minutes: Callable[[int], list[int]], weeks: int = 6) -> DataFrame:
    """Days' rows of one topic from each hour's 60 minutes."""
    rows = [
        (start + 60 * place, count)
        for start in range(END - weeks * WEEK, END, HOUR)
        for place, count in enumerate(minutes(start))
    ]
    return counted_days(spark.createDataFrame(rows, "start bigint, arrived bigint"), 60, HOUR, "g", "t")


def busy(start: int) -> bool:
    hour = (start - END) // HOUR % 168
    return hour // 24 < 5 and 8 <= hour % 24 < 18


def by_day(start: int) -> list[int]:
    return [count * 10 for count in MINUTES] if busy(start) else MINUTES


def by_name(days: DataFrame, begin: int = END - 2 * DAY) -> dict[tuple[str, float], Any]:
    return {(score.method, score.quantile): score for score in backtested(days, CALENDAR, begin)}


def test_scores_by_hand(spark: SparkSession) -> None:
    """Every hour is alike, so all methods say the same: the losses are those of a sheet of paper."""
    found = by_name(days_of(spark, lambda start: MINUTES))
    assert len(found) == len(METHODS) * len(QUANTILES)
    for method in METHODS:
        coverage = [found[method, quantile].coverage for quantile in QUANTILES]
        assert coverage == pytest.approx([50 / 60, 59 / 60, 1.0])
        loss = [found[method, quantile].pinball for quantile in QUANTILES]
        assert loss == pytest.approx([10 / 120, (8.333333 + 3) / 120, 2.8 / 120], rel=1e-5)
        assert found[method, 0.5].minutes == 2 * DAY // 60


def test_a_topic_that_was_silent_in_the_judged_time_has_no_loss(spark: SparkSession) -> None:
    """The whole back-test ended by a division by zero."""
    found = by_name(days_of(spark, lambda start: MINUTES if start < END - 2 * DAY else [0] * 60))
    assert {score.pinball for score in found.values()} == {None}
    assert {score.minutes for score in found.values()} == {2 * DAY // 60}
    lines = _table(list(found.values()), END - 2 * DAY, END)
    assert lines[2:] == ["g t: 2,880 minutes", lines[3]]
    assert "nothing came in these minutes" in lines[3]


def test_who_knows_the_week_wins(spark: SparkSession) -> None:
    """Ten times as much by day: known to the baseline and a week ago, not to the last hour, less to the mean."""
    found = by_name(days_of(spark, by_day), END - 4 * DAY)
    loss = {method: sum(found[method, quantile].pinball for quantile in QUANTILES) for method in METHODS}
    assert loss["baseline"] == pytest.approx(loss["seasonal_naive"], rel=1e-6)
    assert loss["baseline"] < 0.8 * loss["last_value"] < 0.8 * loss["none"]


def test_nothing_later_than_the_origin_is_known(spark: SparkSession) -> None:
    """What comes after an origin changes what is judged, and nothing of what was said."""
    origin = END - 3 * DAY
    said = []
    for factor in (1, 50):
        days = days_of(
            spark, lambda start, times=factor: [n * (times if start >= origin else 1) for n in by_day(start)]
        )
        rows = told(days, CALENDAR, [(origin, origin + DAY)]).orderBy("start").collect()
        said.append([(row["start"], row["baseline"], row["seasonal_naive"], row["none"]) for row in rows])
    assert said[0] == said[1]
    assert len(said[0]) == 24


def test_told_is_what_would_have_been_published(spark: SparkSession) -> None:
    """The way of the back-test, all origins at once, and the way of `baselines`, one by one, say the same."""
    days = days_of(spark, lambda start: [count * (1 + (start // HOUR) % 7) for count in by_day(start)]).persist()
    origins = [END - 9 * DAY, END - 2 * DAY]
    answers = told(days, CALENDAR, [(origin, origin + DAY) for origin in origins]).collect()
    assert len(answers) == 48
    for origin in origins:
        published = baselines(days.where(F.col("start") < origin), Calendar(origin, "UTC", HOUR, 4)).collect()
        record = next(as_json(row["value"]) for row in published if row["key"] == '["g","t",null]')
        for row in answers:
            if row["origin"] == origin:
                weeks = (row["start"] - origin) / WEEK
                slot = (row["start"] - END) // HOUR % 168
                rate = record["rate"] * (1 + record["growth"]) ** weeks * record["shape"][slot] / 1000
                expected = [rate * factor for factor in record["quantiles"]]
                assert row["baseline"] == pytest.approx(expected, rel=0.02)


def test_scores_by_the_slow_way(spark: SparkSession) -> None:
    """Sums over the minutes in plain Python, with an unwatched hour and minutes in which nothing came."""

    def minutes(start: int) -> list[int]:
        return [count if (start // HOUR + place) % 11 else 0 for place, count in enumerate(by_day(start))]

    days = days_of(spark, minutes).where(F.col("start") != END - 30 * HOUR)
    answers = told(days, CALENDAR, [(END - 2 * DAY, END - DAY), (END - DAY, END)]).persist()
    rows = [row for row in answers.collect() if all(row[method] is not None for method in METHODS)]
    seen = [
        (row, count / 60)
        for row in rows
        for count in [*row["minutes"], *[0] * (int(row["covered"]) - len(row["minutes"]))]
    ]
    mean = sum(rate for _, rate in seen) / len(seen)
    judged = scores(answers).collect()
    assert {row["minutes"] for row in judged} == {len(seen)} == {46 * 60}  # and the hour after has no last value
    for score in judged:
        place, quantile = QUANTILES.index(score["quantile"]), score["quantile"]
        pairs = [(rate, row[score["method"]][place]) for row, rate in seen]
        loss = sum(max(quantile * (rate - said), (quantile - 1) * (rate - said)) for rate, said in pairs)
        assert score["pinball"] == pytest.approx(loss / len(seen) / mean)
        assert score["coverage"] == pytest.approx(sum(rate <= said * (1 + 1e-9) for rate, said in pairs) / len(seen))


def test_counts_of_half_hours_are_thirty_minutes_alike(spark: SparkSession) -> None:
    counts = spark.createDataFrame([(END, 7), (END + 1800, 0), (END + 3600, 9)], "start bigint, arrived bigint")
    rows = counted_days(counts, 1800, HOUR, "g", "t").orderBy("part", "start").collect()
    told_of = [(row["part"], row["start"], row["covered"], row["arrived"], row["minutes"]) for row in rows]
    assert told_of == [
        ("bucket", END, 60, 7 * 30, [7] * 30),
        ("bucket", END + HOUR, 30, 9 * 30, [9] * 30),
    ]
    assert {row["partition"] for row in rows} == {WHOLE_TOPIC}
