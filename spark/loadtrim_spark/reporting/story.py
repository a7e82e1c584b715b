"""What happened to groups over some time: figures from the history, for the page of :mod:`.report`.

:func:`intervals`, :func:`causes`, :func:`modes` and :func:`expected` are pure, DataFrame in, DataFrame out. What they
leave is some hundred rows a group however large the history is, and only that reaches the driver (:func:`gather`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from loadtrim_agent.common.settings import DEFAULTS
from loadtrim_spark.evaluation.backtest import told
from loadtrim_spark.learning.days import total
from loadtrim_spark.learning.learn import Calendar
from loadtrim_spark.learning.local_days import spans

__all__ = ["Interval", "Mode", "Period", "Story", "causes", "expected", "explained", "gather", "intervals", "modes"]

INTERVALS_MAX = 700
"""Of one plot: more than this no picture shows."""
INTERVALS_SECONDS = (60, 300, 900, 3600, 10_800, 86_400)
DECISION_SECONDS_MAX = 30.0
"""A decision counts for the time until the next one, at most this: later nobody knows how many there were."""
QUEUED = "queued"
REASONS = ("startup", "unasked", "placement", "forecast")
"""Why records waited, as leaders say; see ``loadtrim_agent.planning.explain.attribute``."""
GROUPS_MAX = 20
"""On one page, the busiest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """What a page tells of: seconds since the epoch, and whose clock it shows."""

    begin: int
    end: int
    zone: str = DEFAULTS.time_zone

    @property
    def interval_seconds(self) -> int:
        """Width of one bar or step."""
        length = self.end - self.begin
        return next((each for each in INTERVALS_SECONDS if length <= each * INTERVALS_MAX), INTERVALS_SECONDS[-1])

    @property
    def starts(self) -> list[int]:
        """When each interval begins."""
        every = self.interval_seconds
        return list(range(self.begin // every * every, self.end, every))


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One interval of a group.

    Attributes:
        start: seconds since the epoch.
        arrived: records.
        in_time: records done within the objective.
        late: records done later.
        busy_seconds: spent on records by all members.
        moves: partitions that changed hands.
        replica_seconds: of the replicas that were there.
        wanted_seconds: of the replicas that the leader wanted.
        decided_seconds: for which there was a decision.
        wanted_max: most replicas that were wanted at once.
    """

    start: int
    arrived: int = 0
    in_time: int = 0
    late: int = 0
    busy_seconds: float = 0.0
    moves: int = 0
    replica_seconds: float = 0.0
    wanted_seconds: float = 0.0
    decided_seconds: float = 0.0
    wanted_max: int = 0

    @property
    def share_in_time(self) -> float | None:
        """Of what was done; None: nothing was."""
        done = self.in_time + self.late
        return self.in_time / done if done else None

    @property
    def replicas(self) -> float | None:
        """On average; None: nobody decided."""
        return self.replica_seconds / self.decided_seconds if self.decided_seconds else None

    @property
    def wanted(self) -> float | None:
        """On average; None: nobody decided."""
        return self.wanted_seconds / self.decided_seconds if self.decided_seconds else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """The time that a group spent in one mode, ``active`` or ``shadow``.

    Attributes:
        seconds: of decisions.
        replica_seconds: of the replicas that were there.
        wanted_seconds: of the replicas that were wanted.
        more_seconds: in which more were wanted than were there.
        largest: most replicas that were there at once.
    """

    seconds: float
    replica_seconds: float
    wanted_seconds: float
    more_seconds: float
    largest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """All that a page tells of one group.

    Attributes:
        group: its id.
        intervals: in order of time; those without a report or decision are left out.
        causes: start of an interval -> cause -> late records.
        modes: by name.
        expected: start of an interval -> records/s at p50, p90 and p99, told the day before.
        objective_seconds: W, of the newest decision.
        objective_share: of the newest decision.
    """

    group: str
    intervals: tuple[Interval, ...]
    causes: dict[int, dict[str, int]]
    modes: dict[str, Mode]
    expected: dict[int, tuple[float, float, float]]
    objective_seconds: float | None = None
    objective_share: float | None = None


def intervals(history: DataFrame, period: Period) -> DataFrame:
    """What reports and decisions tell, added up.

    Args:
        history: its rows.
        period: others are left out.

    Returns:
        group, and the columns of :class:`Interval`.
    """
    within = _within(history, period)
    late = F.aggregate(F.map_values("late"), F.lit(0.0), lambda whole, one: whole + one)
    arrived = F.aggregate("partitions", F.lit(0.0), lambda whole, one: whole + F.coalesce(one["arrived"], F.lit(0)))
    told_by_members = within.where(F.col("kind") == "report").groupBy("group", "start").agg(
        F.coalesce(total(arrived), F.lit(0)).alias("arrived"),
        F.coalesce(total(F.col("in_time")), F.lit(0)).alias("in_time"),
        F.coalesce(total(late), F.lit(0)).alias("late"),
        F.coalesce(F.sum("busy_seconds"), F.lit(0.0)).alias("busy_seconds"),
        F.sum(F.size(F.coalesce("handoffs", F.array().cast("array<double>")))).alias("moves"),
    )  # fmt: skip
    seconds = F.col("seconds")
    told_by_leaders = _decisions(within).groupBy("group", "start").agg(
        F.sum(F.col("actual") * seconds).alias("replica_seconds"),
        F.sum(F.col("wanted") * seconds).alias("wanted_seconds"),
        F.sum(seconds).alias("decided_seconds"),
        F.max("wanted").alias("wanted_max"),
    )  # fmt: skip
    both = told_by_members.join(told_by_leaders, on=["group", "start"], how="full")
    return both.na.fill(0).select("group", *Interval.__dataclass_fields__)


def causes(history: DataFrame, period: Period) -> DataFrame:
    """Late records by cause, as members and as leaders tell: group, start, kind, cause, records."""
    return (
        _within(history, period)
        .select("group", "start", "kind", F.explode("late").alias("cause", "records"))
        .groupBy("group", "start", "kind", "cause")
        .agg(total(F.col("records")).alias("records"))
    )


def explained(members: Mapping[str, int], leaders: Mapping[str, int]) -> dict[str, int]:
    """Late records of an interval by cause: as many as the members counted, and of those that waited for other
    partitions' records the leader's reasons why nobody else had them, in proportion.

    Args:
        members: cause -> records, of reports.
        leaders: the same of decisions, which may count some twice after a change of leader, and none while holding.
    """
    result = {cause: records for cause, records in members.items() if cause != QUEUED}
    waited = members.get(QUEUED, 0)
    reasons = {cause: leaders[cause] for cause in REASONS if leaders.get(cause)}
    counted, given = 0, 0
    for cause, records in reasons.items():
        counted += records
        until = waited * counted // sum(reasons.values())
        result[cause] = result.get(cause, 0) + until - given
        given = until
    if waited > given:
        result[QUEUED] = waited - given
    return {cause: records for cause, records in sorted(result.items()) if records}


def modes(history: DataFrame, period: Period) -> DataFrame:
    """The time in each mode: group, mode, and the columns of :class:`Mode`."""
    actual, wanted, seconds = F.col("actual"), F.col("wanted"), F.col("seconds")
    return _decisions(_within(history, period)).groupBy("group", "mode").agg(
        F.sum(seconds).alias("seconds"),
        F.sum(actual * seconds).alias("replica_seconds"),
        F.sum(wanted * seconds).alias("wanted_seconds"),
        F.sum(F.when(wanted > actual, seconds).otherwise(0.0)).alias("more_seconds"),
        F.max("actual").alias("largest"),
    )  # fmt: skip


def expected(days: DataFrame, period: Period, calendar: Calendar) -> DataFrame:
    """What the baselines of each local midnight put at the day after it, all topics together.

    Args:
        days: rows of :data:`loadtrim_spark.learning.days.DAY_COLUMNS`.
        period: that is told of.
        calendar: whose midnights, length of buckets, weeks to look back.

    Returns:
        group, start (of an interval), quantiles: records/s at p50, p90, p99, in the mean over the interval. Quantiles
        of several topics are added, as they rise together.
    """
    ahead = Calendar(period.end, calendar.zone, calendar.bucket_seconds, calendar.weeks)
    answers = told(days, ahead, spans(period.begin, period.end, calendar.zone))
    every = period.interval_seconds
    per_bucket = answers.where(F.col("baseline").isNotNull()).groupBy("group", "start").agg(
        *(F.sum(F.col("baseline")[place]).alias(f"q{place}") for place in range(3))
    )  # fmt: skip
    # An interval that is shorter than a bucket has the bucket's rate.
    parts = max(1, calendar.bucket_seconds // every)
    pieces = F.explode(F.sequence(F.lit(0), F.lit(parts - 1))).alias("piece")
    begin = F.floor((F.col("start") + F.col("piece") * every) / every).cast("bigint") * every
    return (
        per_bucket.select("*", pieces)
        .groupBy("group", begin.alias("start"))
        .agg(F.array(*(F.avg(f"q{place}") for place in range(3))).alias("quantiles"))
    )


def gather(history: DataFrame, days: DataFrame | None, period: Period, calendar: Calendar) -> list[Story]:
    """Bring what the page needs to the driver: some hundred rows a group, of the busiest groups.

    Args:
        history: its rows.
        days: what was summed up of it; None: nothing was, so nothing is expected.
        period: that is told of.
        calendar: of the baselines.
    """
    by_interval = intervals(history, period).persist()
    busiest = by_interval.groupBy("group").agg(total(F.col("arrived")).alias("arrived"))
    names = [row["group"] for row in busiest.orderBy(F.desc("arrived"), "group").limit(GROUPS_MAX).collect()]
    chosen = F.col("group").isin(names)
    rows: dict[str, list[Interval]] = {name: [] for name in names}
    for fields in _fields(by_interval.where(chosen).orderBy("start")):
        rows[fields.pop("group")].append(Interval(**fields))
    by_interval.unpersist()
    spent: dict[str, dict[str, Mode]] = {name: {} for name in names}
    for fields in _fields(modes(history, period).where(chosen)):
        group, mode = fields.pop("group"), fields.pop("mode")
        spent[group][mode] = Mode(**fields)
    foretold: dict[str, dict[int, tuple[float, float, float]]] = {name: {} for name in names}
    for fields in _fields(expected(days, period, calendar).where(chosen)) if days is not None else ():
        foretold[fields["group"]][fields["start"]] = tuple(fields["quantiles"])
    asked = {fields.pop("group"): fields for fields in _fields(_objectives(history, period).where(chosen))}
    late = _late(causes(history, period).where(chosen))
    return [
        Story(group=name, intervals=tuple(rows[name]), causes=late.get(name, {}), modes=spent[name],
              expected=foretold[name], **asked.get(name, {}))
        for name in names
    ]  # fmt: skip


def _fields(rows: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in rows.collect()]


def _late(rows: DataFrame) -> dict[str, dict[int, dict[str, int]]]:
    """Group -> start -> cause -> records."""
    told: dict[tuple[str, int], dict[str, dict[str, int]]] = {}
    for fields in _fields(rows):
        by_kind = told.setdefault((fields["group"], fields["start"]), {"report": {}, "decision": {}})
        by_kind[fields["kind"]][fields["cause"]] = fields["records"]
    late: dict[str, dict[int, dict[str, int]]] = {}
    for (group, start), by_kind in sorted(told.items()):
        if found := explained(by_kind["report"], by_kind["decision"]):
            late.setdefault(group, {})[start] = found
    return late


def _within(history: DataFrame, period: Period) -> DataFrame:
    """Rows of the period, with the start of their interval. A record at its very end belongs to it."""
    every = period.interval_seconds
    start = (F.floor(F.col("at") / every) * every).cast("bigint")
    return history.where((F.col("at") >= period.begin) & (F.col("at") < period.end)).withColumn("start", start)


def _decisions(within: DataFrame) -> DataFrame:
    """Decisions with the time that each one held. Leaders overlap for a moment: time goes on with the newest."""
    order = Window.partitionBy("group").orderBy("at", "sequence")
    until = F.lead("at").over(order) - F.col("at")
    seconds = F.least(F.coalesce(until, F.lit(1.0)), F.lit(DECISION_SECONDS_MAX))
    return within.where(F.col("kind") == "decision").select(
        "group", "start", F.coalesce("mode", F.lit("active")).alias("mode"), seconds.alias("seconds"),
        F.coalesce("replicas_actual", F.lit(0)).alias("actual"),
        F.coalesce("replicas_wanted", F.lit(0)).alias("wanted"),
    )  # fmt: skip


def _objectives(history: DataFrame, period: Period) -> DataFrame:
    decisions = _within(history, period).where((F.col("kind") == "decision") & F.col("objective_seconds").isNotNull())
    return decisions.groupBy("group").agg(
        F.max_by("objective_seconds", "at").alias("objective_seconds"),
        F.max_by("objective_share", "at").alias("objective_share"),
    )
