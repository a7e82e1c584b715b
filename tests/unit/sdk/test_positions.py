"""Offsets sent through a transaction, and a caller that is cancelled just then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import IllegalStateError, KafkaError, ProducerClosed
from aiokafka.structs import TopicPartition

from loadtrim.positions import Positions
from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import Stream

AT = TopicPartition("orders", 0)


class Transactions:
    """Counts what is begun and ended."""

    def __init__(self) -> None:
        self.under_way = 0
        self.begun = asyncio.Event()

    async def begin(self, partitions: list[Partition]) -> dict[Partition, int]:
        self.under_way += 1
        self.begun.set()
        return dict.fromkeys(partitions, 1)

    def end(self, acquisitions: dict[Partition, int]) -> None:
        self.under_way -= len(acquisitions)


class Link:
    """The agent's thread: its answers come a moment later, and a cancelled wait cancels what has not begun."""

    def __init__(self) -> None:
        self.transactions = Transactions()
        self.answer = asyncio.Event()

    def must_own(self, partitions: list[Partition]) -> None: ...

    def need_agent(self) -> Any:
        return SimpleNamespace(transactions=self.transactions)

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        result = await work
        await self.answer.wait()
        return result

    def post(self, call: Callable[..., object], *args: object) -> None:
        call(*args)


def positions_of(link: Any) -> Positions:
    return Positions(link, SimpleNamespace(), group="g", auto_commit=False)  # type: ignore[arg-type]


async def test_a_caller_that_is_cancelled_before_it_sends_leaves_nothing_under_way() -> None:
    """What was begun stayed so: no handoff of the partition for the rest of the acquisition."""
    link = Link()
    sending = asyncio.create_task(positions_of(link).send_offsets_to_transaction(SimpleNamespace(), {AT: 5}))  # type: ignore[arg-type]
    await link.transactions.begun.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    link.answer.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert link.transactions.under_way == 0


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_producer_that_is_stopped_leaves_nothing_under_way(*, cancelled: bool) -> None:
    """Its sender answers nobody any more. The partition could not move, and `stop()` took all of its time to drain."""
    link = Link()
    link.answer.set()
    begun, sender_task = asyncio.Event(), asyncio.create_task(asyncio.Event().wait())

    async def pending(offsets: object, group: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    producer: Any = SimpleNamespace(
        _sender=SimpleNamespace(sender_task=sender_task, _do_txn_offset_commit=None),
        send_offsets_to_transaction=pending,
    )
    sending = asyncio.create_task(positions_of(link).send_offsets_to_transaction(producer, {AT: 5}))
    await begun.wait()
    if cancelled:
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        assert link.transactions.under_way == 1, "what is on its way goes on"
    sender_task.cancel()
    await asyncio.wait([sender_task, sending])
    for _ in range(3):
        await asyncio.sleep(0)
    assert link.transactions.under_way == 0
    assert cancelled or isinstance(sending.exception(), ProducerClosed)


async def test_a_producer_that_cannot_send_leaves_nothing_under_way() -> None:
    link = Link()
    link.answer.set()
    with pytest.raises(AttributeError):
        await positions_of(link).send_offsets_to_transaction(SimpleNamespace(), {AT: 5})  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert link.transactions.under_way == 0


async def test_a_commit_is_noted_when_it_is_called_not_when_it_is_answered() -> None:
    """What it covers was done by then, however long the broker takes, and whatever it answers."""
    stream = Stream(Partition("orders", 0), 1, 0, by_hand=True)
    stream.position = 7
    refused: list[object] = []

    async def commit(wanted: object, *, named: bool) -> None:
        refused.append(wanted)
        raise KafkaError

    link = SimpleNamespace(
        streams={Partition("orders", 0): stream},
        must_own=lambda wanted: None,
        agent=SimpleNamespace(commits=SimpleNamespace(commit=commit)),
        run=lambda work: work,
    )
    link.need_agent = lambda: SimpleNamespace(partitions=SimpleNamespace(without_offset=frozenset()))
    positions, before = positions_of(link), boot_time()
    with pytest.raises(KafkaError):
        await positions.commit({AT: 5})
    with pytest.raises(KafkaError):
        await positions.commit()
    assert stream.commits is not None
    (first, at), (second, _) = stream.commits.take()
    assert (first, second) == (5, 7)
    assert before <= at <= boot_time()


async def test_a_commit_of_partitions_that_are_not_owned_says_nothing() -> None:
    stream = Stream(Partition("orders", 0), 1, 0, by_hand=True)

    def refuse(wanted: object) -> None:
        raise IllegalStateError

    link = SimpleNamespace(streams={Partition("orders", 0): stream}, must_own=refuse, agent=None)
    stream.position = 7
    with pytest.raises(IllegalStateError):
        await positions_of(link).commit({AT: 5, TopicPartition("orders", 1): 2})
    assert stream.commits is not None
    assert not stream.commits.take()
