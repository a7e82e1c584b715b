"""How good would the baselines have been? Rolling origin: learn from what was known then, tell the time after it. Pure.

At each origin (a local midnight, as `baselines` runs once a day) the estimator of
:mod:`~loadtrim_spark.learning.learn` sees the weeks before
it and tells every minute until the next origin. Beside it, each with factors p50, p90, p99 of its own, learnt from the
same weeks, so that they compete in knowing the load and not in knowing its spread:

==============  ====================================================================================================
baseline        what `baselines` would have published
seasonal_naive  the rate at the same time a week ago, or two weeks ago where nobody watched then
last_value      the rate of the bucket before: no history needed, but known only when that bucket is over
none            the mean rate of the weeks: nothing is known of the time
==============  ====================================================================================================

All are judged by the same minutes: those that each of them has something to say about.

Source: R. J. Hyndman, G. Athanasopoulos, *Forecasting: Principles and Practice*, 5.9 (pinball loss), 5.10 (rolling
origin).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from loadtrim_spark.learning.days import DAY_COLUMNS, MINUTE_SECONDS, WHOLE_TOPIC
from loadtrim_spark.learning.learn import QUANTILES, WEEK_SECONDS, Calendar, learn, rates, without_outages
from loadtrim_spark.learning.local_days import spans

__all__ = ["METHODS", "Score", "backtested", "counted_days", "scores", "told"]

METHODS = ("baseline", "seasonal_naive", "last_value", "none")
PEERS = METHODS[1:]
ALIKE = 1 + 1e-9
"""What was said exactly is not above it because of the last bit."""
TOLD = ("group", "topic", "origin", "start", "covered", "minutes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one method's quantile did on one topic.

    Attributes:
        group: its id.
        topic: its name.
        method: one of :data:`METHODS`.
        quantile: 0 to 1.
        coverage: share of the minutes that were not above it.
        pinball: mean loss / mean rate; None: nothing came in the minutes that were judged.
        minutes: that were judged.
    """

    group: str
    topic: str
    method: str
    quantile: float
    coverage: float
    pinball: float | None
    minutes: int


def counted_days(counts: DataFrame, step_seconds: int, bucket_seconds: int, group: str, topic: str) -> DataFrame:
    """Days' rows of one topic, from counts that come from elsewhere than members.

    Args:
        counts: start (seconds since the epoch), arrived (records until the next count).
        step_seconds: length of a count, whole minutes. Longer ones are taken for so many minutes alike, each with all
            of the count, so that minutes stay whole numbers: rates come out so many times too large.
        bucket_seconds: length of a bucket, a multiple of the step.
        group: name of the group.
        topic: name of the topic.

    Returns:
        Rows of :data:`loadtrim_spark.learning.days.DAY_COLUMNS`.
    """
    bucket = (F.floor(F.col("start") / bucket_seconds) * bucket_seconds).cast("bigint")
    steps = step_seconds // MINUTE_SECONDS
    summed = counts.groupBy(bucket.alias("start")).agg(
        (F.count(F.lit(1)) * steps).cast("int").alias("covered"),
        (F.sum("arrived") * steps).alias("arrived"),
        F.flatten(F.collect_list(F.array_repeat(F.col("arrived"), steps))).alias("minutes"),
    )
    named = summed.select(
        F.to_date(F.timestamp_seconds("start")).alias("date"), F.lit(group).alias("group"), "start", "arrived",
        F.lit("bucket").alias("part"), F.lit(topic).alias("topic"), F.lit(WHOLE_TOPIC).alias("partition"), "covered",
        F.filter("minutes", lambda count: count > 0).alias("minutes"), F.lit(bucket_seconds).alias("bucket_seconds"),
    )  # fmt: skip
    empty = counts.sparkSession.createDataFrame([], DAY_COLUMNS)
    return empty.unionByName(named, allowMissingColumns=True)


def told(days: DataFrame, calendar: Calendar, spans: Sequence[tuple[int, int]]) -> DataFrame:
    """What each method would have said of each topic, and what came.

    Args:
        days: rows of :data:`loadtrim_spark.learning.days.DAY_COLUMNS`.
        calendar: its ``weeks`` are looked back from each origin; its ``as_of`` is the end of what is judged.
        spans: moments of learning and until when each tells, seconds since the epoch.

    Returns:
        A row per origin and bucket: group, topic, origin, start, covered, minutes (arrivals of the watched minutes that
        had any) and, per method, an array of the rates (records/s) that it puts at p50, p90 and p99.
    """
    spark = days.sparkSession
    reach = (calendar.as_of - min(spans)[0]) // WEEK_SECONDS + calendar.weeks + 3
    every = rates(days, Calendar(calendar.as_of, calendar.zone, calendar.bucket_seconds, reach))
    every = _with_peers(every.where(F.col("partition") == WHOLE_TOPIC), calendar.bucket_seconds).persist()
    frame = F.broadcast(spark.createDataFrame(spans, "origin bigint, until bigint"))
    known = every.join(
        frame.drop("until"),
        on=(F.col("start") + calendar.bucket_seconds <= F.col("origin"))
        & (F.col("start") >= F.col("origin") - calendar.weeks * WEEK_SECONDS),
        how="inner",
    )
    ahead = every.join(frame, on=(F.col("start") >= F.col("origin")) & (F.col("start") < F.col("until")), how="inner")
    answers = ahead.join(_baseline(known, calendar), on=["group", "topic", "origin"], how="inner")
    answers = answers.join(_factors(known), on=["group", "topic", "origin"], how="inner")
    since = (F.col("start") - F.col("origin")) / WEEK_SECONDS
    expected = F.col("level") * F.pow(1 + F.col("growth"), since) * F.element_at("shape", F.col("slot") + 1)
    return answers.withColumn("baseline", expected).select(
        *TOLD, *(_quantiles(method).alias(method) for method in METHODS)
    )  # fmt: skip


