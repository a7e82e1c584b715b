"""Where partitions begin and end: who shares a request, and who waits for whom."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NotLeaderForPartitionError,
    StaleMetadata,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.offset import OffsetResponse_v1
from aiokafka.structs import TopicPartition

from loadtrim_agent.kafka.fetch.offsets import EARLIEST, LATEST, OffsetQueries

BROKERS = 2
OFFSETS = {EARLIEST: 3, LATEST: 90}


class Brokers:
    """What the queries use of a client. Leader of a partition: its number modulo the brokers."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, dict[str, list[tuple[int, int]]]]] = []
        self.codes: dict[int, int] = {}
        """Partition -> what is answered once instead of an offset."""
        self.leaderless: set[int] = set()
        self.dead: set[int] = set()
        self.silent: set[int] = set()
        self.renewed = 0
        self.cluster = SimpleNamespace(leader_for_partition=self._leader)

    def _leader(self, at: TopicPartition) -> int | None:
        return None if at.partition in self.leaderless else at.partition % BROKERS

    async def _maybe_wait_metadata(self) -> None: ...

    def add_topic(self, topic: str) -> None: ...

    def force_metadata_update(self) -> None:
        self.renewed += 1
        self.leaderless.clear()

    async def send(self, node: int, request: Any) -> Any:
        topics = dict(request._topics)
        self.asked.append((node, topics))
        await asyncio.sleep(0)
        if node in self.dead:
            raise KafkaConnectionError(f"{node} is gone")
        if node in self.silent:
            await asyncio.get_running_loop().create_future()
        return OffsetResponse_v1(
            [
                (topic, [(index, self.codes.pop(index, 0), -1, OFFSETS[stamp] + index) for index, stamp in entries])
                for topic, entries in topics.items()
            ]
        )


def queries(brokers: Brokers, timeout_ms: int = 5_000) -> OffsetQueries:
    client: Any = brokers
    return OffsetQueries(client, isolation_level=0, timeout_ms=timeout_ms, retry_backoff=0.001)


def at(index: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, index)


async def test_those_who_ask_together_share_a_request_per_leader_and_question() -> None:
    """A member that starts with a thousand partitions sent a thousand requests, one after the other."""
    brokers = Brokers()
    asked = queries(brokers)
    found = await asyncio.gather(
        *(asked.offset_of(at(index), EARLIEST) for index in range(1_000)),
        *(asked.offset_of(at(index, "bills"), EARLIEST) for index in range(4)),
        asked.offset_of(at(7), LATEST),
        asked.offset_of(at(7), LATEST),
    )
    assert found == [*(3 + index for index in range(1_000)), 3, 4, 5, 6, 97, 97]
    assert sorted((node, sum(map(len, topics.values()))) for node, topics in brokers.asked) == [
        (0, 502),
        (1, 1),
        (1, 502),
    ]

    assert await asked.offset_of(at(1), EARLIEST) == 4, "later it is asked anew"
    assert len(brokers.asked) == 4


async def test_each_is_tried_again_for_itself_only() -> None:
    brokers = Brokers()
    brokers.codes = {2: NotLeaderForPartitionError.errno, 4: TopicAuthorizationFailedError.errno}
    brokers.leaderless = {6}
    asked = queries(brokers)
    first, *others = await asyncio.gather(
        *(asked.offset_of(at(index), EARLIEST) for index in (0, 2, 4, 6)), return_exceptions=True
    )
    assert first == 3
    assert others[0] == 5
    assert isinstance(others[1], TopicAuthorizationFailedError)
    assert others[2] == 9
    assert brokers.asked[0] == (0, {"orders": [(0, EARLIEST), (2, EARLIEST), (4, EARLIEST)]})
    assert sorted(index for _, topics in brokers.asked[1:] for index, _ in topics["orders"]) == [2, 6]
    assert brokers.renewed >= 1


async def test_a_leader_that_does_not_answer_holds_up_its_own_partitions_only() -> None:
    brokers = Brokers()
    brokers.silent = {1}
    asked = queries(brokers)
    waiting = asyncio.create_task(asked.offset_of(at(1), EARLIEST))
    assert await asked.offset_of(at(2), EARLIEST) == 5
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("when", ["before it is sent", "on its way"])
async def test_when_who_asks_for_the_others_gives_up_they_ask_again(when: str) -> None:
    brokers = Brokers()
    brokers.silent = {0}
    asked = queries(brokers)
    first, second = (asyncio.create_task(asked.offset_of(at(index), EARLIEST)) for index in (0, 2))
    await asyncio.sleep(0)
    if when == "on its way":
        while not brokers.asked:  # noqa: ASYNC110
            await asyncio.sleep(0)
    brokers.silent = set()
    first.cancel()
    assert await second == 5
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_what_one_broker_refuses_all_who_asked_it_once_are_told() -> None:
    brokers = Brokers()
    brokers.dead = {0}
    brokers.leaderless = {4}
    asked = queries(brokers)
    found = await asyncio.gather(
        *(asked.offset_once(at(index), LATEST) for index in (0, 2, 3, 4)), return_exceptions=True
    )
    assert [type(each) for each in found] == [KafkaConnectionError, KafkaConnectionError, int, StaleMetadata]
    assert found[2] == 93
    assert all(each.retriable for each in found if isinstance(each, KafkaError))


async def test_many_at_once_are_told_of_the_first_that_is_refused() -> None:
    brokers = Brokers()
    brokers.codes = {3: TopicAuthorizationFailedError.errno}
    asked = queries(brokers)
    assert await asked.beginning_offsets([at(0), at(1)]) == {at(0): 3, at(1): 4}
    with pytest.raises(TopicAuthorizationFailedError):
        await asked.end_offsets([at(index) for index in range(4)])
