"""The Spark pipeline's throughput: telemetry into the history, the history into baselines.

A *partition-report* is one partition in one report of a member: a row of the history holds as many as the report has.
Rates are per core: divided by the wall time of the whole run and by the cores that Spark was given, though the broker
shares them. Nothing is subtracted from a run before its rate is judged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord, WorkWindow
from loadtrim_agent.wire.topic_names import control_topic

from .results import Figure
from .suite import PIPELINE, Benchmark, BenchmarkContext, Finding

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["BASELINES", "INGEST", "baselines_figures", "ingest_figures"]

CORES = os.cpu_count() or 1
PARTITIONS = 50
DAY = 86_400
MONDAY = 1_793_577_600
"""2026-11-02 00:00 UTC: the generated history begins."""
INGEST_REPORTS, INGEST_REPORTS_QUICK = 40_000, 4_000
WARM_REPORTS, WARM_REPORTS_QUICK = 5_000, 500
"""Read before anything is counted: a stream runs for weeks, what Java compiles is compiled in its first seconds."""
INGEST_PER_CORE_MIN = 50_000
HISTORY_ROWS = (3_000_000, 10_000_000, 30_000_000)
HISTORY_ROWS_QUICK = (300_000, 1_000_000, 3_000_000)
EMPTY_ROWS = 6_000
BASELINES_PER_CORE_MIN = 500_000
EXPONENT_MAX = 1.05
LONGEST_TASK_MAX = 2.0
SKEWED_GROUPS = 11
"""One with 90 % of the rows, ten with 1 % each."""
LARGE = 0.5
"""Stages with less than this share of the largest one's work say nothing of how work is shared out."""
TASKS_MIN = 4
WRITERS = 16
"""Tasks that write a history, one span of time after the other, as batches do."""
SCANS = 8 * CORES
"""Tasks that read the skewed one, about: of as many as there are cores the median says nothing."""
FAR_ROWS = 1e9


@contextlib.contextmanager
def _session(context: BenchmarkContext) -> Iterator[SparkSession]:
    from loadtrim_spark.session import session

    events = context.scratch / "events"
    events.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.local.dir": str(context.scratch),
        "spark.sql.shuffle.partitions": str(4 * CORES),
    }
    spark = session(f"local[{CORES}]", "2g", settings)
    try:
        yield spark
    finally:
        spark.stop()


# -- ingest ------------------------------------------------------------------------------------------------------


def _report(number: int, at: float) -> ReportRecord:
    """As a busy member writes it."""
    windows = tuple(
        WorkWindow(seconds=s, mean=0.21 * s, variance=0.0031 * s, largest=0.43 * s)
        for s in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
    )
    parts = tuple(
        PartitionReport(
            topic="payments", partition=index, arrived=37 + index, bytes=18_500 + index, done=36 + index, lag=3 + index,
            lag_min=1, lag_seconds=0.0213, cost_mean=0.0059127, cost_variance=1.2731e-06, work_windows=windows,
            position=1_000_000 + index, committed=999_990 + index,
        )
        for index in range(PARTITIONS)
    )  # fmt: skip
    slots = tuple(round(0.01 * n, 3) for n in range(10))
    return ReportRecord(
        group="bench", member="payments-7d9f-1", sequence=number, at=at, generation=7, instance="payments-7d9f",
        instance_type="m6.large", busy_seconds=0.83, handoffs=(0.0071,), in_time=1_900, late={"forecast": 2},
        latency_seconds=33.1, latency_counts=((0.01, 1200), (0.02, 700)), slots_start=at, slots=slots, partitions=parts,
    )  # fmt: skip


