"""Telemetry of every group, from Kafka into the history: as a stream, or once more from the beginning (backfill).

A group that goes takes its topic with it, and retention may delete what was not read yet; neither may stop the stream
for all others. So Spark is told to go on (``failOnDataLoss=false``), and what is missing is counted here instead: the
oldest telemetry that Kafka still holds against where the checkpoint says that the stream is.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from loadtrim_agent.core.names import CONTROL_PREFIX, control_topic
from loadtrim_spark.checkpoint import read_checkpoint
from loadtrim_spark.errors import JAVA_ERRORS, PipelineError, explained
from loadtrim_spark.history import Batch, Tables, open_tables, take_in
from loadtrim_spark.source import Source

__all__ = ["LATE_SECONDS", "Source", "backfill", "ingest"]

LATE_SECONDS = 2 * 86_400.0
"""A record that reached the broker this long after its own time is quarantined: its day is history."""
BATCH_RECORDS_MAX = 200_000
TASK_RECORDS_MAX = 20_000
"""A group's telemetry is one partition of Kafka: this many records of it are one task, however many there are."""

Tell = Callable[[str], None]


def ingest(
    spark: SparkSession, source: Source, tables: Tables, *,
    every_seconds: float | None = None, late_seconds: float = LATE_SECONDS,
    batch_records_max: int = BATCH_RECORDS_MAX, tell: Tell | None = None,
) -> Batch:  # fmt: skip
    """Read what came since the last time, to the end of what is there now or for ever.

    Args:
        spark: the session.
        source: the cluster.
        tables: where to write.
        every_seconds: None: end when all is read; else a batch this often, until interrupted.
        late_seconds: see :data:`LATE_SECONDS`.
        batch_records_max: records of one batch, about.
        tell: is given one line per batch.

    Returns:
        What it brought.

    Raises:
        PipelineError: no broker answers, rights are missing, the checkpoint cannot be read, the tables not written.
    """
    say = tell or _tell
    source.check(spark)
    lost = _lost(spark, source, tables, say)
    done: list[Batch] = []
    failed: list[BaseException] = []
    identity: list[str] = []

    def write(raw: DataFrame, number: int) -> None:
        try:
            if not identity:
                checkpoint = read_checkpoint(raw.sparkSession, tables.checkpoint)
                assert checkpoint is not None  # Spark writes it before the first batch
                identity.append(checkpoint.stream)
            batch = take_in(raw, tables, late_seconds, f"{identity[0]}/{number}")
        except Exception as error:
            # Spark tells only its text to who waits below.
            failed.append(error)
            raise
        done.append(batch)
        say(f"batch {number}: {batch}")

    stream = (
        spark.readStream.format("kafka").options(**source.spark())
        .option("subscribePattern", _PATTERN).option("startingOffsets", "earliest").option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", batch_records_max).option("maxRecordsPerPartition", TASK_RECORDS_MAX).load()
    )  # fmt: skip
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", tables.checkpoint)
    trigger = writer.trigger(availableNow=True) if every_seconds is None else (
        writer.trigger(processingTime=f"{every_seconds} seconds"))  # fmt: skip
    try:
        open_tables(spark, tables)
        trigger.start().awaitTermination()
    except JAVA_ERRORS as error:
        cause = failed[0] if failed else error
        if isinstance(cause, PipelineError):
            raise cause from error
        raise explained(cause, tables.root, source.bootstrap) from error
    if not done:
        say("nothing new: no control topic that this user may see (__loadtrim.GROUP) holds records not read yet")
    return sum(done, Batch(lost=lost))


def backfill(
    spark: SparkSession, source: Source, tables: Tables, group: str, late_seconds: float = LATE_SECONDS
) -> Batch:
    """Read again what Kafka still holds of one group. What is in the history already is recognised.

    Raises:
        PipelineError: no broker answers, the group has no control topic, or the tables cannot be written.
    """
    topic = control_topic(group)
    if topic not in source.first_offsets(spark, [topic]):
        raise PipelineError(
            f"There is no topic {topic} at {source.bootstrap}, or this user may not see it.",
            "Nothing was taken in.",
            "Is the group id right, and does its control topic have the usual name?",
        )
    try:
        open_tables(spark, tables)
        raw = (
            spark.read.format("kafka").options(**source.spark()).option("subscribe", topic)
            .option("maxRecordsPerPartition", TASK_RECORDS_MAX).load()
        )  # fmt: skip
        return take_in(raw, tables, late_seconds, f"backfill/{uuid.uuid4()}")
    except JAVA_ERRORS as error:
        raise explained(error, tables.root, source.bootstrap) from error


_PATTERN = CONTROL_PREFIX.replace(".", r"\.") + ".*"


def _lost(spark: SparkSession, source: Source, tables: Tables, say: Tell) -> int:
    """Telemetry that Kafka deleted before it was read: told, and counted.

    Raises:
        PipelineError: the checkpoint cannot be read.
    """
    checkpoint = read_checkpoint(spark, tables.checkpoint)
    if checkpoint is None or not checkpoint.positions:
        return 0
    oldest = source.first_offsets(spark, sorted(checkpoint.positions))
    lost = 0
    for topic, position in sorted(checkpoint.positions.items()):
        missed = oldest.get(topic, 0) - position
        if missed > 0:
            say(f"{topic}: Kafka deleted {missed} records unread; run ingest more often than its retention")
            lost += missed
        if topic not in oldest:
            say(f"{topic} is gone: what was read of it stays in the history")
    return lost


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
