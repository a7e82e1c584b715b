"""Rebalance listeners as people write them for aiokafka: what they count on, while members come and go under load."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka import TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import ConsumerStoppedError, IllegalStateError

from integration.harness import WAIT_SECONDS, eventually
from integration.harness_consumers import make, new_group, send
from loadtrim import Consumer, IncrementalRebalanceListener
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka

PARTITIONS = 4
RECORDS = 400


class LocalState:
    """aiokafka's example "local state and storing offsets outside of Kafka": counts, and the offset that they reach.

    Args:
        disk: partition -> offset and counts, which all members share.
    """

    def __init__(self, disk: dict[TopicPartition, tuple[int, Counter[bytes]]]) -> None:
        self._disk = disk
        self._counts: dict[TopicPartition, Counter[bytes]] = {}
        self._offsets: dict[TopicPartition, int] = {}

    def dump(self) -> None:
        for partition, counts in self._counts.items():
            self._disk[partition] = (self._offsets[partition], Counter(counts))

    def load(self, partitions: set[TopicPartition]) -> None:
        self._counts.clear()
        self._offsets.clear()
        for partition in partitions:
            offset, counts = self._disk.get(partition, (-1, Counter()))
            self._offsets[partition], self._counts[partition] = offset, Counter(counts)

    def add(self, partition: TopicPartition, counts: Counter[bytes], offset: int) -> None:
        self._counts[partition] += counts
        self._offsets[partition] = offset

    def last_offset(self, partition: TopicPartition) -> int:
        return self._offsets[partition]


class Rebalancer(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, consumer: Consumer, state: LocalState) -> None:
        self._consumer = consumer
        self._state = state

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self._state.dump()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._state.load(assigned)
        for partition in assigned:
            last = self._state.last_offset(partition)
            if last < 0:
                await self._consumer.seek_to_beginning(partition)
            else:
                self._consumer.seek(partition, last + 1)


@asynccontextmanager
async def counting(
    kafka: Cluster, topic: str, group: str, disk: dict[TopicPartition, tuple[int, Counter[bytes]]]
) -> AsyncIterator[Consumer]:
    """A member that counts, as the example does it."""
    consumer = make(kafka, group=group, enable_auto_commit=False)
    state = LocalState(disk)
    await consumer.start()
    consumer.subscribe([topic], listener=Rebalancer(consumer, state))

    async def count() -> None:
        while True:
            for partition, messages in (await consumer.getmany(timeout_ms=100, max_records=5)).items():
                state.add(partition, Counter(message.value for message in messages), messages[-1].offset)
            await consumer.commit()

    task = asyncio.create_task(count())
    try:
        yield consumer
        assert not task.done(), task.exception()
        task.cancel()
        await asyncio.wait([task])
    finally:
        task.cancel()
        await consumer.stop()


async def test_aiokafkas_example_of_local_state_counts_each_record_once(quick_kafka: Cluster) -> None:
    """It was given only what came, and forgot what stayed: both members ended with a KeyError."""
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    disk: dict[TopicPartition, tuple[int, Counter[bytes]]] = {}
    written = [str(number) for number in range(RECORDS)]

    async def write() -> None:
        for at in range(0, RECORDS, 10):
            await send(quick_kafka, topic, written[at : at + 10], partition=None)

    async with asyncio.timeout(WAIT_SECONDS), counting(quick_kafka, topic, group, disk) as first:
        writing = asyncio.create_task(write())
        async with counting(quick_kafka, topic, group, disk) as second:
            await eventually(lambda: len(first.assignment()) == len(second.assignment()) == 2, "both have their share")
            await asyncio.sleep(0)
        await writing
        await eventually(lambda: len(first.assignment()) == PARTITIONS, "the first has all again")

        ends = await first.end_offsets([TopicPartition(topic, index) for index in range(PARTITIONS)])

        async def all_done() -> bool:
            return {p: await first.committed(p) for p in ends} == ends

        await eventually(all_done, "all is counted")
    assert sum((counts for _, counts in disk.values()), Counter()) == Counter(value.encode() for value in written)


class Restarted(ConsumerRebalanceListener):  # type: ignore[misc]
    """Stops the task that consumes in one call and starts it in the other, as public programs do.

    Args:
        consumer: to be consumed from.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.task: asyncio.Task[None] | None = None
        self.seen: set[bytes] = set()

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if self.task is not None:
            self.task.cancel()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.task = asyncio.create_task(self._consume())

    async def _consume(self) -> None:
        async for message in self._consumer:
            self.seen.add(message.value)


