"""What an administrator does to brokers: quotas, and leaders that move."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import for_code
from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Float64, Int16, Int32, Schema, String
from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from integration.harness import WAIT_SECONDS, eventually
from loadtrim.testing import Cluster

__all__ = ["lead", "leaders", "limit_reading", "replicated"]

NO_TAGS: dict[int, bytes] = {}


class _AlterClientQuotasResponse(Response):  # type: ignore[misc]
    API_KEY = 49
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "entries",
            Array(
                ("error_code", Int16),
                ("error_message", String("utf-8")),
                ("entity", Array(("type", String("utf-8")), ("name", String("utf-8")))),
            ),
        ),
    )


class _AlterClientQuotasStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 49
    API_VERSION = 0
    RESPONSE_TYPE = _AlterClientQuotasResponse
    SCHEMA = Schema(
        (
            "entries",
            Array(
                ("entity", Array(("type", String("utf-8")), ("name", String("utf-8")))),
                ("operations", Array(("key", String("utf-8")), ("value", Float64), ("remove", Boolean))),
            ),
        ),
        ("validate_only", Boolean),
    )


class _AlterClientQuotas(Request[_AlterClientQuotasStruct]):  # type: ignore[misc]
    API_KEY = 49

    def __init__(self, entries: list[Any]) -> None:
        self._entries = entries

    def build(self, request_struct_class: type[Any]) -> Any:
        return request_struct_class(self._entries, False)


async def _ask(kafka: Cluster, request: Request[Any]) -> Any:
    client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap)
    await client.bootstrap()
    try:
        return await client.send(client.get_random_node(), request)
    finally:
        await client.close()


async def limit_reading(kafka: Cluster, client_id: str, bytes_per_second: float) -> None:
    """Give a client a quota of what it may fetch."""
    entry = ([("client-id", client_id)], [("consumer_byte_rate", bytes_per_second, False)])
    answer = await _ask(kafka, _AlterClientQuotas([entry]))
    for code, message, _ in answer.entries:
        assert code == 0, f"{for_code(code)}: {message}"


async def leaders(kafka: Cluster, topic: str) -> dict[int, int]:
    """Partition -> the broker that leads it; -1: nobody."""
    return {each: found.leader for each, found in (await _described(kafka, topic)).items()}


async def replicated(kafka: Cluster, topic: str) -> set[int]:
    """The brokers that hold every partition of a topic."""
    return set.intersection(*(set(found.replicas) for found in (await _described(kafka, topic)).values()))


async def _described(kafka: Cluster, topic: str) -> dict[int, Any]:
    client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap)
    await client.bootstrap()
    try:
        await client.set_topics([topic])
        return dict(sorted(client.cluster._partitions[topic].items()))
    finally:
        await client.close()


async def lead(kafka: Cluster, topic: str, partitions: Iterable[int], replicas: Sequence[int]) -> None:
    """Have the first of ``replicas`` lead these partitions: they are reassigned, then the preferred ones elected."""
    chosen = list(partitions)
    listed = [(each, list(replicas), NO_TAGS) for each in chosen]
    answer = await _ask(kafka, AlterPartitionReassignmentsRequest(10_000, [(topic, listed, NO_TAGS)], NO_TAGS))
    for _, entries, _ in answer.responses:
        for partition, code, message, _ in entries:
            assert code == 0, f"{topic} {partition}: {for_code(code)} {message}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})

    async def elected() -> bool:
        asked = [TopicPartition(topic, each) for each in chosen]
        told = await asyncio.to_thread(admin.elect_leaders(ElectionType.PREFERRED, asked).result, WAIT_SECONDS)
        fine = {KafkaError.NO_ERROR, KafkaError.ELECTION_NOT_NEEDED, KafkaError.PREFERRED_LEADER_NOT_AVAILABLE}
        assert all(error is None or error.code() in fine for error in told.values()), told
        led = await leaders(kafka, topic)
        return all(led[each] == replicas[0] for each in chosen)

    await eventually(elected, f"{topic} is led by {replicas[0]}")
