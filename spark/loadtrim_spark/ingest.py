"""Telemetry of every group, from Kafka into the history: as a stream, or once more from the beginning (backfill)."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from loadtrim_agent.core.names import CONTROL_PREFIX, control_topic
from loadtrim_spark.errors import PipelineError
from loadtrim_spark.history import Batch, Tables, open_tables, take_in

__all__ = ["LATE_SECONDS", "Source", "backfill", "ingest"]

LATE_SECONDS = 2 * 86_400.0
"""A record that reached the broker this long after its own time is quarantined: its day is history."""
BATCH_RECORDS_MAX = 200_000
BROKER_SECONDS = 20

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """The cluster, and how its clients connect.

    Attributes:
        bootstrap: its brokers, "host:port,...".
        options: settings of Kafka's Java clients (TLS, SASL), without the prefix "kafka.".
    """

    bootstrap: str
    options: Mapping[str, str]

    def client(self) -> dict[str, str]:
        """Settings of a Java client."""
        return {**self.options, "bootstrap.servers": self.bootstrap}

    def spark(self) -> dict[str, str]:
        """The same as options of Spark's source and sink."""
        return {f"kafka.{name}": value for name, value in self.client().items()}

    def check(self, spark: SparkSession) -> None:
        """Ask the cluster for its nodes.

        Raises:
            PipelineError: nobody answers.
        """
        jvm = spark._jvm
        assert jvm is not None
        settings = jvm.java.util.HashMap()
        for name, value in self.client().items():
            settings.put(name, value)
        settings.put("default.api.timeout.ms", str(BROKER_SECONDS * 1000))
        settings.put("request.timeout.ms", str(BROKER_SECONDS * 500))
        try:
            admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
            try:
                admin.describeCluster().nodes().get()
            finally:
                admin.close(jvm.java.time.Duration.ofSeconds(1))
        except Exception as error:  # py4j's, whatever Java threw
            raise PipelineError(
                f"No Kafka answers at {self.bootstrap}: {_reason(error)}",
                "Nothing was read or written.",
                "Give the brokers to --bootstrap, and TLS or SASL settings to --kafka-option NAME=VALUE.",
            ) from error


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
        PipelineError: no broker answers, the checkpoint cannot be read, or records that were not read are gone.
    """
    source.check(spark)
    open_tables(spark, tables)
    done: list[Batch] = []
    identity: list[str] = []

    def write(raw: DataFrame, number: int) -> None:
        if not identity:
            identity.append(_stream_id(raw.sparkSession, tables.checkpoint))
        batch = take_in(raw, tables, late_seconds, f"{identity[0]}/{number}")
        done.append(batch)
        (tell or _tell)(f"batch {number}: {batch.accepted} new, {batch.copies} copies, {batch.quarantined} quarantined")

    stream = (
        spark.readStream.format("kafka").options(**source.spark())
        .option("subscribePattern", _PATTERN).option("startingOffsets", "earliest").option("failOnDataLoss", "false")
        .option("maxOffsetsPerTrigger", batch_records_max).load()
    )  # fmt: skip
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", tables.checkpoint)
    trigger = writer.trigger(availableNow=True) if every_seconds is None else (
        writer.trigger(processingTime=f"{every_seconds} seconds"))  # fmt: skip
    try:
        query = trigger.start()
        query.awaitTermination()
    except (StreamingQueryException, PySparkException) as error:
        raise PipelineError(
            f"The stream ended: {_reason(error)}",
            "What was written before is whole; nothing is written twice or lost by starting again.",
            f"Where the checkpoint {tables.checkpoint} itself is what cannot be read, move it away and start again: "
            "all that Kafka still holds is read once more, and what is in the history already is recognised.",
        ) from error
    return _sum(done)


def backfill(spark: SparkSession, source: Source, tables: Tables, group: str, late_seconds: float) -> Batch:
    """Read again what Kafka still holds of one group. What is in the history already is recognised.

    Raises:
        PipelineError: no broker answers, or the group has no control topic.
    """
    source.check(spark)
    open_tables(spark, tables)
    topic = control_topic(group)
    try:
        raw = spark.read.format("kafka").options(**source.spark()).option("subscribe", topic).load()
        return take_in(raw, tables, late_seconds, f"backfill/{uuid.uuid4()}")
    except PySparkException as error:
        raise PipelineError(
            f"The topic {topic} could not be read: {_reason(error)}",
            "Nothing was taken in.",
            "Is the group id right, and does its control topic have the usual name?",
        ) from error


_PATTERN = CONTROL_PREFIX.replace(".", r"\.") + ".*"


def _stream_id(spark: SparkSession, checkpoint: str) -> str:
    """Spark's own id of the checkpoint: batch numbers are unique below it only."""
    row = spark.read.json(f"{checkpoint}/metadata").first()
    assert row is not None
    return str(row["id"])


def _sum(batches: list[Batch]) -> Batch:
    return Batch(
        sum(batch.accepted for batch in batches),
        sum(batch.copies for batch in batches),
        sum(batch.quarantined for batch in batches),
    )


def _reason(error: BaseException) -> str:
    """The last cause in a Java error's text, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes[-1].removeprefix("Caused by:").strip() if causes else " ".join(lines[:2]))[:400]


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
