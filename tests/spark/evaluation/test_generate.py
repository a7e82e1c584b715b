"""What generated members report is read as what members report, and tells the truth."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from loadtrim_agent.wire.codec import decode
from loadtrim_agent.wire.telemetry_records import ReportRecord
from loadtrim_spark.evaluation.generate import arrivals, as_records, as_source, reports
from loadtrim_spark.evaluation.truth import SCENARIOS, Busy, Spell, Truth
from loadtrim_spark.learning.days import day_rows
from loadtrim_spark.pipeline.history import HistoryBatch, Tables, open_tables, take_in

END = 1_795_392_000  # Monday, 2026-11-23 00:00 UTC
TRUTH = Truth(
    seed=1, end=END, weeks=1, night=2.0, busy=(Busy(begin_minute=60, end_minute=120, height=5.0, ramp_seconds=60.0),),
    blind=(Spell(begin_hour=1, end_hour=168),), shares=(0.5, 0.3, 0.2), cost_seconds=0.25,
)  # fmt: skip
"""Watched in its first hour only."""


@pytest.mark.parametrize("report_seconds", [60, 5])
def test_reports_add_up_to_the_truth(spark: SparkSession, report_seconds: int) -> None:
    """Through the agent's own decoder: every record of every minute is in one report, in the shares."""
    rows = reports(arrivals(spark, TRUTH), TRUTH, "g", members=2, report_seconds=report_seconds)
    written = [decode(row["value"]) for row in as_records(rows, "c").collect()]
    assert len({(record.member, record.sequence) for record in written if isinstance(record, ReportRecord)}) == (
        2 * 3600 // report_seconds
    )
    by_minute: Counter[int] = Counter()
    by_partition: Counter[int] = Counter()
    for record in written:
        assert isinstance(record, ReportRecord)
        assert record.interval == report_seconds
        assert record.busy_seconds == pytest.approx(sum(p.done for p in record.partitions) * 0.25)
        for part in record.partitions:
            assert (part.topic, part.arrived, part.cost_mean) == ("load", part.done, 0.25)
            assert part.partition % 2 == int(record.member[1:])
            by_minute[int(record.at) // 60] += part.arrived
            by_partition[part.partition] += part.arrived
    counts = TRUTH.counts()[:60]
    assert by_minute == {TRUTH.begin // 60 + place: count for place, count in enumerate(counts)}
    assert [by_partition[p] / sum(counts) for p in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.02)


def test_history_of_generated_reports(spark: SparkSession, tmp_path: Path) -> None:
    """Taken in as the stream does it: nothing in quarantine, nothing taken twice, the same minutes in the days."""
    tables = Tables(str(tmp_path))
    open_tables(spark, tables)
    rows = as_source(reports(arrivals(spark, TRUTH), TRUTH, "g", members=2), "__loadtrim.g")
    assert take_in(rows, tables, 1.0, "generated/0") == HistoryBatch(accepted=120, copies=0, quarantined=0)
    assert take_in(rows, tables, 1.0, "generated/1") == HistoryBatch(accepted=0, copies=120, quarantined=0)
    days = day_rows(spark.read.format("delta").load(tables.history), 900).persist()
    whole = days.where((F.col("part") == "bucket") & (F.col("partition") == -1)).orderBy("start").collect()
    counts = TRUTH.counts()[:60]
    assert [row["arrived"] for row in whole] == [sum(counts[quarter : quarter + 15]) for quarter in range(0, 60, 15)]
    assert [row["covered"] for row in whole] == [15] * 4


def test_a_thousand_partitions(spark: SparkSession) -> None:
    """The plan does not grow with the partitions, and no record falls between two of them."""
    truth = replace(SCENARIOS["steep"], weeks=1, end=END, shares=(1 / 1000,) * 1000, blind=TRUTH.blind, outages=())
    rows = reports(arrivals(spark, truth), truth, "g", members=7)
    total = rows.select(F.explode("partitions").alias("p")).agg(F.sum("p.arrived")).first()
    assert total is not None
    assert total[0] == sum(truth.counts()[:60])
