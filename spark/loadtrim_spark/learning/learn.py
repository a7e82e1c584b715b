"""What to expect of a topic or partition at a time of the week. Pure.

Model: the rate of a bucket in week ``w`` at slot ``s`` of the week is ``level[w] x shape[s]``, with a shape of mean 1.
Both are medians: ``shape[s]`` over the weeks of rate / level, ``level[w]`` over the week's days of the day's load / the
shape's, in turns (median polish). So a week that was different, or a day without load, moves neither while it is the
exception. Levels are of days because few records make most buckets empty, whose median says nothing; where even the
shape would be zero all week long it is flat. Weeks count backwards from the moment of learning. Slots are of local
time: an hour that a change of clocks repeats is seen twice, one that it leaves out is seen in the other weeks.

Weeks are long: the level that counts is that of the weeks times how the last three days compared with it (the median of
their three quotients, so that no single day moves it). Where most of a week lies beyond what these may move it by, the
load has stepped: the level is the week's median, and the three days are compared with that. Spread is judged as the
future will judge it: each day by the shape that the *other* weeks tell and by the days before it. The rank is a little
above the wanted one, as the next day is one more than those that were seen. Each of these counts half, as neighbours
resemble each other.

A topic that gets nothing at all where it usually gets much has an outage: those buckets are left out before anything is
learnt, which matters with two weeks, where a median cannot tell the exception from the rule. When nothing came for two
weeks the load is gone, and zero is what is expected.

A partition has a shape of its own, or its topic's (``borrowed``): the only way for a new one, and better for most,
because a topic's shape has less noise. Both are learnt; the back-test decides.

Source: J. W. Tukey, *Exploratory Data Analysis* (1977), ch. 11, median polish, here of quotients. Changed: two rounds;
the week's term is of days, as said; growth is the Theil-Sen slope of the levels' logarithms, where the slopes between
two weeks agree on it. V. Vovk et al., *Algorithmic Learning in a Random World* (2005), for the rank (n + 1) q of n.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from loadtrim_agent.common.settings import DEFAULTS
from loadtrim_spark.learning.days import MINUTE_SECONDS, WHOLE_TOPIC

__all__ = ["QUANTILES", "Calendar", "backtest", "learn", "rates", "slot", "with_week_before", "without_outages"]

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
GROWTH_DEVIATIONS = 4.0
"""Growth counts when it is more than so many times the median deviation of the slopes between two weeks."""
RECENT_DAYS = 3
RECENT_WEIGHT = 0.85
"""Of the last days' quotient, as its exponent."""
RECENT_FACTOR_MAX = 2.0
"""The last days move a level by no more than this factor, up or down."""
LASTING_DAYS = 7
LASTING_DAYS_MIN = 4
"""What lies beyond that factor on most days of a week is no exception: it is the level. Chosen, not tuned."""
NOW = -1
"""The day that begins at the moment of learning; 0 is the one before it."""
QUANTILES = (0.5, 0.9, 0.99)
INDEPENDENT = 0.5
"""Independent days per day: days resemble their neighbours (docs/decisions/baselines.md)."""
RANK_MAX = 0.998
ACCURACY = 10_000
"""1 / the largest error of a rank."""
SERIES = ("as_of", "group", "topic", "partition", "borrowed")
"""What is learnt at one moment of one topic or partition: moments are learnt side by side, in one plan."""


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
    zone: str = DEFAULTS.time_zone
    bucket_seconds: int = 900
    weeks: int = 6

    @property
    def slots(self) -> int:
        """Slots of a week; the first begins on Monday at midnight."""
        return WEEK_SECONDS // self.bucket_seconds


def slot(start: Column, calendar: Calendar) -> Column:
    """Number of the slot in the local week, from the start of a bucket in seconds since the epoch."""
    utc = F.expr("TIMESTAMP_NTZ'1970-01-01 00:00:00'") + F.make_dt_interval(secs=start)
    local = F.convert_timezone(F.lit("UTC"), F.lit(calendar.zone), utc)
    minutes = F.weekday(local) * DAY_MINUTES + F.hour(local) * 60 + F.minute(local)
    return F.floor(minutes * MINUTE_SECONDS / calendar.bucket_seconds).cast("int")


