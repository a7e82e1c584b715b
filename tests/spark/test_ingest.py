"""The stream on a real Kafka: exactly once, whatever is written twice, and whoever dies in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from loadtrim.testing import Cluster
from loadtrim_agent.core.names import control_topic
from loadtrim_agent.core.records import HelloRecord, encode
from loadtrim_spark.errors import PipelineError
from loadtrim_spark.history import Batch, Tables, compact, delete_group
from loadtrim_spark.ingest import Source, backfill, ingest
from spark.harness import DAY, MONDAY, decision, messages, produce, report

pytestmark = pytest.mark.kafka
NOBODY = Source("127.0.0.1:1", {})


def table(spark: SparkSession, path: str) -> list[tuple[object, ...]]:
    rows = spark.read.format("delta").load(path).select("kind", "group", "member", "sequence").collect()
    return sorted(tuple(row) for row in rows)


def test_stream_takes_each_record_once_and_keeps_what_it_cannot_read(
    spark: SparkSession, kafka: Cluster, tmp_path: Path
) -> None:
    tables, source = Tables(str(tmp_path)), Source(kafka.bootstrap, {})
    for group in ("g", "h"):
        kafka.create_topic(control_topic(group), partitions=2)
    written = messages(report(2, MONDAY + 2), report(1, MONDAY + 1), report(2, MONDAY + 2), decision(1, MONDAY + 3))
    foreign = encode(HelloRecord(group="g", member="m", at=float(MONDAY)))
    late = (MONDAY + 9 * DAY, encode(report(3, MONDAY)))
    ahead = (MONDAY, encode(report(4, MONDAY + DAY)))
    spoilt = [
        (MONDAY, b"{"),
        (MONDAY, None),
        (MONDAY, foreign),
        (MONDAY, b'{"kind":"report","group":"g"}'),
        late,
        ahead,
    ]
    produce(kafka.bootstrap, "g", [*written, *spoilt])
    produce(kafka.bootstrap, "g", [(MONDAY, foreign)], partition=0)
    lines: list[str] = []
    assert ingest(spark, source, tables, tell=lines.append) == Batch(accepted=3, copies=1, quarantined=6)
    assert lines == ["batch 0: 3 new, 1 copies, 6 quarantined"]

    # Started again: a new group, a copy of what the first run wrote, and nothing else.
    produce(kafka.bootstrap, "h", messages(report(1, MONDAY + DAY, group="h")))
    produce(kafka.bootstrap, "g", messages(report(1, MONDAY + 1)))
    assert ingest(spark, source, tables) == Batch(accepted=1, copies=1, quarantined=0)
    everything = [
        ("decision", "g", "m", 1), ("report", "g", "m", 1), ("report", "g", "m", 2), ("report", "h", "m", 1)
    ]  # fmt: skip
    assert table(spark, tables.history) == everything
    reasons = spark.read.format("delta").load(tables.quarantine).groupBy("quarantined_for").count().collect()
    assert {row[0]: row[1] for row in reasons} == {
        "malformed": 1, "empty": 1, "unknown_kind": 1, "missing_field": 1, "late": 1, "ahead": 1
    }  # fmt: skip

    # One group is deleted and read again from what Kafka holds; the quarantine does not grow.
    assert delete_group(spark, tables, "g") == 3
    assert table(spark, tables.history) == everything[3:]
    assert backfill(spark, source, tables, "g", late_seconds=2 * DAY) == Batch(accepted=3, copies=2, quarantined=6)
    assert backfill(spark, source, tables, "g", late_seconds=2 * DAY).accepted == 0
    assert table(spark, tables.history) == everything
    assert spark.read.format("delta").load(tables.quarantine).count() == 6

    assert compact(spark, tables, "2026-11-24") == 0  # one file per day and group: the other day is not closed
    assert table(spark, tables.history) == everything


def test_driver_killed_in_the_middle(spark: SparkSession, kafka: Cluster, tmp_path: Path) -> None:
    """Killed by SIGKILL between a batch's writes and its end, then again after; nothing is lost or written twice."""
    tables, group = Tables(str(tmp_path)), "killed"
    kafka.create_topic(control_topic(group), partitions=2)
    produce(kafka.bootstrap, group, messages(*(report(n, MONDAY + n, group=group) for n in range(300))))
    environment = {**os.environ, "STATE": tables.root, "BOOTSTRAP": kafka.bootstrap}
    script = str(Path(__file__).with_name("dying_driver.py"))
    died = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=200, start_new_session=True
    )
    assert died.returncode == -signal.SIGKILL, died.stderr[-2000:]
    began = spark.read.format("delta").load(tables.history).count()
    assert 0 < began < 300  # in the middle: one batch is written, and not yet known as done

    lines: list[str] = []
    ingest(spark, Source(kafka.bootstrap, {}), tables, batch_records_max=100, tell=lines.append)
    assert lines[0].startswith("batch 0:")  # the batch that it died in is played again
    rows = spark.read.format("delta").load(tables.history).where(f"`group` = '{group}'")
    assert sorted(row[0] for row in rows.select("sequence").collect()) == list(range(300))
    ledger = spark.read.format("delta").load(tables.ledger).where(f"`group` = '{group}'").collect()
    assert (sum(row["accepted"] for row in ledger), sum(row["copies"] for row in ledger)) == (300, 0)


def test_nobody_answers(spark: SparkSession, tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(PipelineError, match=r"No Kafka answers at 127\.0\.0\.1:1"):
        ingest(spark, NOBODY, Tables(str(tmp_path)))
    assert time.monotonic() - begun < 60
    assert not list(tmp_path.iterdir())


def test_checkpoint_that_cannot_be_read(spark: SparkSession, kafka: Cluster, tmp_path: Path) -> None:
    tables = Tables(str(tmp_path))
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("spoilt\n")
    with pytest.raises(PipelineError, match="move it away and start again"):
        ingest(spark, Source(kafka.bootstrap, {}), tables)
