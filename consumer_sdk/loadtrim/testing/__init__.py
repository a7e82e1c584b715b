"""A real Kafka for development and tests: :class:`LocalKafka`, and the pytest fixture ``kafka``.

In a test suite::

    pytest_plugins = ["loadtrim.testing"]          # in conftest.py, or: from loadtrim.testing import kafka

    async def test_consumes(kafka):
        topic = kafka.create_topic(partitions=9)
        ...  # bootstrap_servers=kafka.bootstrap

The fixture lives for the session. ``KAFKA_BOOTSTRAP`` names a cluster to use instead of a local one,
``LOADTRIM_KAFKA_VERSION`` another version of Kafka. Nothing here imports pytest until the fixture is asked for.
"""

from __future__ import annotations

from typing import Any

from loadtrim.testing.cluster import Cluster, ExternalKafka, create_topic
from loadtrim.testing.errors import BrokerError, DistributionError, LocalKafkaError, ToolMissingError
from loadtrim.testing.local_kafka import Broker, LocalKafka, any_kafka

__all__ = [
    "Broker",
    "BrokerError",
    "Cluster",
    "DistributionError",
    "ExternalKafka",
    "LocalKafka",
    "LocalKafkaError",
    "ToolMissingError",
    "any_kafka",
    "create_topic",
]


def __getattr__(name: str) -> Any:
    if name == "kafka":
        from loadtrim.testing.plugin import kafka

        return kafka
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    # pytest looks here for the fixtures of a plugin.
    return sorted([*globals(), "kafka"])
