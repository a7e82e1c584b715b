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


@dataclass(frozen=True, slots=True)
class HeldOffsets:
    """What Kafka holds of a topic's telemetry.

    Attributes:
        topic_id: Kafka's own: a topic that was deleted and made again has another.
        first: the oldest offset.
    """

    topic_id: str
    first: int


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
            asked = jvm.java.util.HashMap()
            for topic in there:
                place = jvm.org.apache.kafka.common.TopicPartition(topic, TELEMETRY)
                asked.put(place, jvm.org.apache.kafka.clients.admin.OffsetSpec.earliest())
            found = admin.listOffsets(asked).all().get()
            first = {entry.getKey().topic(): int(entry.getValue().offset()) for entry in found.entrySet()}
            return {topic: HeldOffsets(str(there[topic].topicId().toString()), first[topic]) for topic in there}

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
            settings.put("cleanup.policy", "compact")
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
                    f"Make it: kafka-topics.sh --create --topic {topic} --partitions 1 --config cleanup.policy=compact"
                    "; and give this user WRITE and DESCRIBE on it.",
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
            refused = any("Authentication" in name or "Authorization" in name for name in java_types(error))
            raise (
                explained(error, "", self.bootstrap)
                if refused
                else PipelineError(
                    f"No Kafka answers at {self.bootstrap}: {reason_of(error)}",
                    "Nothing was read or written.",
                    "Give the brokers to --bootstrap, and TLS or SASL settings to --kafka-option NAME=VALUE.",
                )
            ) from error
        finally:
            if admin is not None:
                admin.close(jvm.java.time.Duration.ofSeconds(1))
