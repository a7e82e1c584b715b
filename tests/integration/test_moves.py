"""Moves that a plan asks for, while records come: nothing lost, nothing twice, and the receiver has fetched before."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from integration.harness import eventually
from integration.harness_consumers import consumers, drain, new_group, plan, started
from loadtrim import Consumer
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka

MOVES = 24


def count_adoptions(consumer: Consumer, adopted: Counter[bool]) -> None:
    """Whether what was prefetched could be used, per partition opened."""
    assert consumer._client.link.agent is not None
    prefetching = consumer._client.link.agent.partitions.prefetching
    adopt = prefetching.adopt

    def counted(partition, offset):  # type: ignore[no-untyped-def]
        found = adopt(partition, offset)
        adopted[found is not None] += 1
        return found

    prefetching.adopt = counted  # type: ignore[method-assign]


@pytest.mark.parametrize("rate", [60.0, 1500.0])
async def test_to_and_fro_under_load(kafka: Cluster, rate: float) -> None:
    topic, group = kafka.create_topic(partitions=2), new_group()
    at = TopicPartition(topic, 0)
    adopted: Counter[bool] = Counter()
    sent = 0
    async with (
        started(kafka, topic, group=group, session_timeout_ms=10_000) as one,
        started(kafka, topic, group=group, session_timeout_ms=10_000) as two,
        AIOKafkaProducer(bootstrap_servers=kafka.bootstrap) as producer,
    ):
        await eventually(lambda: one.assignment() and two.assignment(), "both own something")
        for consumer in (one, two):
            count_adoptions(consumer, adopted)
        going = True

        async def produce() -> None:
            nonlocal sent
            while going:
                for _ in range(max(1, round(rate / 100))):
                    await producer.send(topic, b"%d" % sent, partition=0)
                    sent += 1
                await asyncio.sleep(max(0.01, 1 / rate))

        async with drain(one, two) as counts:
            producing = asyncio.create_task(produce())
            for number in range(MOVES):
                source, target = (one, two) if at in one.assignment() else (two, one)
                await plan(one, at, source, target, number)
                await consumers(target, parts=[target.assignment() | {at}])
                await consumers(source, parts=[source.assignment() - {at}])
            going = False
            await producing
            await producer.flush()
            await eventually(lambda: len(counts) == sent, "everything is handed out")
        assert set(counts.values()) == {1}, "nothing twice"
    assert sum(adopted.values()) >= MOVES
    assert adopted[True] > 0, "no prefetch was of use"