async def test_a_task_that_is_stopped_and_started_by_the_listener_goes_on(quick_kafka: Cluster) -> None:
    """No ``assigned`` followed on a ``revoked``: it stood still until the other member left."""
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    first, second = (make(quick_kafka, group=group) for _ in range(2))
    listeners = [Restarted(consumer) for consumer in (first, second)]
    try:
        for consumer, listener in zip((first, second), listeners, strict=True):
            await consumer.start()
            consumer.subscribe([topic], listener=listener)
        await eventually(lambda: len(first.assignment()) == len(second.assignment()) == 2, "both have their share")
        written = [f"after {number}" for number in range(40)]
        await send(quick_kafka, topic, written, partition=None)
        await eventually(
            lambda: listeners[0].seen | listeners[1].seen == {value.encode() for value in written}, "both go on"
        )
        assert all(listener.seen for listener in listeners)
    finally:
        for consumer, listener in zip((first, second), listeners, strict=True):
            await consumer.stop()
            if listener.task is not None:
                listener.task.cancel()


@pytest.mark.parametrize("kind", [ConsumerRebalanceListener, IncrementalRebalanceListener])
async def test_a_leave_calls_a_listener_once(kind: type[ConsumerRebalanceListener], quick_kafka: Cluster) -> None:
    """It was called for each partition: 24 calls of 0.3 s are 7 s. Nor is it told afterwards that nothing is held."""
    topic = quick_kafka.create_topic(partitions=PARTITIONS)
    calls: list[tuple[str, set[int]]] = []

    class Slow(kind):  # type: ignore[misc, valid-type]
        async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            calls.append(("revoked", {partition.partition for partition in partitions}))
            await asyncio.sleep(0.05)

        async def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            calls.append(("assigned", {partition.partition for partition in partitions}))

    consumer = make(quick_kafka, group=new_group())
    await consumer.start()
    consumer.subscribe([topic], listener=Slow())
    await eventually(lambda: len(consumer.assignment()) == PARTITIONS, "all are held")
    await send(quick_kafka, topic, ["1"])
    await asyncio.wait_for(consumer.getone(), WAIT_SECONDS)
    calls.clear()
    await asyncio.wait_for(consumer.stop(), WAIT_SECONDS)
    assert calls == [("revoked", set(range(PARTITIONS)))]


class Waiting(ConsumerRebalanceListener):  # type: ignore[misc]
    """Its first call of ``on_partitions_assigned`` does what it is given.

    Args:
        action: awaited in the call.
    """

    def __init__(self, action: Callable[[], Awaitable[object]]) -> None:
        self._action = action
        self.outcome: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None: ...

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        if assigned and not self.outcome.done():
            try:
                self.outcome.set_result(await self._action())
            except Exception as error:
                self.outcome.set_result(error)


async def test_a_listener_may_wait_for_what_follows_the_start(quick_kafka: Cluster) -> None:
    """``start()`` waited for the listener, and the listener for what the program does after it."""
    topic = quick_kafka.create_topic(partitions=PARTITIONS)
    await send(quick_kafka, topic, ["1"])
    consumer, started = make(quick_kafka, group=new_group()), asyncio.Event()
    listener = Waiting(started.wait)
    consumer.subscribe([topic], listener=listener)
    async with asyncio.timeout(WAIT_SECONDS), consumer:
        started.set()
        assert await listener.outcome is True
        assert (await consumer.getone()).value == b"1"