def _produce(spark: SparkSession, bootstrap: str, reports: int) -> int:
    """Write reports to Kafka; returns the bytes of one."""
    from pyspark.sql import functions as F

    number, at = 123_456_789, 2_222_222_222.5
    text = encode(_report(number, at)).decode()
    before, rest = text.split(f'"at":{at}')
    between, after = rest.split(f'"sequence":{number}')
    now = time.time()
    value = F.concat(
        F.lit(f'{before}"at":'), F.lit(now) - F.lit(0.01) * F.col("id"), F.lit(f'{between}"sequence":'), F.col("id"),
        F.lit(after),
    )  # fmt: skip
    topic = control_topic("bench")
    spark.range(reports).select(
        F.lit("bench").alias("key"),
        value.alias("value"),
        F.lit(topic).alias("topic"),
        F.lit(TELEMETRY).alias("partition"),
    ).write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("kafka.compression.type", "lz4").save()
    return len(text)


def _ingest(context: BenchmarkContext) -> Finding:
    from loadtrim_spark.pipeline.history import Tables
    from loadtrim_spark.pipeline.ingest import ingest
    from loadtrim_spark.pipeline.source import Source

    cluster = context.cluster()
    tables, source = Tables(str(context.scratch / "tables")), Source(cluster.bootstrap, {})
    reports = INGEST_REPORTS_QUICK if context.quick else INGEST_REPORTS
    warm = WARM_REPORTS_QUICK if context.quick else WARM_REPORTS
    cluster.create_topic(2, control_topic("bench"), {"max.message.bytes": "10000000"})
    with _session(context) as spark:
        _produce(spark, cluster.bootstrap, warm)
        ingest(spark, source, tables, tell=_silent)
        _produce(spark, cluster.bootstrap, 1)
        begun = time.monotonic()
        ingest(spark, source, tables, tell=_silent)
        empty = time.monotonic() - begun
        size = _produce(spark, cluster.bootstrap, reports)
        begun = time.monotonic()
        brought = ingest(spark, source, tables, tell=_silent)
        seconds = time.monotonic() - begun
    assert brought.accepted == reports, brought
    return Finding(
        setting=f"{reports:,} reports of {PARTITIONS} partitions each, {size / 1000:.1f} kB of JSON, by "
        f"`ingest` from Kafka into the history; {CORES} cores, which the broker shares; the whole run counts. "
        f"Thrown away: a run of {warm:,} reports before it, for a stream runs for weeks.",
        figures=ingest_figures(reports, size, seconds, empty),
    )


def ingest_figures(reports: int, size: int, seconds: float, empty: float) -> tuple[Figure, ...]:
    """Judge the rate of the whole run; what a batch costs by itself stands beside it, and is not subtracted.

    Args:
        reports: that were read.
        size: bytes of JSON of one.
        seconds: of the whole run.
        empty: seconds of a run with one report.
    """
    gross, net = (reports * PARTITIONS / took / CORES for took in (seconds, seconds - empty))
    return (
        Figure(
            name="ingest, partition-reports/s per core", value=gross, at_least=INGEST_PER_CORE_MIN, unit="/s",
            peer=f"{seconds:.1f} s, of which a batch of one report takes {empty:.1f} s; without these {net:,.0f} /s",
        ),
        Figure(name="ingest, JSON per core", value=gross / PARTITIONS * size / 1e6, unit="MB/s"),
        Figure(name="a batch of one report", value=empty, unit="s"),
    )  # fmt: skip


def _silent(_: str) -> None:
    pass


# -- baselines ---------------------------------------------------------------------------------------------------


