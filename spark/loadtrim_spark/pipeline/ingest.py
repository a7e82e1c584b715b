"""Telemetry of every group, from Kafka into the history: as a stream, or once more from the beginning (backfill).

A group that goes takes its topic with it, and retention may delete what was not read yet; neither may stop the stream
for all others. So Spark is told to go on (``failOnDataLoss=false``), and what it passes over is found here instead, at
each batch. Telemetry has no gaps: offsets of a batch of which no record came were deleted unread, and are counted. A
topic that was deleted and made again begins at 0, where the stream does not look any more. It has another id than the
one that was met under this name, or, where that is not known, the stream's position went back. All of it is then read
as in a backfill, after Spark has settled where it goes on; the MERGE recognises what comes both ways.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession

from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_agent.wire.topic_names import CONTROL_PREFIX, control_topic
from loadtrim_spark.errors import JAVA_ERRORS, PipelineError, explained
from loadtrim_spark.pipeline.checkpoint import Checkpoint, read_checkpoint
from loadtrim_spark.pipeline.history import HistoryBatch, Tables, known_topics, note_topics, open_tables, take_in
from loadtrim_spark.pipeline.source import HeldOffsets, Source

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
) -> HistoryBatch:  # fmt: skip
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
    read_checkpoint(spark, tables.checkpoint)  # one that cannot be read is told before anything is written
    run = _Run(source, tables, late_seconds, say)
    stream = (
        spark.readStream.format("kafka").options(**source.spark())
        .option("subscribePattern", _PATTERN).option("startingOffsets", "earliest").option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", batch_records_max).option("maxRecordsPerPartition", TASK_RECORDS_MAX).load()
    )  # fmt: skip
    writer = stream.writeStream.foreachBatch(run.write).option("checkpointLocation", tables.checkpoint)
    trigger = writer.trigger(availableNow=True) if every_seconds is None else (
        writer.trigger(processingTime=f"{round(every_seconds * 1000)} milliseconds"))  # fmt: skip
    try:
        open_tables(spark, tables)
        run.known = known_topics(spark, tables)
        trigger.start().awaitTermination()
        run.end(spark)
    except JAVA_ERRORS as error:
        cause = run.failure or error
        if isinstance(cause, PipelineError):
            raise cause from error
        raise explained(cause, tables.root, source.bootstrap) from error
    return run.brought


def backfill(
    spark: SparkSession, source: Source, tables: Tables, group: str, late_seconds: float = LATE_SECONDS
) -> HistoryBatch:
    """Read again what Kafka still holds of one group. What is in the history already is recognised.

    Raises:
        PipelineError: no broker answers, the group has no control topic, or the tables cannot be written.
    """
    topic = control_topic(group)
    held = source.held(spark, [topic]).get(topic)
    if held is not None and held.first is None:
        raise PipelineError(f"{topic} {_NO_TELEMETRY}.", "Nothing was taken in.", _MAKE_AGAIN)
    if held is None:
        raise PipelineError(
            f"There is no topic {topic} at {source.bootstrap}, or this user may not see it.",
            "Nothing was taken in.",
            "Is the group id right, and does its control topic have the usual name?",
        )
    try:
        open_tables(spark, tables)
        return _take_in_whole(spark, source, tables, topic, late_seconds)
    except JAVA_ERRORS as error:
        raise explained(error, tables.root, source.bootstrap) from error


_NO_TELEMETRY = f"has no partition {TELEMETRY}, where telemetry is, so nothing of it is read"
_MAKE_AGAIN = f"Give it {TELEMETRY + 1} partitions: kafka-topics.sh --alter --topic TOPIC --partitions {TELEMETRY + 1}"
_PATTERN = CONTROL_PREFIX.replace(".", r"\.") + ".*"


class _Run:
    """One run of the stream: what it brought, and what Spark passed over in it."""

    def __init__(self, source: Source, tables: Tables, late_seconds: float, say: Tell) -> None:
        self.source, self.tables, self.late_seconds, self.say = source, tables, late_seconds, say
        self.brought = HistoryBatch()
        self.failure: Exception | None = None
        """What ended the stream: Spark tells only its text to who waits for it."""
        self.known: set[tuple[str, str]] = set()
        """Control topics that the stream has met: name and id."""
        self._batches = 0

    def write(self, raw: DataFrame, number: int) -> None:
        """Take one batch of the stream in."""
        try:
            spark = raw.sparkSession
            checkpoint = read_checkpoint(spark, self.tables.checkpoint)
            assert checkpoint is not None  # Spark writes it before the first batch
            held = self._held(spark, checkpoint)
            batch = take_in(raw, self.tables, self.late_seconds, f"{checkpoint.stream}/{number}")
            batch += self._lost(checkpoint, held, batch) + self._made_again(spark, checkpoint, held)
        except Exception as error:
            self.failure = error
            raise
        self.brought += batch
        self._batches += 1
        self.say(f"batch {number}: {batch}")

    def end(self, spark: SparkSession) -> None:
        """Look once more where there was no batch: a topic made again may end where the stream had been."""
        checkpoint = None if self._batches else read_checkpoint(spark, self.tables.checkpoint)
        if checkpoint is not None:
            self.brought += self._made_again(spark, checkpoint, self._held(spark, checkpoint))
        if not self._batches and self.brought == HistoryBatch():
            self.say("nothing new: no control topic that this user may see (__loadtrim.GROUP) holds unread records")

    def _held(self, spark: SparkSession, checkpoint: Checkpoint) -> dict[str, HeldOffsets]:
        return self.source.held(spark, {*checkpoint.positions, *checkpoint.ends})

    def _lost(self, checkpoint: Checkpoint, held: Mapping[str, HeldOffsets], came: HistoryBatch) -> HistoryBatch:
        """Count what Kafka deleted unread of a batch."""
        firsts = {topic: one.first for topic, one in held.items() if one.first is not None}
        starts = firsts | dict(checkpoint.positions)
        offsets = sum(max(0, end - starts.get(topic, end)) for topic, end in checkpoint.ends.items())
        missed = offsets - came.accepted - came.copies - came.quarantined
        if missed <= 0:
            return HistoryBatch()
        names = sorted(topic for topic, first in firsts.items() if first > starts[topic]) or ["control topics"]
        self.say(f"{', '.join(names)}: Kafka deleted {missed} records unread; run ingest more often, "
                 "or give the topic a larger retention.bytes (docs/spark.md)")  # fmt: skip
        return HistoryBatch(lost=missed)

    def _made_again(self, spark: SparkSession, checkpoint: Checkpoint, held: Mapping[str, HeldOffsets]) -> HistoryBatch:
        """Read topics whole that were deleted and made again, and note all by their ids."""
        # One without telemetry is none that was met: when it has some, all of that is new.
        new = {(topic, one.topic_id) for topic, one in held.items() if one.first is not None} - self.known
        others = {topic for topic, _ in new} & {topic for topic, _ in self.known}
        brought = HistoryBatch()
        for topic, position in sorted(checkpoint.positions.items()):
            if topic not in held:
                self.say(f"{topic} is gone: what was read of it stays in the history")
            elif held[topic].first is None:
                self.say(f"{topic} {_NO_TELEMETRY}; other groups are. {_MAKE_AGAIN}")
            elif topic in others or checkpoint.ends.get(topic, position) < position:
                brought += self._read_whole(spark, topic)
        if new:
            note_topics(spark, self.tables, new)
            self.known |= new
        return brought

    def _read_whole(self, spark: SparkSession, topic: str) -> HistoryBatch:
        whole = _take_in_whole(spark, self.source, self.tables, topic, self.late_seconds)
        self.say(
            f"{topic} was deleted and made again: all that it holds now was read ({whole}); what was unread in the old "
            "one is lost, and nobody can count it; run ingest before a topic is deleted"
        )
        return whole


def _take_in_whole(
    spark: SparkSession, source: Source, tables: Tables, topic: str, late_seconds: float
) -> HistoryBatch:
    """All that Kafka holds of a topic."""
    raw = (
        spark.read.format("kafka").options(**source.spark()).option("subscribe", topic)
        .option("maxRecordsPerPartition", TASK_RECORDS_MAX).load()
    )  # fmt: skip
    return take_in(raw, tables, late_seconds, f"backfill/{uuid.uuid4()}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
