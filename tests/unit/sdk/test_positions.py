"""Offsets sent through a transaction, and a caller that is cancelled just then."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, KafkaTimeoutError, ProducerClosed
from aiokafka.producer.transaction_manager import TransactionManager, TransactionState
from aiokafka.protocol.fetch import FetchResponse_v10
from aiokafka.protocol.offset import OffsetResponse_v1
from aiokafka.structs import TopicPartition
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from loadtrim import Consumer, Settings
from loadtrim.managed import ManagedConsumer
from loadtrim.positions import Positions
from loadtrim.transactions import FencedGroup, _CommitOffsets
from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.delivery.record_buffer import RecordBuffer
from unit.delivery.test_record_buffer import chunk
from walks.broker import MemoryBroker, memory_broker

TOPIC, GROUP = "orders", "walk"
AT = TopicPartition(TOPIC, 0)


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
        self.buffer = RecordBuffer(asyncio.get_running_loop(), asyncio.get_running_loop())
        self.streams = self.buffer.streams
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
        buffer=None,
        must_own=lambda wanted: None,
        must_subscribe=lambda: None,
        need_agent=lambda: SimpleNamespace(commits=SimpleNamespace(commit=commit)),
        run=lambda work: work,
    )
    positions, before = positions_of(link), boot_time()
    with pytest.raises(KafkaError):
        await positions.commit({AT: 5})
    with pytest.raises(KafkaError):
        await positions.commit()
    (first, at), (second, _) = stream.commits.take()
    assert (first, second) == (5, 7)
    assert before <= at <= boot_time()


async def test_a_commit_of_partitions_that_are_not_owned_says_nothing() -> None:
    stream = Stream(Partition("orders", 0), 1, 0, by_hand=True)

    def refuse(wanted: object) -> None:
        raise IllegalStateError

    link = SimpleNamespace(streams={Partition("orders", 0): stream}, buffer=None, must_own=refuse, agent=None)
    stream.position = 7
    with pytest.raises(IllegalStateError):
        await positions_of(link).commit({AT: 5, TopicPartition("orders", 1): 2})
    assert not stream.commits.take()


class CutLog:
    """Partition 0 of a topic, whose records before an offset are gone."""

    def __init__(self, broker: MemoryBroker, start: int) -> None:
        self._broker, self._start = broker, start
        broker.play(1, self._fetch)
        broker.play(2, self._offsets)

    def _fetch(self, request: Any) -> Any:
        wanted = [at for topic, parts in request.topics for _, _, at, *_ in parts if topic == TOPIC]
        if all(self._start <= at <= self._broker.end(TOPIC, 0) for at in wanted):
            return None
        refused = [(0, 1, -1, -1, -1, None, b"")]
        return FetchResponse_v10(throttle_time_ms=0, error_code=0, session_id=0, topics=[(TOPIC, refused)])

    def _offsets(self, request: Any) -> Any:
        if [topic for topic, _ in request.topics] != [TOPIC]:
            return None
        ends = {-2: self._start, -1: self._broker.end(TOPIC, 0)}
        return OffsetResponse_v1(topics=[(TOPIC, [(i, 0, -1, ends[at]) for i, at in request.topics[0][1]])])


def consumer_of(broker: MemoryBroker, **options: Any) -> Consumer:
    return Consumer(
        TOPIC, bootstrap_servers=f"127.0.0.1:{broker.port}", group_id=GROUP, handle_signals=False,
        settings=Settings(http="off"), registry=CollectorRegistry(), **options,
    )  # fmt: skip


@pytest.mark.parametrize("manual", [False, True])
@pytest.mark.parametrize(
    ("there", "start", "committed", "reset", "goes_on"),
    [(6, 4, 1, "latest", 6), (0, 0, 5, "earliest", 0)],
    ids=["its beginning has expired", "the topic was made anew"],
)
async def test_where_an_offset_is_out_of_range_is_not_looked_up_again_after_a_stop(
    there: int, start: int, committed: int, reset: str, goes_on: int, *, manual: bool
) -> None:
    """The old offset stayed committed, so that what came while nobody ran was passed over."""
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker:
        if there:
            await broker.send(TOPIC, 0, *[b"before"] * there)
        CutLog(broker, start)
        broker.groups[GROUP].committed[TOPIC, 0] = committed
        found: list[int] = []
        for _ in range(2):
            consumer = consumer_of(broker, auto_offset_reset=reset, enable_auto_commit=not manual)
            async with asyncio.timeout(20.0), consumer:
                while await consumer.position(TopicPartition(TOPIC, 0)) != broker.end(TOPIC, 0):
                    batches = await consumer.getmany(timeout_ms=100)
                    found += [record.offset for records in batches.values() for record in records]
                await consumer.getmany()  # What came before is done.
                if manual:
                    await consumer.commit()
            if not found:
                assert broker.committed(GROUP, TOPIC, 0) == goes_on
                await broker.send(TOPIC, 0, b"meanwhile")
        assert found == [goes_on]
        assert broker.committed(GROUP, TOPIC, 0) == goes_on + 1


async def test_a_record_that_comes_after_a_reset_and_is_given_up_is_not_committed() -> None:
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker:
        CutLog(broker, 0)
        broker.groups[GROUP].committed[TOPIC, 0] = 5
        consumer = consumer_of(broker, auto_offset_reset="earliest", auto_commit_interval_ms=50)
        async with asyncio.timeout(20.0), consumer:
            while await consumer.position(AT) != 0 or broker.committed(GROUP, TOPIC, 0) != 0:
                await consumer.getmany(timeout_ms=50)
            await broker.send(TOPIC, 0, b"given up")
            assert (await consumer.getone()).offset == 0
        assert broker.committed(GROUP, TOPIC, 0) == 0


async def test_what_user_code_has_committed_itself_is_not_committed_lower_by_auto_commit() -> None:
    """The last record was in hand still: the next commit, and that of a stop, set the group back to before it."""
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        await broker.send(TOPIC, 0, b"0", b"1", b"2", b"3")
        async with consumer_of(broker, auto_offset_reset="earliest") as one:
            async for record in one:
                await one.commit()
                if record.offset == 1:
                    break
            client = one._client
            await client.link.run(auto_commit(client.link.need_agent()))
            assert broker.committed(GROUP, TOPIC, 0) == 2
            await one.getone()
            batch = (await one.getmany(timeout_ms=5_000)).popitem()[1]
            assert [r.offset for r in batch] == [3]
            await one.commit()
        assert broker.committed(GROUP, TOPIC, 0) == 4


async def test_a_topic_that_is_made_anew_under_a_member_is_committed_from_its_beginning() -> None:
    """What user code had committed of the old one stayed committed, and the next owner began there in the new one."""
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        CutLog(broker, 0)
        await broker.send(TOPIC, 0, *[b"old"] * 5)
        async with consumer_of(broker, auto_offset_reset="earliest", fetch_max_wait_ms=50) as one:
            for _ in range(5):
                await one.getone()
            await one.commit()
            assert broker.committed(GROUP, TOPIC, 0) == 5
            broker.logs[TOPIC, 0].clear()
            await broker.send(TOPIC, 0, b"new", b"new", b"new")
            assert [(await one.getone()).value for _ in range(2)] == [b"new"] * 2
        assert broker.committed(GROUP, TOPIC, 0) == 1


async def auto_commit(agent: Any) -> None:
    """What is done is committed now, as ``auto_commit_interval_ms`` says."""
    agent.commits.commit_done()
    await agent.commits.answered(5.0)


async def test_where_user_code_seeks_what_it_had_committed_is_not_done_any_more() -> None:
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        await broker.send(TOPIC, 0, b"0", b"1", b"2", b"3")
        async with consumer_of(broker, auto_offset_reset="earliest") as one:
            for _ in range(3):
                await one.getone()
            await one.commit()
            one.seek(AT, 1)
        assert broker.committed(GROUP, TOPIC, 0) == 1


async def test_all_that_is_held_is_sought_where_another_partition_goes_meanwhile() -> None:
    """An error about the one that had gone left all behind it where they were."""
    held = {Partition(TOPIC, index): Stream(Partition(TOPIC, index), 1, 5) for index in range(3)}
    sought: list[tuple[int, int]] = []
    buffer = SimpleNamespace(seek=lambda stream, offset: sought.append((stream.partition.partition, offset)))
    agent = SimpleNamespace(buffer=buffer, partitions=SimpleNamespace(seek=None))
    link = SimpleNamespace(
        streams=held,
        stream=held.__getitem__,
        is_assigned=lambda each: each.partition in held,
        need_agent=lambda: agent,
        post=lambda call, *args: None,
    )

    async def offsets(partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        held.pop(Partition(TOPIC, 0), None)
        return dict.fromkeys(partitions, 7)

    cluster: Any = SimpleNamespace(beginning_offsets=offsets, end_offsets=offsets)
    positions = Positions(link, cluster, group=GROUP, auto_commit=True)  # type: ignore[arg-type]
    assert not await positions.seek_to_beginning()
    assert sought == [(1, 7), (2, 7)]
    assert await positions.seek_to_end()
    assert sought == [(1, 7), (2, 7)] * 2


async def test_a_subscription_by_names_is_shown_at_once() -> None:
    """A program that adds topics one by one lost those that no broker had answered for yet."""
    topics = {TOPIC: 1, "a": 1, "b": 1, f"__loadtrim.{GROUP}": 2}
    async with memory_broker(topics) as broker, consumer_of(broker) as one:
        for topic in ("a", "b"):
            one.subscribe([*one.subscription(), topic])
        assert one.subscription() == {TOPIC, "a", "b"}
        one.unsubscribe()
        assert one.subscription() == set()


@pytest.mark.parametrize("when", ["while it is made", "before it can do anything"])
async def test_what_is_subscribed_while_the_consumer_starts_counts(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task subscribed while the agent was made: it never heard of it."""
    async with memory_broker({TOPIC: 1, "a": 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        await broker.send("a", 0, b"0")
        one = consumer_of(broker, auto_offset_reset="earliest")
        client = one._client
        assert isinstance(client, ManagedConsumer)
        make = client._make_agent

        async def made() -> Any:
            agent = await make()
            if when == "while it is made":
                one.subscribe(["a"])
            else:
                opening = agent.tasks.open

                async def opened() -> None:
                    client.link.subscription = replace(client.link.subscription, topics=("a",))
                    agent.subscribe(client.link.subscription, None)
                    await opening()

                monkeypatch.setattr(agent.tasks, "open", opened)
            return agent

        monkeypatch.setattr(client, "_make_agent", made)
        async with one:
            assert (await one.getone()).topic == "a"


class Ends:
    """The brokers: they answer when told to."""

    def __init__(self) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()
        self.away = self.left_out = False

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.set()
        await self.answer.wait()
        if self.away:
            raise KafkaTimeoutError("no answer in 40 s")
        return {} if self.left_out else dict.fromkeys(partitions, 10)


def seeking_at_the_end() -> tuple[Positions, Link, Ends]:
    link: Any = Link()
    stream = Stream(Partition(*AT), 1, 0)
    buffer = RecordBuffer(asyncio.get_running_loop(), asyncio.get_running_loop())
    buffer.put(stream)
    link.streams[stream.partition] = stream
    link.stream = link.streams.__getitem__
    link.is_assigned = lambda each: link.streams.get(each.partition) is each
    link.need_agent = lambda: SimpleNamespace(buffer=buffer, partitions=SimpleNamespace(seek=lambda *_: None))
    ends: Any = Ends()
    return Positions(link, ends, group="g", auto_commit=True), link, ends


@pytest.mark.parametrize("meanwhile", ["nothing", "a seek", "a loss", "no answer", "set back", "left out"])
async def test_a_seek_to_the_end_gives_way_to_what_happens_meanwhile(meanwhile: str) -> None:
    """The late answer replaced a later seek, moved the next acquisition, and a leader that was away raised."""
    positions, link, ends = seeking_at_the_end()
    seeking = asyncio.create_task(positions.seek_to_end(AT))
    await ends.asked.wait()
    if meanwhile == "a seek":
        positions.seek(AT, 3)
    elif meanwhile == "a loss":
        link.streams[Partition(*AT)] = Stream(Partition(*AT), 2, 5)
    elif meanwhile == "set back":
        positions.set_back(link.streams[Partition(*AT)], 0)
    ends.away, ends.left_out = meanwhile == "no answer", meanwhile == "left out"
    ends.answer.set()
    done = await seeking
    expected = {
        "nothing": (True, 10),
        "a seek": (True, 3),
        "a loss": (False, 5),
        "no answer": (False, 0),
        "set back": (True, 10),
        "left out": (False, 0),
    }
    assert (done, link.streams[Partition(*AT)].position) == expected[meanwhile]


async def test_what_was_sought_after_an_abort_is_in_no_transaction() -> None:
    """A partition that went after that and came back cost a good transaction."""
    link, here = Link(), Partition(*AT)
    stream = Stream(here, 1, 0)
    stream.running = True
    link.buffer.put(stream)
    link.buffer.feed(stream, chunk(here, 0))
    link.buffer.lease_until = math.inf
    link.buffer.take_one()
    link.buffer.seek(stream, 0)
    link.buffer.remove(here)
    assert link.buffer.hand.take_unsent([here]) == []


@pytest.mark.parametrize("sent", [True, False], ids=["what it had was sent before", "not yet"])
async def test_what_was_another_member_s_meanwhile_is_in_no_transaction(*, sent: bool) -> None:
    """In one over several calls it went and came back: what the other had committed was in this one's output too."""
    link = Link()
    link.answer.set()
    here, positions = Partition(*AT), positions_of(link)

    async def send(offsets: object, group: str) -> None: ...

    producer: Any = SimpleNamespace(
        _sender=SimpleNamespace(_do_txn_offset_commit=None), send_offsets_to_transaction=send
    )
    for acquisition in (1, 2):
        stream = Stream(here, acquisition, 0)
        stream.running = True
        link.buffer.put(stream)
        link.buffer.feed(stream, chunk(here, 0))
        link.streams = link.buffer.streams
        link.buffer.lease_until = math.inf
        link.buffer.take_one()
        if acquisition == 1:
            if sent:
                await positions.send_offsets_to_transaction(producer, {AT: 1})
            link.buffer.remove(here)
            link.buffer.abandon()
    if not sent:
        with pytest.raises(CommitFailedError, match="was another member's meanwhile"):
            await positions.send_offsets_to_transaction(producer, {AT: 1})
    await positions.send_offsets_to_transaction(producer, {AT: 1})


def in_transaction(group: FencedGroup) -> tuple[Any, asyncio.Future[None]]:
    """Return a manager whose transaction has sent offsets, and the future that the call waits for."""
    manager = TransactionManager("t", 60_000)
    manager.set_pid_and_epoch(1, 1)
    manager.begin_transaction()
    waiting = manager.add_offsets_to_txn({AT: SimpleNamespace(offset=5, metadata="")}, group)
    manager.consumer_group_added(group)
    return manager, waiting


async def test_a_transaction_that_is_aborted_does_not_wait_for_a_generation() -> None:
    """The abort was not carried out: it stood open until its time-out, and the next one could not begin."""

    async def fence(refused: int | None) -> Any:
        await asyncio.Event().wait()

    group = FencedGroup("g", fence)
    manager, waiting = in_transaction(group)
    commit = _CommitOffsets(SimpleNamespace(_txn_manager=manager), None)  # type: ignore[arg-type]
    committing = asyncio.create_task(commit(*manager.offsets_to_commit()))
    await asyncio.sleep(0)
    manager.aborting_transaction()
    await asyncio.wait_for(committing, 5.0)
    assert isinstance(waiting.exception(), CommitFailedError)
    assert manager.state is TransactionState.ABORTING_TRANSACTION
    assert not manager.wait_for_transaction_end().done()
    assert manager.needs_transaction_commit() is not None
    manager.complete_transaction()
    manager.begin_transaction()


@pytest.mark.parametrize("committing", [False, True], ids=["open", "committing"])
async def test_a_transaction_whose_partition_was_lost_can_only_be_aborted(*, committing: bool) -> None:
    """Where its commit was asked for before, it was committed without the offsets."""

    async def fence(refused: int | None) -> Any:
        raise CommitFailedError("lost")

    group = FencedGroup("g", fence)
    manager, waiting = in_transaction(group)
    if committing:
        manager.committing_transaction()
    await _CommitOffsets(SimpleNamespace(_txn_manager=manager), None)(*manager.offsets_to_commit())  # type: ignore[arg-type]
    assert isinstance(waiting.exception(), CommitFailedError)
    assert manager.state is TransactionState.ABORTABLE_ERROR