def _history(spark: SparkSession, path: Path, rows: int, groups: int = 1) -> None:
    """A history of so many partition-reports: a report of 50 partitions each second.

    The first of several groups has as many as 90 % of the rows, the others share the rest.
    """
    from pyspark.sql import functions as F

    from loadtrim_spark.pipeline.history import Tables, open_tables

    reports = rows // PARTITIONS
    group = F.when(F.col("id") % 10 != 0, 0).otherwise(1 + F.floor(F.col("id") / 10) % max(1, groups - 1))
    group = group if groups > 1 else F.lit(0)
    at = F.lit(float(MONDAY)) + F.col("id") + 0.5
    daily = 1 + F.sin((F.col("id") % DAY) * (2 * math.pi / DAY)) / 2
    tables = Tables(str(path))
    open_tables(spark, tables)
    whole: Any = spark.read.format("delta").load(tables.history).schema["partitions"].dataType

    def part(index: Column) -> Column:
        arrived = F.round(daily * (20 + index))
        has = {"topic": F.lit("payments"), "partition": index, "arrived": arrived, "done": arrived,
               "cost_mean": F.lit(0.0059), "cost_variance": F.lit(1.2e-6)}  # fmt: skip
        fields = whole.elementType.fields
        return F.struct(*(has.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in fields))

    made = spark.range(0, reports, numPartitions=WRITERS).select(
        F.to_date(F.timestamp_seconds(at)).alias("date"), F.lit("report").alias("kind"),
        F.concat(F.lit("group-"), group.cast("string")).alias("group"), F.lit("m").alias("member"), at.alias("at"),
        F.col("id").alias("sequence"), F.lit(float(groups)).alias("interval"), F.lit("m6.large").alias("instance_type"),
        F.transform(F.sequence(F.lit(0), F.lit(PARTITIONS - 1)), part).alias("partitions"),
        F.lit("made").alias("ingest"),
    )  # fmt: skip
    made.write.format("delta").mode("append").save(tables.history)
    counted = made.groupBy("ingest", "date", "group").agg(
        F.count(F.lit(1)).alias("accepted"), F.lit(0).cast("bigint").alias("copies")
    )
    counted.write.format("delta").mode("append").save(tables.ledger)


def _learn(spark: SparkSession, path: Path) -> float:
    """Seconds to sum up every day and learn from them, from nothing."""
    from loadtrim_spark.learning.learn import Calendar
    from loadtrim_spark.pipeline.baselines import baselines, update_days
    from loadtrim_spark.pipeline.history import Tables

    tables = Tables(str(path))
    shutil.rmtree(tables.days, ignore_errors=True)
    begun = time.monotonic()
    update_days(spark, tables, 900)
    days = spark.read.format("delta").load(tables.days)
    newest = days.selectExpr("max(start)").first()
    assert newest is not None
    learnt = baselines(days, Calendar(int(newest[0]) + 900))
    learnt.write.format("noop").mode("overwrite").save()
    seconds = time.monotonic() - begun
    spark.catalog.clearCache()
    return seconds


def _baselines(context: BenchmarkContext) -> Finding:
    sizes = HISTORY_ROWS_QUICK if context.quick else HISTORY_ROWS
    with _session(context) as spark:
        empty_path = context.scratch / "empty"
        _history(spark, empty_path, EMPTY_ROWS)
        _learn(spark, empty_path)  # warms up
        empty = _learn(spark, empty_path)
        seconds = {}
        for rows in sizes:
            path = context.scratch / str(rows)
            _history(spark, path, rows)
            seconds[rows] = _learn(spark, path)
            shutil.rmtree(path)
        skewed = context.scratch / "skewed"
        _history(spark, skewed, sizes[1], SKEWED_GROUPS)
        _in_many_tasks(spark, skewed)
        first = time.time()
        _learn(spark, skewed)
    longest = _longest_task(context.scratch / "events", first)
    figures, far = baselines_figures(seconds, empty, longest)
    middle, largest = sizes[-2:]
    return Finding(
        setting=f"Days summed up and all learnt from a generated history (a report of {PARTITIONS} partitions a "
        f"second), {CORES} cores; whole runs count. Thrown away: a run on {EMPTY_ROWS:,} partition-reports before "
        "them; and of the longest task, the tasks with which each core begins a stage (they compile its code).",
        figures=figures,
        notes=(
            *(f"{rows:.0e} partition-reports: {took:.1f} s" for rows, took in seconds.items()),
            f"{EMPTY_ROWS:,} partition-reports: {empty:.1f} s, which is the fixed cost",
            f"extrapolated by what the last {largest - middle:.0e} took, not measured: 1e9 in {far / 60:.0f} minutes",
        ),
        details={"seconds": {str(rows): took for rows, took in seconds.items()}},
    )


