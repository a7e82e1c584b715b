"""The Kafka cluster: how its clients connect, and the few questions that Spark's source does not ask."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from loadtrim_agent.wire.envelope import TELEMETRY
from loadtrim_spark.errors import PipelineError, explained, java_types, reason_of

__all__ = ["HeldOffsets", "Source"]

BROKER_SECONDS = 30
BASELINE_TOPIC_SETTINGS = {"cleanup.policy": "compact", "segment.ms": "86400000"}
"""Compaction passes over the segment that is written to, which is a week's by default: seven publications of all."""
SILENT = ("TimeoutException", "DisconnectException", "ConfigException", "SSLException")
"""Ends of the names of what Kafka's client throws where no broker answers, or none that it can talk to."""
GONE = ("UnknownTopicOrPartitionException", "InvalidTopicException")
"""The same of a topic that was deleted while it was asked about."""


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """What Kafka holds of a topic's telemetry.

    Attributes:
        topic_id: Kafka's own: a topic that was deleted and made again has another.
        first: the oldest offset; None: the topic has no partition for telemetry.
    """

    topic_id: str
    first: int | None


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
            PipelineError: nobody answers, or not to this user.
        """
        with self._admin(spark) as admin:
            admin.describeCluster().nodes().get()

    def held(self, spark: SparkSession, topics: Iterable[str]) -> dict[str, HeldOffsets]:
        """What Kafka still holds of the telemetry of those of the topics that are there.

        Raises:
            PipelineError: nobody answers, or not to this user.
        """
        jvm: Any = spark._jvm
        with self._admin(spark) as admin:
            listed = admin.listTopics().namesToListings().get()
            there = {topic: listing for topic in topics if (listing := listed.get(topic)) is not None}
            counts = _partition_counts(jvm, admin, there)
            asked, places = jvm.java.util.HashMap(), {}
            for topic, count in counts.items():
                # For a partition that is not there the client would ask until its time is over, and all would wait.
                if count > TELEMETRY:
                    place = places[topic] = jvm.org.apache.kafka.common.TopicPartition(topic, TELEMETRY)
                    asked.put(place, jvm.org.apache.kafka.clients.admin.OffsetSpec.earliest())
            answers = admin.listOffsets(asked)
            found = {topic: _unless_gone(answers.partitionResult(place)) for topic, place in places.items()}
            first = {topic: None if told is None else int(told.offset()) for topic, told in found.items()}
            return {
                topic: HeldOffsets(str(there[topic].topicId().toString()), first.get(topic))
                for topic in counts if first.get(topic) is not None or topic not in places
            }  # fmt: skip

    def make_compacted(self, spark: SparkSession, topic: str) -> bool:
        """Make a compacted topic where it is not there.

        Returns:
            Whether it was made.

        Raises:
            PipelineError: it is not there and cannot be made.
        """
        jvm: Any = spark._jvm
        with self._admin(spark) as admin:
            if admin.listTopics().names().get().contains(topic):
                return False
            new = jvm.org.apache.kafka.clients.admin.NewTopic(
                topic, jvm.java.util.Optional.of(1), jvm.java.util.Optional.empty()
            )
            settings = jvm.java.util.HashMap()
            for name, value in BASELINE_TOPIC_SETTINGS.items():
                settings.put(name, value)
            new.configs(settings)
            try:
                admin.createTopics(jvm.java.util.List.of(new)).all().get()
            except Py4JJavaError as error:
                if any(name.endswith("TopicExistsException") for name in java_types(error)):
                    return False
                raise PipelineError(
                    f"The topic {topic} is not there, or not to be seen by this user, and could not be made: "
                    f"{reason_of(error)}",
                    "Nothing was published.",
                    f"Make it: kafka-topics.sh --create --topic {topic} --partitions 1 {_flags()}; and give this user "
                    "WRITE and DESCRIBE on it.",
                ) from error
        return True

    @contextlib.contextmanager
    def _admin(self, spark: SparkSession) -> Iterator[Any]:
        """A Java admin client; what its answers throw becomes a PipelineError."""
        jvm: Any = spark._jvm
        settings = jvm.java.util.HashMap()
        for name, value in self.client().items():
            settings.put(name, value)
        settings.put("default.api.timeout.ms", str(BROKER_SECONDS * 1000))
        settings.put("request.timeout.ms", str(BROKER_SECONDS * 500))
        admin = None
        try:
            admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
            yield admin
        except Py4JJavaError as error:
            raise self._explained(error) from error
        finally:
            if admin is not None:
                admin.close(jvm.java.time.Duration.ofSeconds(1))

    def _explained(self, error: Py4JJavaError) -> PipelineError:
        names = java_types(error)
        if any("Authentication" in name or "Authorization" in name for name in names):
            return explained(error, "", self.bootstrap)
        if any(name.endswith(SILENT) for name in names):
            return PipelineError(
                f"No Kafka answers at {self.bootstrap}: {reason_of(error)}",
                "Nothing was read or written.",
                "Give the brokers to --bootstrap, and TLS or SASL settings to --kafka-option NAME=VALUE.",
            )
        return PipelineError(
            f"Kafka at {self.bootstrap} answers that it cannot do what it was asked to: {reason_of(error)}",
            "What was written before is whole; nothing is written twice or lost by starting again.",
            "Start it again. If it ends the same way, --verbose shows the whole of the error.",
        )


def _flags() -> str:
    return " ".join(f"--config {name}={value}" for name, value in BASELINE_TOPIC_SETTINGS.items())


def _partition_counts(jvm: Any, admin: Any, topics: Iterable[str]) -> dict[str, int]:
    """Return how many partitions each topic has that is there."""
    asked = jvm.java.util.ArrayList()
    for topic in topics:
        asked.add(topic)
    answers = admin.describeTopics(asked).topicNameValues()
    told = {entry.getKey(): _unless_gone(entry.getValue()) for entry in answers.entrySet()}
    return {topic: int(one.partitions().size()) for topic, one in told.items() if one is not None}


def _unless_gone(future: Any) -> Any:
    """Return an answer; None: its topic was deleted meanwhile."""
    try:
        return future.get()
    except Py4JJavaError as error:
        if any(name.endswith(GONE) for name in java_types(error)):
            return None
        raise
