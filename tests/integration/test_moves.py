"""Moves that a plan asks for, while records come: nothing lost or twice, in milliseconds, and all else goes on."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from integration.harness import eventually
from integration.harness_consumers import consumers, drain, new_group, plan, started
from loadtrim import Consumer
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka

MOVES = 24
GAP_SECONDS_MAX = 0.5
"""Longest time between two records, in two thirds of the moves: of the partition that moves, and of the one that stays.
Chosen: some thirty times what a move takes on a quiet machine, and what it takes in milliseconds on a busy one."""


def longest_gap(handed: list[tuple[float, int]], partition: int, since: float, until: float) -> float:
    """Return the longest time without a record of a partition that lies between these times, in part at least."""
    times = [at for at, of in handed if of == partition]
    return max(after - before for before, after in pairwise(times) if after > since and before < until)


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
    handed: list[tuple[float, int]] = []
    moves: list[tuple[float, float]] = []
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
                for partition in (*[0] * max(1, round(rate / 100)), 1):
                    await producer.send(topic, b"%d" % sent, partition=partition)
                    sent += 1
                await asyncio.sleep(max(0.01, 1 / rate))

        async with drain(one, two, handed=handed) as counts:
            producing = asyncio.create_task(produce())
            await eventually(lambda: {of for _, of in handed} == {0, 1}, "records of both partitions come")
            for number in range(MOVES):
                source, target = (one, two) if at in one.assignment() else (two, one)
                asked_at = time.monotonic()
                await plan(one, at, source, target, number)
                await consumers(target, parts=[target.assignment() | {at}])
                await consumers(source, parts=[source.assignment() - {at}])
                moves.append((asked_at, time.monotonic()))
            going = False
            await producing
            await producer.flush()
            await eventually(lambda: len(counts) == sent, "everything is handed out")
        assert set(counts.values()) == {1}, "nothing twice"
    for partition, what in ((0, "a move takes milliseconds"), (1, "what does not move goes on")):
        gaps = sorted(longest_gap(handed, partition, *move) for move in moves)
        # Two thirds, for the one that stays belongs to the giver in every other move.
        assert gaps[MOVES * 2 // 3] < GAP_SECONDS_MAX, f"{what}: {gaps}"
    assert sum(adopted.values()) >= MOVES
    assert adopted[True] > 0, "no prefetch was of use"