def baselines_figures(seconds: dict[int, float], empty: float, longest: float) -> tuple[tuple[Figure, ...], float]:
    """Judge the rate of the whole largest run, and the exponent at the large end, without the fixed cost.

    The fixed cost makes each exponent smaller, so there it is subtracted; from a rate it is not.

    Args:
        seconds: of the whole run, by partition-reports, the largest last.
        empty: seconds of a run on next to nothing.
        longest: longest task / median.

    Returns:
        The figures; and seconds for :data:`FAR_ROWS`, extrapolated.
    """
    middle, largest = list(seconds)[-2:]
    net = {rows: took - empty for rows, took in seconds.items()}
    each = (net[largest] - net[middle]) / (largest - middle)
    rate, marginal = largest / seconds[largest] / CORES, 1 / each / CORES
    figures = (
        Figure(
            name=f"baselines, partition-reports/s per core, of {largest:.0e}", value=rate,
            at_least=BASELINES_PER_CORE_MIN, unit="/s",
            peer=f"{seconds[largest]:.1f} s, of which {empty:.1f} s are fixed cost; without these "
            f"{largest / net[largest] / CORES:,.0f} /s",
        ),
        Figure(
            name=f"extrapolated: each further one, by the difference of {middle:.0e} and {largest:.0e}",
            value=marginal, unit="/s",
        ),
        Figure(
            name=f"exponent of time over rows, from {middle:.0e} to {largest:.0e}, without the fixed cost",
            value=_exponent({rows: net[rows] for rows in (middle, largest)}), at_most=EXPONENT_MAX,
            peer=f"over all {_exponent(net):.2f}; with it {_exponent(seconds):.2f}",
        ),
        Figure(
            name="one group with 90 % of the rows: longest task / median, worst large stage",
            value=longest, at_most=LONGEST_TASK_MAX, unit="x",
        ),
    )  # fmt: skip
    return figures, net[largest] + (FAR_ROWS - largest) * each


def _exponent(seconds: dict[int, float]) -> float:
    logs = [math.log(rows) for rows in seconds], [math.log(took) for took in seconds.values()]
    return statistics.linear_regression(*logs).slope


def _in_many_tasks(spark: SparkSession, path: Path) -> None:
    """From now on the history is read in many small tasks, and what is small is not put together into one."""
    from loadtrim_spark.pipeline.history import Tables

    size = sum(file.stat().st_size for file in Path(Tables(str(path)).history).rglob("*.parquet"))
    for name, value in (
        ("spark.sql.files.maxPartitionBytes", size // SCANS), ("spark.sql.files.openCostInBytes", 0),
        ("spark.sql.adaptive.coalescePartitions.enabled", "false"),
    ):  # fmt: skip
        spark.conf.set(name, str(value))


def _longest_task(events: Path, first: float) -> float:
    """Longest task / median, the worst of the large stages of what began after ``first``.

    Without the tasks with which each core begins a stage: they compile its code.
    """
    stages: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for line in next(events.iterdir()).read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd" and event["Task Info"]["Launch Time"] >= first * 1000:
            task = event["Task Info"]["Launch Time"], event["Task Metrics"]["Executor Run Time"]
            stages[event["Stage ID"]].append(task)
    ran = [[took for _, took in sorted(tasks)[CORES:]] for tasks in stages.values() if len(tasks) >= CORES + TASKS_MIN]
    large = [tasks for tasks in ran if sum(tasks) >= LARGE * max(map(sum, ran))]
    return max(max(tasks) / statistics.median(tasks) for tasks in large)


async def run_ingest(context: BenchmarkContext) -> Finding:
    """Spark's JVM is driven from a thread of its own."""
    return await asyncio.to_thread(_ingest, context)


async def run_baselines(context: BenchmarkContext) -> Finding:
    """As above."""
    return await asyncio.to_thread(_baselines, context)


INGEST = Benchmark(
    name="spark-ingest",
    title="Spark: telemetry into the history",
    run=run_ingest,
    seconds=120,
    quick_seconds=60,
    measures=PIPELINE,
)
BASELINES = Benchmark(
    name="spark-baselines", title="Spark: the history into baselines", run=run_baselines, seconds=300,
    quick_seconds=120, needs_kafka=False, measures=PIPELINE,
)  # fmt: skip