async def test_what_would_wait_for_its_own_call_is_refused_in_a_listener(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=PARTITIONS)
    consumer = make(quick_kafka, group=new_group())
    for action in (consumer.getone, consumer.getmany, consumer.stop):
        listener = Waiting(action)
        async with asyncio.timeout(WAIT_SECONDS):
            if action == consumer.getone:
                await consumer.start()
            consumer.subscribe([topic], listener=listener)
            outcome = await listener.outcome
            assert isinstance(outcome, IllegalStateError)
            assert "within on_partitions_assigned or on_partitions_revoked" in str(outcome)
    await asyncio.wait_for(consumer.stop(), WAIT_SECONDS)


class Committing(ConsumerRebalanceListener):  # type: ignore[misc]
    """Commits what is done before it is given away, as the guarantees advise."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.done: dict[TopicPartition, int] = {}
        self.held: list[bool] = []

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.held.append(self._consumer.assignment() == revoked)
        if ends := {partition: end for partition, end in self.done.items() if partition in revoked}:
            await self._consumer.commit(ends)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.held.append(self._consumer.assignment() == assigned)


async def test_the_record_in_hand_is_done_before_a_leave_is_told(quick_kafka: Cluster) -> None:
    """The listener was called while user code worked on a record: its commit was without it, so it came twice."""
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    await send(quick_kafka, topic, ["in hand"])
    consumer = make(quick_kafka, group=group, enable_auto_commit=False)
    listener = Committing(consumer)
    consumer.subscribe([topic], listener=listener)
    async with asyncio.timeout(WAIT_SECONDS):
        await consumer.start()
        message = await consumer.getone()
        listener.held.clear()
        consumer._client.end_iteration(False)
        await eventually(lambda: bool(consumer._client.link.agent.snapshot().leaving), "the member leaves")
        assert listener.held == [], "a record is in hand"
        listener.done[TopicPartition(topic, message.partition)] = message.offset + 1
        with pytest.raises(ConsumerStoppedError):
            await consumer.getone()
        await consumer.stop()
        assert listener.held == [True]
        async with make(quick_kafka, group=group) as other:
            assert await other.committed(TopicPartition(topic, message.partition)) == message.offset + 1


async def test_in_its_calls_a_listener_sees_what_they_tell(quick_kafka: Cluster) -> None:
    """State that is loaded for ``assignment()`` held what goes too, and overwrote what its new owner had saved."""
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    members = [make(quick_kafka, group=group) for _ in range(2)]
    listeners = [Committing(member) for member in members]
    try:
        for member, listener in zip(members, listeners, strict=True):
            await member.start()
            member.subscribe([topic], listener=listener)
        await eventually(lambda: all(len(member.assignment()) == 2 for member in members), "both have their share")
    finally:
        for member in members:
            await asyncio.wait_for(member.stop(), WAIT_SECONDS)
    assert all(len(listener.held) >= 3 and all(listener.held) for listener in listeners)


class Logging(ConsumerRebalanceListener):  # type: ignore[misc]
    """Says who got what and calls the user's listener then, as FastStream's does.

    Args:
        consumer: whose names it reads.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.lines: list[str] = []
        self.user_called = False

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None: ...

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        names = self._consumer
        topics = sorted(names._subscription.topics)
        self.lines.append(f"{names._coordinator.member_id} of {names._group_id}: {len(assigned)} of {topics}")
        self.user_called = True


async def test_a_frameworks_listener_that_logs_the_member_calls_the_users(quick_kafka: Cluster) -> None:
    """It ended with an AttributeError at each assignment, so the user's listener was never called."""
    topic, group = quick_kafka.create_topic(partitions=PARTITIONS), new_group()
    consumer = make(quick_kafka, group=group)
    listener = Logging(consumer)
    consumer.subscribe([topic], listener=listener)
    await consumer.start()
    try:
        await eventually(lambda: listener.user_called, "the user's listener is called")
        member = consumer._client.link.agent.snapshot().member
        assert member
        assert listener.lines[-1] == f"{member} of {group}: {PARTITIONS} of {[topic]}"
    finally:
        await consumer.stop()