def rates(days: DataFrame, calendar: Calendar) -> DataFrame:
    """Return the rate of every bucket in which a series is known, zeros included.

    Args:
        days: rows of :data:`loadtrim_spark.learning.days.DAY_COLUMNS`.
        calendar: what is outside its weeks is left out.

    Returns:
        group, topic, partition, start, covered (minutes), rate (records/s), minutes (arrivals), week, slot, as_of.
    """
    end, begin = calendar.as_of, calendar.as_of - calendar.weeks * WEEK_SECONDS
    within = days.where((F.col("start") >= begin) & (F.col("start") + calendar.bucket_seconds <= end))
    # A bucket over midnight UTC cannot be: buckets divide the hour.
    known = within.where(F.col("part") == "bucket")
    covered = F.col("covered").cast("double")
    minutes_min = COVERED_SHARE_MIN * calendar.bucket_seconds / MINUTE_SECONDS
    return (
        known.join(_narrow(known), on=["group", "topic", "partition", "date"], how="left_anti")
        .withColumn("covered", covered).where(F.col("covered") >= minutes_min)
        .select(
            "group", "topic", "partition", "start", "covered",
            (F.col("arrived") / (F.col("covered") * MINUTE_SECONDS)).alias("rate"), "minutes",
            F.floor((F.lit(end) - 1 - F.col("start")) / WEEK_SECONDS).cast("int").alias("week"),
            slot(F.col("start"), calendar).alias("slot"), F.lit(end).cast("bigint").alias("as_of"),
        )
    )  # fmt: skip


def _narrow(known: DataFrame) -> DataFrame:
    """Return days of whole topics on which the last partitions are not known: there are never fewer than before."""
    days = known.groupBy("group", "topic", "date").agg(F.max("partition").alias("last"))
    until_then = Window.partitionBy("group", "topic").orderBy("date")
    return (
        days.withColumn("most", F.max("last").over(until_then)).where(F.col("last") < F.col("most"))
        .select("group", "topic", F.lit(WHOLE_TOPIC).alias("partition"), "date")
    )  # fmt: skip


def with_week_before(buckets: DataFrame) -> DataFrame:
    """The same buckets, and again those that were known a week earlier, as seen then.

    Args:
        buckets: of :func:`rates`.
    """
    ago = F.explode(F.when(F.col("week") > 0, F.array(F.lit(0), F.lit(1))).otherwise(F.array(F.lit(0))))
    return buckets.withColumn("ago", ago).withColumns(
        {"week": F.col("week") - F.col("ago"), "as_of": F.col("as_of") - F.col("ago") * WEEK_SECONDS}
    ).drop("ago")  # fmt: skip


def without_outages(buckets: DataFrame, calendar: Calendar) -> DataFrame:
    """Leave out the buckets in which a whole topic got nothing though at that time of the week it gets much.

    Args:
        buckets: of :func:`rates`, with partition -1 for the topic.
        calendar: as there.
    """
    total = buckets.where(F.col("partition") == WHOLE_TOPIC)
    topic = Window.partitionBy("as_of", "group", "topic")
    peers = Window.partitionBy("as_of", "group", "topic", "slot")
    others = F.count(F.lit(1)).over(peers) - 1
    with_load = F.sum((F.col("rate") > 0).cast("int")).over(peers)
    usual = F.median(F.when(F.col("rate") > 0, F.col("rate"))).over(peers) * calendar.bucket_seconds
    last = F.max(F.when(F.col("rate") > 0, F.col("start"))).over(topic)
    outages = (
        total.select("group", "topic", "start", "rate", others.alias("others"), with_load.alias("with_load"),
                     usual.alias("usual"), last.alias("last"), "as_of")
        .where((F.col("rate") == 0) & (F.col("with_load") * 2 >= F.col("others")) & (F.col("with_load") > 0))
        .where((F.col("usual") >= OUTAGE_RECORDS_MIN) & (F.col("last") >= F.col("as_of") - GONE_SECONDS))
        .select("as_of", "group", "topic", "start")
    )  # fmt: skip
    return buckets.join(outages, on=["as_of", "group", "topic", "start"], how="left_anti")


