"""What to expect of a topic or partition at a time of the week. Pure.

Model: the rate of a bucket in week ``w`` at slot ``s`` of the week is ``level[w] x shape[s]``, with a shape of mean 1.
Both are medians: ``shape[s]`` over the weeks of rate / level, ``level[w]`` over the week's days of the day's load / the
shape's, in turns (median polish). So a week that was different, or a day without load, moves neither while it is the
exception. Levels are of days because few records make most buckets empty, whose median says nothing; where even the
shape would be zero all week long it is flat. Weeks count backwards from the moment of learning. Slots are of local
time: an hour that a change of clocks repeats is seen twice, one that it leaves out is seen in the other weeks.

A topic that gets nothing at all where it usually gets much has an outage: those buckets are left out before anything is
learnt, which matters with two weeks, where a median cannot tell the exception from the rule. When nothing came for two
weeks the load is gone, and zero is what is expected.

A partition has a shape of its own, or its topic's (``borrowed``): the only way for a new one, and better for most,
because a topic's shape has less noise. Both are learnt; the back-test decides.

Source: J. W. Tukey, *Exploratory Data Analysis* (1977), ch. 11, median polish, here of quotients. Changed: two rounds;
the week's term is of days, as said; growth is the Theil-Sen slope of the levels' logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from loadtrim_spark.days import MINUTE_SECONDS, WHOLE_TOPIC

__all__ = ["Calendar", "backtest", "learn", "rates", "slot", "without_outages"]

WEEK_SECONDS = 604_800
DAY_SECONDS = 86_400
DAY_MINUTES = 1440
COVERED_SHARE_MIN = 1 / 3
"""A bucket that was watched for less of its minutes is left out."""
OUTAGE_RECORDS_MIN = 10.0
"""Nothing at all where this many records were to be expected is no chance (e**-10)."""
GONE_SECONDS = 2 * WEEK_SECONDS
FENCE = 3.0
"""Interquartile ranges beyond the quartiles from which a bucket is an outlier (Tukey's outer fence)."""
QUARTILES_APART_MIN = 0.1
GROWTH_WEEKS_MIN = 3
GROWTH_PER_WEEK_MAX = 0.5
SERIES = ("group", "topic", "partition", "borrowed")


@dataclass(frozen=True, slots=True)
class Calendar:
    """When it is, for whom.

    Attributes:
        as_of: moment of learning, seconds since the epoch: what is later is not looked at.
        zone: IANA name of the time zone whose weeks the load follows.
        bucket_seconds: length of a bucket, as in the days' rows.
        weeks: how far back to look.
    """

    as_of: int
    zone: str = "UTC"
    bucket_seconds: int = 900
    weeks: int = 6

    @property
    def slots(self) -> int:
        """Slots of a week; the first begins on Monday at midnight."""
        return WEEK_SECONDS // self.bucket_seconds

    def earlier(self, weeks: int) -> Calendar:
        """The calendar of some weeks ago, which looks back as far as this one."""
        return Calendar(self.as_of - weeks * WEEK_SECONDS, self.zone, self.bucket_seconds, self.weeks - weeks)


def slot(start: Column, calendar: Calendar) -> Column:
    """Number of the slot in the local week, from the start of a bucket in seconds since the epoch."""
    utc = F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'") + F.make_dt_interval(secs=start)
    local = F.convert_timezone(F.lit("UTC"), F.lit(calendar.zone), utc)
    minutes = F.weekday(local) * DAY_MINUTES + F.hour(local) * 60 + F.minute(local)
    return F.floor(minutes * MINUTE_SECONDS / calendar.bucket_seconds).cast("int")


def rates(days: DataFrame, calendar: Calendar) -> DataFrame:
    """The rate of every bucket in which a series was watched, zeros included, from its first arrival on.

    Args:
        days: rows of :data:`loadtrim_spark.days.DAY_COLUMNS`.
        calendar: what is outside its weeks is left out.

    Returns:
        group, topic, partition, start, covered (minutes), rate (records/s), minutes (arrivals), week, slot, as_of.
    """
    end, begin = calendar.as_of, calendar.as_of - calendar.weeks * WEEK_SECONDS
    within = days.where((F.col("start") >= begin) & (F.col("start") + calendar.bucket_seconds <= end))
    watched = within.where(F.col("part") == "covered").select("group", "start", F.col("covered").alias("watched"))
    # A bucket over midnight UTC cannot be: buckets divide the hour.
    seen = within.where(F.col("part") == "bucket").select(
        "group", "topic", "partition", "start", "arrived", "minutes", F.col("covered").alias("unknown")
    )
    series = seen.groupBy("group", "topic", "partition").agg(F.min("start").alias("first"))
    covered = (F.col("watched") + F.coalesce("unknown", F.lit(0))).cast("double")
    minutes_min = COVERED_SHARE_MIN * calendar.bucket_seconds / MINUTE_SECONDS
    return (
        series.join(watched, on="group", how="inner").where(F.col("start") >= F.col("first"))
        .join(seen, on=["group", "topic", "partition", "start"], how="left")
        .withColumn("covered", covered).where(F.col("covered") >= minutes_min)
        .select(
            "group", "topic", "partition", "start", "covered",
            (F.coalesce("arrived", F.lit(0)) / (F.col("covered") * MINUTE_SECONDS)).alias("rate"),
            F.coalesce("minutes", F.array().cast("array<bigint>")).alias("minutes"),
            F.floor((F.lit(end) - 1 - F.col("start")) / WEEK_SECONDS).cast("int").alias("week"),
            slot(F.col("start"), calendar).alias("slot"), F.lit(end).cast("bigint").alias("as_of"),
        )
    )  # fmt: skip


def without_outages(buckets: DataFrame, calendar: Calendar) -> DataFrame:
    """Leave out the buckets in which a whole topic got nothing though at that time of the week it gets much.

    Args:
        buckets: of :func:`rates`, with partition -1 for the topic.
        calendar: as there.
    """
    total = buckets.where(F.col("partition") == WHOLE_TOPIC)
    topic = Window.partitionBy("group", "topic")
    peers = Window.partitionBy("group", "topic", "slot")
    others = F.count(F.lit(1)).over(peers) - 1
    with_load = F.sum((F.col("rate") > 0).cast("int")).over(peers)
    usual = F.median(F.when(F.col("rate") > 0, F.col("rate"))).over(peers) * calendar.bucket_seconds
    last = F.max(F.when(F.col("rate") > 0, F.col("start"))).over(topic)
    outages = (
        total.select("group", "topic", "start", "rate", others.alias("others"), with_load.alias("with_load"),
                     usual.alias("usual"), last.alias("last"), "as_of")
        .where((F.col("rate") == 0) & (F.col("with_load") * 2 >= F.col("others")) & (F.col("with_load") > 0))
        .where((F.col("usual") >= OUTAGE_RECORDS_MIN) & (F.col("last") >= F.col("as_of") - GONE_SECONDS))
        .select("group", "topic", "start")
    )  # fmt: skip
    return buckets.join(outages, on=["group", "topic", "start"], how="left_anti")


def learn(buckets: DataFrame, calendar: Calendar, shapes: DataFrame | None = None) -> DataFrame:
    """Learn level, growth, shape and spread of every series.

    Args:
        buckets: of :func:`without_outages`, for one kind of series.
        calendar: as there.
        shapes: of topics (group, topic, shape): each series is also learnt with its topic's shape.

    Returns:
        group, topic, partition, borrowed, level (records/s at ``as_of``), growth (share per week), shape (array of the
        week's slots, mean 1), quantiles (p50, p90, p99 of a minute's rate / expected), weeks, first, last, outliers.
    """
    own = buckets.withColumn("borrowed", F.lit(False)).withColumn("given", F.lit(None).cast("double"))
    if shapes is not None:
        given = shapes.select("group", "topic", F.posexplode("shape").alias("slot", "given"))
        borrowed = buckets.join(given, on=["group", "topic", "slot"], how="left").withColumn("borrowed", F.lit(True))
        own = own.unionByName(borrowed)
    # Windows of all kinds are then of what is already together; and what follows reads the outcome, not its plan.
    fitted = _polished(own.repartition(*SERIES)).localCheckpoint(eager=False)
    shape = _whole_shape(fitted.where(~F.col("borrowed")), calendar)
    if shapes is not None:
        # The topic's, whole: of the slots that a new series was not seen in, it knows more.
        borrowers = fitted.where(F.col("borrowed")).select(*SERIES).distinct()
        lent = borrowers.join(shapes.select("group", "topic", "shape"), on=["group", "topic"], how="inner")
        shape = shape.unionByName(lent.withColumn("scale", F.lit(1.0)))
    return (
        _levels(fitted)
        .join(_spread(fitted), on=list(SERIES), how="inner")
        .join(shape, on=list(SERIES), how="inner")
        .select(
            *SERIES, (F.col("level") * F.col("scale")).alias("level"), "growth", "shape", "quantiles",
            "weeks", "first", "last", "outliers",
        )
    )  # fmt: skip


def backtest(learnt: DataFrame, buckets: DataFrame, calendar: Calendar) -> DataFrame:
    """How well what was learnt until a week ago tells the last week.

    Args:
        learnt: by :func:`learn` with ``calendar.earlier(1)``.
        buckets: of the whole time.
        calendar: as of now.

    Returns:
        The series' columns and ``error``: sum of |rate - expected| / sum of the rate. Nothing where there is no week to
        learn from, or none to tell.
    """
    growth = F.pow(1 + F.col("growth"), (F.col("start") - (calendar.as_of - WEEK_SECONDS)) / WEEK_SECONDS)
    expected = F.col("level") * growth * F.element_at("shape", F.col("slot") + 1)
    return (
        buckets.where(F.col("week") == 0)
        .join(learnt.select(*SERIES, "level", "growth", "shape"), on=["group", "topic", "partition"], how="inner")
        .groupBy(*SERIES)
        .agg(F.try_divide(F.sum(F.abs(F.col("rate") - expected)), F.sum("rate")).alias("error"))
        .where(F.col("error").isNotNull())
    )


def _polished(buckets: DataFrame) -> DataFrame:
    """Add ``level`` of the bucket's week and ``shape`` of its slot; a shape that is given stays."""
    series, slots = Window.partitionBy(*SERIES), Window.partitionBy(*SERIES, "slot")
    week, day = Window.partitionBy(*SERIES, "week"), Window.partitionBy(*SERIES, "week", "day")

    def shaped(rows: DataFrame) -> DataFrame:
        quotient = F.when(F.col("level") > 0, F.col("rate") / F.col("level"))
        usual = rows.withColumn("shape", F.coalesce("given", F.median(quotient).over(slots)))
        return usual.withColumn("shape", F.when(F.max("shape").over(series) > 0, F.col("shape")).otherwise(F.lit(1.0)))

    days = buckets.withColumn("day", F.floor(F.col("start") / DAY_SECONDS))
    rows = shaped(days.withColumn("level", F.avg("rate").over(week)))
    for _ in range(2):
        known = F.col("shape").isNotNull()
        daily = F.try_divide(F.sum(F.when(known, F.col("rate"))).over(day), F.sum("shape").over(day))
        rows = rows.withColumn("daily", daily)
        rows = shaped(rows.withColumn("level", F.coalesce(F.median("daily").over(week), F.lit(0.0))))
    return rows.drop("day", "daily")


def _whole_shape(fitted: DataFrame, calendar: Calendar) -> DataFrame:
    """The shape as an array with mean 1, and ``scale``, by which the level grows for it.

    A slot that was never seen has the median of that time of day on other days, else 1.
    """
    per_day = calendar.slots // 7
    known = fitted.groupBy(*SERIES, "slot").agg(F.first("shape", ignorenulls=True).alias("shape"))
    time_of_day = Window.partitionBy(*SERIES, F.col("slot") % per_day)
    every = known.select(*SERIES).distinct().select(
        *SERIES, F.explode(F.sequence(F.lit(0), F.lit(calendar.slots - 1))).alias("slot")
    )  # fmt: skip
    full = (
        every.join(known, on=[*SERIES, "slot"], how="left")
        .withColumn("shape", F.coalesce("shape", F.median("shape").over(time_of_day), F.lit(1.0)))
        .groupBy(*SERIES)
        .agg(F.sort_array(F.collect_list(F.struct("slot", "shape"))).alias("pairs"), F.avg("shape").alias("mean"))
    )
    scaled = F.transform(
        "pairs", lambda pair: F.when(F.col("mean") > 0, pair["shape"] / F.col("mean")).otherwise(F.lit(1.0))
    )
    return full.select(*SERIES, scaled.alias("shape"), F.col("mean").alias("scale"))


def _levels(fitted: DataFrame) -> DataFrame:
    """Growth by Theil-Sen over the weeks' levels, and the level that it puts at the moment of learning."""
    weekly = fitted.groupBy(*SERIES, "week").agg(
        F.first("level").alias("level"), F.min("start").alias("first"), F.max("start").alias("last")
    )
    grouped = weekly.groupBy(*SERIES).agg(
        F.sort_array(F.collect_list(F.struct("week", "level"))).alias("weekly"),
        F.count(F.lit(1)).cast("int").alias("weeks"), F.min("first").alias("first"), F.max("last").alias("last"),
    )  # fmt: skip
    loaded = F.filter("weekly", lambda one: one["level"] > 0)
    slopes = F.flatten(
        F.transform(
            "loaded",
            lambda new: F.transform(
                F.filter("loaded", lambda old: old["week"] > new["week"]),
                lambda old: (F.log(new["level"]) - F.log(old["level"])) / (old["week"] - new["week"]),
            ),
        )
    )
    growth = F.when(F.size("loaded") >= GROWTH_WEEKS_MIN, F.exp(_median(slopes)) - 1).otherwise(F.lit(0.0))
    bounded = F.least(F.lit(GROWTH_PER_WEEK_MAX), F.greatest(F.lit(-GROWTH_PER_WEEK_MAX), growth))
    projected = F.transform("loaded", lambda one: one["level"] * F.pow(1 + F.col("growth"), one["week"] + F.lit(0.5)))
    newest = F.element_at("weekly", 1)["level"]
    level = F.when(F.size("loaded") >= GROWTH_WEEKS_MIN, _median(projected)).otherwise(newest)
    return (
        grouped.withColumn("loaded", loaded).withColumn("growth", bounded)
        # Gone is gone, whatever the weeks before say.
        .withColumn("level", F.when(_quiet_lately(), F.lit(0.0)).otherwise(level))
        .select(*SERIES, "level", "growth", "weeks", "first", "last")
    )  # fmt: skip


def _quiet_lately() -> Column:
    """The newest two weeks that were watched had no load."""
    newest = F.slice("weekly", 1, 2)
    return (F.size(newest) == 2) & F.forall(newest, lambda one: one["level"] == 0)


def _spread(fitted: DataFrame) -> DataFrame:
    """Quantiles of a minute's rate relative to the expected, without outlying buckets."""
    series = Window.partitionBy(*SERIES)
    expected = F.col("level") * F.col("shape")
    rows = fitted.withColumn("expected", expected).withColumn(
        "quotient", F.when(F.col("expected") > 0, F.col("rate") / F.col("expected"))
    )
    low, high = (F.percentile("quotient", share).over(series) for share in (0.25, 0.75))
    apart = F.greatest(high - low, F.lit(QUARTILES_APART_MIN))
    inlying = (F.col("quotient") >= low - FENCE * apart) & (F.col("quotient") <= high + FENCE * apart)
    rows = rows.withColumn("inlying", inlying)
    zeros = F.array_repeat(
        F.lit(0).cast("bigint"), F.greatest(F.lit(0), (F.col("covered") - F.size("minutes")).cast("int"))
    )
    minutes = rows.withColumn(
        "minute", F.explode_outer(F.when(F.col("inlying"), F.concat("minutes", zeros)))
    ).withColumn("minute", F.col("minute") / MINUTE_SECONDS / F.col("expected"))
    quantiles = F.percentile_approx("minute", [0.5, 0.9, 0.99], 1000).alias("quantiles")
    outlying = F.avg((~F.coalesce("inlying", F.lit(True))).cast("double")).alias("outliers")
    return (
        minutes.groupBy(*SERIES).agg(quantiles)
        .join(rows.groupBy(*SERIES).agg(outlying), on=list(SERIES), how="inner")
        .select(*SERIES, F.coalesce("quantiles", F.array(*[F.lit(1.0)] * 3)).alias("quantiles"), "outliers")
    )  # fmt: skip


def _median(values: Column) -> Column:
    ordered = F.sort_array(values)
    size = F.size(values)
    lower = F.get(ordered, F.floor((size - 1) / 2).cast("int"))
    return (lower + F.get(ordered, F.floor(size / 2).cast("int"))) / 2