def scores(answers: DataFrame) -> DataFrame:
    """Pinball loss and coverage of each method's quantiles, by minutes.

    Args:
        answers: of :func:`told`.

    Returns:
        group, topic, method, quantile, coverage (share of the minutes that were not above it), pinball (mean loss /
        mean rate of these minutes; null where nothing came in them), minutes (how many were judged).
    """
    judged = reduce(lambda left, right: left & right, (F.col(method).isNotNull() for method in METHODS))
    zeros = F.array_repeat(
        F.lit(0).cast("bigint"), F.greatest(F.lit(0), (F.col("covered") - F.size("minutes")).cast("int"))
    )
    minutes = answers.where(judged).withColumn("minute", F.explode(F.concat("minutes", zeros)))
    rate = F.col("minute") / MINUTE_SECONDS
    figures = [
        figure
        for method in METHODS
        for place, quantile in enumerate(QUANTILES)
        for figure in (
            F.avg((rate <= F.col(method)[place] * ALIKE).cast("double")).alias(f"coverage {method} {quantile}"),
            F.avg(_pinball(rate, F.col(method)[place], quantile)).alias(f"pinball {method} {quantile}"),
        )
    ]
    summed = minutes.groupBy("group", "topic").agg(F.avg(rate).alias("mean"), F.count(F.lit(1)).alias("n"), *figures)
    lines = F.array(
        *(
            F.struct(
                F.lit(method).alias("method"),
                F.lit(quantile).alias("quantile"),
                F.col(f"`coverage {method} {quantile}`").alias("coverage"),
                F.try_divide(F.col(f"`pinball {method} {quantile}`"), F.col("mean")).alias("pinball"),
                F.col("n").alias("minutes"),
            )
            for method in METHODS
            for quantile in QUANTILES
        )
    )
    return summed.select("group", "topic", F.explode(lines).alias("line")).select("group", "topic", "line.*")


def backtested(days: DataFrame, calendar: Calendar, begin: int, every_days: int = 1) -> list[Score]:
    """Learn at midnights of the calendar's zone from ``begin`` to the calendar's end, and judge.

    Args:
        days: rows of :data:`loadtrim_spark.learning.days.DAY_COLUMNS`.
        calendar: its ``as_of`` is the end of what is judged.
        begin: the first midnight, seconds since the epoch.
        every_days: from one origin to the next.
    """
    rows = scores(told(days, calendar, spans(begin, calendar.as_of, calendar.zone, every_days))).collect()
    return sorted((Score(**row.asDict()) for row in rows), key=_order)


def _with_peers(every: DataFrame, bucket_seconds: int) -> DataFrame:
    """Add what the peers expect of a bucket: the rates of others. ``none`` follows from the origin."""
    series = ("group", "topic", "partition")

    def earlier(name: str, seconds: int) -> DataFrame:
        return every.select(*series, (F.col("start") + seconds).alias("start"), F.col("rate").alias(name))

    with_peers = every
    for name, seconds in (
        ("week", WEEK_SECONDS), ("weeks", 2 * WEEK_SECONDS), ("last_value", bucket_seconds)
    ):  # fmt: skip
        with_peers = with_peers.join(earlier(f"_{name}", seconds), on=[*series, "start"], how="left")
    return with_peers.withColumns(
        {"seasonal_naive": F.coalesce("_week", "_weeks"), "last_value": F.col("_last_value")}
    ).drop("_week", "_weeks", "_last_value")


def _baseline(known: DataFrame, calendar: Calendar) -> DataFrame:
    """What is learnt at each origin, of the weeks before it."""
    at_origin = known.withColumns({
        "as_of": F.col("origin"),
        "week": F.floor((F.col("origin") - 1 - F.col("start")) / WEEK_SECONDS).cast("int"),
    }).drop("origin")  # fmt: skip
    return learn(without_outages(at_origin, calendar), calendar).select(
        "group", "topic", F.col("as_of").alias("origin"), "level", "growth", "shape",
        F.col("quantiles").alias("baseline_factors"),
    )  # fmt: skip


def _factors(known: DataFrame) -> DataFrame:
    """Quantiles of a minute's rate relative to what a peer expected, over the weeks before the origin."""
    mean = F.avg("rate").over(Window.partitionBy("group", "topic", "origin"))
    zeros = F.array_repeat(
        F.lit(0).cast("bigint"), F.greatest(F.lit(0), (F.col("covered") - F.size("minutes")).cast("int"))
    )
    minutes = known.withColumn("none", mean).withColumn("minute", F.explode(F.concat("minutes", zeros)))
    rate = F.col("minute") / MINUTE_SECONDS
    return minutes.groupBy("group", "topic", "origin").agg(
        F.first("none").alias("none"),
        *(
            F.percentile_approx(F.when(F.col(peer) > 0, rate / F.col(peer)), list(QUANTILES), 1000).alias(
                f"{peer}_factors"
            )
            for peer in PEERS
        ),
    )


def _quantiles(method: str) -> Column:
    """Rates at the quantiles: null where the method has nothing to say."""
    return F.when(
        F.col(method).isNotNull() & F.col(f"{method}_factors").isNotNull(),
        F.transform(f"{method}_factors", lambda factor: F.col(method) * factor),
    )


def _pinball(rate: Column, said: Column, quantile: float) -> Column:
    return F.greatest(quantile * (rate - said), (quantile - 1) * (rate - said))


def _order(score: Score) -> tuple[str, str, int, float]:
    return score.group, score.topic, METHODS.index(score.method), score.quantile