def learn(buckets: DataFrame, calendar: Calendar, shapes: DataFrame | None = None) -> DataFrame:
    """Learn level, growth, shape and spread of every series.

    Args:
        buckets: of :func:`without_outages`, for one kind of series.
        calendar: as there.
        shapes: of topics (as_of, group, topic, shape): each series is also learnt with its topic's shape.

    Returns:
        as_of, group, topic, partition, borrowed, level (records/s at ``as_of``), growth (share per week), shape (array
        of the week's slots, mean 1), quantiles (p50, p90, p99 of a minute's rate / expected, above 0), weeks, first,
        last, outliers.
    """
    own = buckets.withColumn("borrowed", F.lit(False)).withColumn("given", F.lit(None).cast("double"))
    if shapes is not None:
        given = shapes.select("as_of", "group", "topic", F.posexplode("shape").alias("slot", "given"))
        on = ["as_of", "group", "topic", "slot"]
        borrowed = buckets.join(given, on=on, how="left").withColumn("borrowed", F.lit(True))
        own = own.unionByName(borrowed)
    # Windows of all kinds are then of what is already together; and what follows reads the outcome, not its plan.
    fitted = _polished(own.repartition(*SERIES)).localCheckpoint(eager=False)
    levels = _levels(fitted)
    told = _told(fitted, levels).localCheckpoint(eager=False)
    recent = _recent(told).localCheckpoint(eager=False)
    shape = _whole_shape(told.where(~F.col("borrowed")), calendar)
    if shapes is not None:
        # The topic's, whole: of the slots that a new series was not seen in, it knows more.
        borrowers = fitted.where(F.col("borrowed")).select(*SERIES).distinct()
        topics = shapes.select("as_of", "group", "topic", "shape")
        lent = borrowers.join(topics, on=["as_of", "group", "topic"], how="inner")
        shape = shape.unionByName(lent.withColumn("scale", F.lit(1.0)))
    now = recent.where(F.col("age") == NOW).drop("age")
    return (
        levels.join(now, on=list(SERIES), how="left")
        .join(_spread(told, recent, calendar), on=list(SERIES), how="inner")
        .join(shape, on=list(SERIES), how="inner")
        .select(
            *SERIES, (F.col("level") * F.col("scale") * F.coalesce("lately", F.lit(1.0))).alias("level"), "growth",
            "shape", "quantiles", "weeks", "first", "last", "outliers",
        )
    )  # fmt: skip


def backtest(learnt: DataFrame, buckets: DataFrame, calendar: Calendar) -> DataFrame:
    """How well what was learnt until a week ago tells the last week.

    Args:
        learnt: by :func:`learn`, of a week ago among others.
        buckets: of the whole time.
        calendar: as of now.

    Returns:
        group, topic, partition, borrowed and ``error``: sum of |rate - expected| / sum of the rate. Nothing where there
        is no week to learn from, or none to tell.
    """
    then = calendar.as_of - WEEK_SECONDS
    series = ("group", "topic", "partition")
    growth = F.pow(1 + F.col("growth"), (F.col("start") - then) / WEEK_SECONDS)
    expected = F.col("level") * growth * F.element_at("shape", F.col("slot") + 1)
    told = learnt.where(F.col("as_of") == then).select(*series, "borrowed", "level", "growth", "shape")
    return (
        buckets.where((F.col("as_of") == calendar.as_of) & (F.col("week") == 0))
        .join(told, on=list(series), how="inner")
        .groupBy(*series, "borrowed")
        .agg(F.try_divide(F.sum(F.abs(F.col("rate") - expected)), F.sum("rate")).alias("error"))
        .where(F.col("error").isNotNull())
    )


def _polished(buckets: DataFrame) -> DataFrame:
    """Add ``level`` of the bucket's week, ``shape`` of its slot, and ``others``, the shape by the other weeks alone; a
    shape that is given stays.
    """
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
    quotient = F.when(F.col("level") > 0, F.col("rate") / F.col("level"))
    seen = F.collect_list(F.when(quotient.isNotNull(), F.struct("week", quotient.alias("quotient")))).over(slots)
    rows = rows.withColumn("seen", seen)
    apart = F.filter("seen", lambda one: one["week"] != F.col("week"))
    others = _median(F.transform(apart, lambda one: one["quotient"]))
    return rows.withColumn("others", F.coalesce("given", others, "shape")).drop("day", "daily", "seen")


def _told(fitted: DataFrame, levels: DataFrame) -> DataFrame:
    """Add ``growth``, ``age`` in days, and ``told``: the rate by the level now, growth, and the other weeks' shape."""
    known = levels.select(*SERIES, F.col("level").alias("base"), "growth")
    told = F.col("base") * F.pow(1 + F.col("growth"), -(F.col("week") + F.lit(0.5))) * F.col("others")
    age = F.floor((F.col("as_of") - 1 - F.col("start")) / DAY_SECONDS).cast("int")
    return fitted.join(known, on=list(SERIES), how="inner").withColumns({"told": told, "age": age})


def _recent(told: DataFrame) -> DataFrame:
    """``lately``: by what factor the level was to be corrected on each day, by the days before it."""
    daily = told.where(F.col("told") > 0).groupBy(*SERIES, "age").agg(
        (F.sum("rate") / F.sum("told")).alias("quotient")
    )  # fmt: skip
    days = daily.groupBy(*SERIES).agg(
        F.collect_list(F.struct("age", "quotient")).alias("days"), F.max("age").alias("oldest")
    )
    every = days.select(*SERIES, "days", F.explode(F.sequence(F.lit(NOW), F.col("oldest"))).alias("age"))

    def before(days: int) -> Column:
        """Return the quotients of the last days before each."""
        within = F.filter("days", lambda day: (day["age"] > F.col("age")) & (day["age"] <= F.col("age") + F.lit(days)))
        return F.transform(within, lambda day: day["quotient"])

    week, known = _median(before(LASTING_DAYS)), F.size(before(LASTING_DAYS)) >= LASTING_DAYS_MIN
    beyond = ~week.between(1 / RECENT_FACTOR_MAX, RECENT_FACTOR_MAX)
    every = every.withColumn("lasting", F.when(known & beyond & (week > 0), week).otherwise(F.lit(1.0)))
    quotient = F.coalesce(_median(before(RECENT_DAYS)) / F.col("lasting"), F.lit(1.0))
    bounded = F.least(F.lit(RECENT_FACTOR_MAX), F.greatest(F.lit(1 / RECENT_FACTOR_MAX), quotient))
    return every.select(*SERIES, "age", (F.col("lasting") * F.pow(bounded, F.lit(RECENT_WEIGHT))).alias("lately"))


def _whole_shape(told: DataFrame, calendar: Calendar) -> DataFrame:
    """The shape as an array with mean 1, and ``scale``, by which the level grows for it.

    The growth within a week is part of what the weeks' shapes have in common; it is told apart, so it is taken out. A
    slot that was never seen has the median of that time of day on other days, else 1.
    """
    per_day = calendar.slots // 7
    into_week = 0.5 - F.pmod(F.col("as_of") - 1 - F.col("start"), F.lit(WEEK_SECONDS)) / WEEK_SECONDS
    grown = F.pow(1 + F.col("growth"), -into_week)
    known = told.groupBy(*SERIES, "slot").agg(F.avg(F.col("shape") * grown).alias("shape"))
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
    slope = _median(slopes)
    clear = F.abs(slope) > GROWTH_DEVIATIONS * _median(F.transform(slopes, lambda one: F.abs(one - slope)))
    growth = F.when((F.size("loaded") >= GROWTH_WEEKS_MIN) & clear, F.exp(slope) - 1).otherwise(F.lit(0.0))
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


def _spread(told: DataFrame, recent: DataFrame, calendar: Calendar) -> DataFrame:
    """Quantiles of a minute's rate relative to what would have been expected, without outlying buckets."""
    series = Window.partitionBy(*SERIES)
    expected = F.col("told") * F.coalesce("lately", F.lit(1.0))
    corrected = told.join(recent, on=[*SERIES, "age"], how="left")
    rows = corrected.withColumn("expected", expected).withColumn(
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
    quantiles = F.percentile_approx("minute", _ranks(calendar), ACCURACY)
    outlying = F.avg((~F.coalesce("inlying", F.lit(True))).cast("double")).alias("outliers")
    return (
        minutes.groupBy(*SERIES).agg(_usable(quantiles, F.avg("minute")).alias("quantiles"))
        .join(rows.groupBy(*SERIES).agg(outlying), on=list(SERIES), how="inner")
        .select(*SERIES, F.coalesce("quantiles", F.array(*[F.lit(1.0)] * 3)).alias("quantiles"), "outliers")
    )  # fmt: skip


def _ranks(calendar: Calendar) -> list[float]:
    """At which ranks of what was seen the quantiles of the next day are: it is one more than those.

    Half lies below the median, however few there are.
    """
    days = 7 * calendar.weeks * INDEPENDENT
    return [share if share <= 0.5 else min(RANK_MAX, share * (days + 1) / days) for share in QUANTILES]


def _usable(quantiles: Column, mean: Column) -> Column:
    """Where most minutes are empty the median is 0, which nothing can be compared with: the mean stands for it."""
    usual = F.when(quantiles[0] > 0, quantiles[0]).when(mean > 0, mean).otherwise(F.lit(1.0))
    return F.when(quantiles.isNotNull(), F.array(usual, *(F.greatest(usual, quantiles[place]) for place in (1, 2))))


def _median(values: Column) -> Column:
    ordered = F.sort_array(values)
    size = F.size(values)
    lower = F.get(ordered, F.floor((size - 1) / 2).cast("int"))
    return (lower + F.get(ordered, F.floor(size / 2).cast("int"))) / 2
