"""What stays at a rebalance is made anew for a listener that was written for aiokafka."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaConnectionError,
    NoOffsetForPartitionError,
)
from aiokafka.structs import ConsumerRecord, TopicPartition
from prometheus_client import CollectorRegistry

from loadtrim import Consumer, IncrementalRebalanceListener
from loadtrim.arguments import Arguments
from loadtrim.assigned_anew import AssignedAnew, ComesAnew, NobodyListens, ToldListener
from loadtrim.managed import ManagedConsumer
from loadtrim.positions import Positions
from loadtrim.put_aside import PutAside
from loadtrim.settings import Settings
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.hand import Hand
from loadtrim_agent.delivery.partition_stream import UNPLACED, Stream
from loadtrim_agent.kafka.subscription import Subscription
from unit.delivery.test_record_buffer import ONE, handout_of
from unit.sdk.test_positions import TOPIC, consumer_of
from walks.broker import MemoryBroker, memory_broker

AT = TopicPartition(*ONE)
GROUP = "walk"
PARTITIONS = 2
RECORDS = 6
"""Of each partition."""


class Forgets(ConsumerRebalanceListener):  # type: ignore[misc]
    """User code that gathers records and forgets, at each rebalance, what it has not committed."""

    def __init__(self) -> None:
        self.gathered: list[ConsumerRecord[Any, Any]] = []
        self.held = 0
        """So many partitions, as it was told last."""

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.gathered.clear()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.held = len(assigned)


class ForgetsWhatGoes(IncrementalRebalanceListener, Forgets):
    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.held += len(assigned)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.held -= len(revoked)
        self.gathered[:] = [r for r in self.gathered if TopicPartition(r.topic, r.partition) not in revoked]


@asynccontextmanager
async def rebalanced(
    listener: Forgets, before: Callable[[Consumer], Awaitable[object]], **options: Any
) -> AsyncIterator[tuple[Consumer, MemoryBroker]]:
    """A member that had all partitions, did something, and has heard of another member's join since."""
    async with memory_broker({TOPIC: PARTITIONS, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        for index in range(PARTITIONS):
            await broker.send(TOPIC, index, *(b"%d" % number for number in range(RECORDS)))
        made = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
        async with consumer_of(broker, **made) as one:
            one.subscribe([TOPIC], listener=listener)
            await before(one)
            async with consumer_of(broker, **made) as other:
                asking = asyncio.create_task(other.getone())
                while listener.held != 1 or len(one.assignment()) != 1:
                    listener.gathered += [r for rows in (await one.getmany(timeout_ms=20)).values() for r in rows]
                yield one, broker
                asking.cancel()
                await asyncio.wait([asking])


async def gather(one: Consumer, listener: Forgets, count: int) -> None:
    while len(listener.gathered) < count:
        listener.gathered.append(await one.getone())


@pytest.mark.parametrize("listener", [Forgets(), ForgetsWhatGoes()], ids=["plain", "incremental"])
async def test_what_a_listener_forgets_before_it_is_committed_is_handed_out_again(listener: Forgets) -> None:
    """What stayed went on where it was: the next commit passed what had been forgotten."""
    async with rebalanced(listener, lambda one: gather(one, listener, RECORDS * PARTITIONS)) as (one, _):
        (stays,) = one.assignment()

        def offsets() -> list[int]:
            return [record.offset for record in listener.gathered if record.partition == stays.partition]

        while len(offsets()) < RECORDS:
            listener.gathered += [r for rows in (await one.getmany(timeout_ms=50)).values() for r in rows]
        assert offsets() == list(range(RECORDS))


async def test_what_is_committed_before_more_is_asked_for_is_handed_out_once() -> None:
    """The record in hand is waited for: it was set back to, though user code was about to commit it."""
    listener, done, joined, finished = Forgets(), list[tuple[int, int]](), asyncio.Event(), asyncio.Event()

    async def work(one: Consumer) -> None:
        async for record in one:
            if len(done) == 2:
                joined.set()
                await asyncio.sleep(0.3)  # user code works while the other member joins
            done.append((record.partition, record.offset))
            await one.commit()
            if len(done) >= RECORDS * PARTITIONS:
                finished.set()

    async with memory_broker({TOPIC: PARTITIONS, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        for index in range(PARTITIONS):
            await broker.send(TOPIC, index, *(b"%d" % number for number in range(RECORDS)))
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with consumer_of(broker, **options) as one, consumer_of(broker, **options) as other:
            one.subscribe([TOPIC], listener=listener)
            working = [asyncio.create_task(work(each)) for each in (one, other)]
            await joined.wait()
            await finished.wait()
        await asyncio.wait(working)
    assert len(set(done)) == len(done)


async def test_a_consumer_that_its_listener_knows_is_collected_when_it_has_stopped() -> None:
    """Programs make their listeners with the consumer, and a consumer after each lost connection: all were kept."""
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        async with consumer_of(broker) as one:
            listener = Forgets()
            listener.consumer = one  # type: ignore[attr-defined]
            one.subscribe([TOPIC], listener=listener)
            while not listener.held:
                await one.getmany(timeout_ms=20)
        consumer, client = weakref.ref(one), weakref.ref(one._client)
        del one, listener
    gc.collect()
    assert consumer() is None
    assert client() is None


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_what_stays_is_not_paused_any_more_but_for_an_incremental_listener(*, auto_commit: bool) -> None:
    """A program that forgets at a rebalance what it has paused never resumed it."""

    async def pause(one: Consumer) -> None:
        handed_out = set[TopicPartition]()
        while len(handed_out) < PARTITIONS:
            handed_out |= (await one.getmany(timeout_ms=20)).keys()
        one.pause(*one.assignment())

    for listener, paused in ((Forgets(), 0), (ForgetsWhatGoes(), 1)):
        async with rebalanced(listener, pause, enable_auto_commit=auto_commit) as (one, _):
            assert len(one.paused() & one.assignment()) == paused


@pytest.mark.parametrize("listener", [None, Forgets()], ids=["no listener", "plain"])
async def test_what_is_subscribed_anew_comes_again_at_its_last_commit(listener: Forgets | None) -> None:
    """A program may forget what it has not committed when it unsubscribes; the next commit passed all of that."""
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        await broker.send(TOPIC, 0, *(b"%d" % number for number in range(RECORDS)))
        async with consumer_of(broker, auto_offset_reset="earliest", enable_auto_commit=False) as one:
            one.subscribe([TOPIC], listener=listener)
            gathered = set[int]()
            while len(gathered) < RECORDS or (listener is not None and not listener.held):
                gathered |= {r.offset for rows in (await one.getmany(timeout_ms=20)).values() for r in rows}
            one.unsubscribe()
            with pytest.raises(IllegalStateError, match="Not subscribed"):
                await one.commit()
            one.subscribe([TOPIC], listener=listener)
            with pytest.raises(CommitFailedError):
                await one.commit()
            again = [await one.getone() for _ in range(RECORDS)]
            assert [r.offset for r in again] == list(range(RECORDS))
            await one.commit()
            assert broker.committed(GROUP, TOPIC, 0) == RECORDS


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("left_for", [(), ("other",)], ids=["unsubscribed", "another topic"])
async def test_what_was_paused_runs_when_its_topic_is_subscribed_again(
    left_for: tuple[str, ...], *, auto_commit: bool
) -> None:
    """Soon after the first call the pause was given back. A program that counts on its end was handed nothing."""
    async with memory_broker({TOPIC: 2, "other": 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        for index in range(2):
            await broker.send(TOPIC, index, b"0", b"1")
        async with consumer_of(broker, auto_offset_reset="earliest", enable_auto_commit=auto_commit) as one:
            first = await one.getone()
            at = TopicPartition(TOPIC, 1 - first.partition)
            one.pause(at)
            one.subscribe([TOPIC])
            assert one.paused() == {at}, "its topic was subscribed all the time"
            for _ in range(2):
                one.subscribe(left_for) if left_for else one.unsubscribe()
                assert not one.paused()
                one.subscribe([TOPIC])
                assert not one.paused()
            while (await one.getone()).partition != at.partition:
                pass


class Tells:
    """It notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", set(revoked)))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", set(assigned)))


class TellsAll(Tells, ConsumerRebalanceListener):  # type: ignore[misc]
    """A plain listener."""


class TellsChanges(Tells, IncrementalRebalanceListener):
    """An incremental listener."""


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("left_for", [(), ("other",)], ids=["unsubscribed", "another topic"])
@pytest.mark.parametrize("kind", [TellsAll, TellsChanges])
async def test_a_listener_hears_of_what_is_subscribed_again_before_its_first_record(
    kind: type[Tells], left_for: tuple[str, ...], *, auto_commit: bool
) -> None:
    """Soon after the first call it heard of nothing, and with manual commits records came again without a word."""
    async with memory_broker({TOPIC: 1, "other": 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        await broker.send(TOPIC, 0, *(b"%d" % number for number in range(RECORDS)))
        listener: Any = kind()
        one = consumer_of(broker, auto_offset_reset="earliest", enable_auto_commit=auto_commit)
        one.subscribe([TOPIC], listener=listener)
        async with one:
            await one.getone()
            at = {TopicPartition(TOPIC, 0)}
            for _ in range(2):
                listener.calls.clear()
                one.subscribe(left_for, listener=listener) if left_for else one.unsubscribe()
                one.subscribe([TOPIC], listener=listener)
                assert one.assignment() == at
                await one.getone()
                assert listener.calls == [("revoked", at), ("assigned", at)]
            one.subscribe([TOPIC], listener=listener)
            await one.getone()
            assert len(listener.calls) == 2, "its topic was subscribed all the time"


async def test_a_listener_that_comes_late_hears_of_what_waits_for_a_seek() -> None:
    """With ``auto_offset_reset="none"`` and offsets elsewhere it was never called, and every call raised for ever."""

    class Seeks(ConsumerRebalanceListener):  # type: ignore[misc]
        def __init__(self, consumer: Consumer) -> None:
            self._consumer = consumer

        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None: ...

        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            for partition in assigned:
                self._consumer.seek(partition, 3)

    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        await broker.send(TOPIC, 0, *(b"%d" % number for number in range(RECORDS)))
        async with consumer_of(broker, auto_offset_reset="none", enable_auto_commit=False) as one:
            one.subscribe([TOPIC])
            with pytest.raises(NoOffsetForPartitionError):
                await one.getone()
            one.subscribe([TOPIC], listener=Seeks(one))
            record = None
            while record is None:
                with contextlib.suppress(NoOffsetForPartitionError):
                    record = await one.getone()
                await asyncio.sleep(0)
            assert record.offset == 3


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_listener_that_is_taken_away_is_stood_for(*, auto_commit: bool) -> None:
    """What it had paused and forgotten stayed paused, and a later listener was never told of what was being opened."""
    client = ManagedConsumer(
        Arguments.read(
            (TOPIC,),
            {"group_id": GROUP, "enable_auto_commit": auto_commit, "bootstrap_servers": "127.0.0.1:1"},
            enabled=True,
        ),
        Settings(http="off"),
        (TOPIC,),
        user_loop=asyncio.new_event_loop(),
        registry=CollectorRegistry(),
    )
    client.subscribe([TOPIC], listener=ForgetsWhatGoes())
    client.subscribe([TOPIC])
    stands_for = client._put_aside.listener
    assert isinstance(stands_for, ComesAnew)
    assert isinstance(stands_for.listener, NobodyListens)
    client.subscribe([TOPIC])
    assert client._put_aside.listener is stands_for


class Slow(Forgets):
    """Its second call takes until the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.ends = asyncio.Event(), asyncio.Event()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.begun.set()
        await self.ends.wait()


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_a_listener_that_comes_behind_none_hears_of_what_the_one_before_is_being_told(auto_commit: bool) -> None:
    """Nobody told it, then or later; with manual commits nothing of the partition was ever handed out."""
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        await broker.send(TOPIC, 0, b"0")
        one = consumer_of(broker, auto_offset_reset="earliest", enable_auto_commit=auto_commit)
        first, last = Slow(), Forgets()
        one.subscribe([TOPIC], listener=first)
        async with one:
            await first.begun.wait()
            one.subscribe([TOPIC])
            await asyncio.sleep(0.05)  # The agent reads it while the call goes on.
            one.subscribe([TOPIC], listener=last)
            first.ends.set()
            assert (await one.getone()).offset == 0
            while not last.held:
                await one.getmany(timeout_ms=20)


class CommitsByName(ForgetsWhatGoes):
    """It commits what goes by name, as such listeners are told to."""

    consumer: Consumer
    done: dict[TopicPartition, int]

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self.consumer.commit({at: offset for at, offset in self.done.items() if at in revoked})


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_what_goes_for_it_is_not_subscribed_any_more_is_committed_by_name(*, auto_commit: bool) -> None:
    async with memory_broker({TOPIC: 1, "other": 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        await broker.send(TOPIC, 0, *(b"%d" % number for number in range(RECORDS)))
        async with consumer_of(broker, auto_offset_reset="earliest", enable_auto_commit=auto_commit) as one:
            listener = CommitsByName()
            listener.consumer, listener.done = one, {TopicPartition(TOPIC, 0): 2}
            one.subscribe([TOPIC], listener=listener)
            assert [(await one.getone()).offset for _ in range(2)] == [0, 1]
            one.subscribe(["other"], listener=listener)
            while one.assignment() != {TopicPartition("other", 0)}:
                await one.getmany(timeout_ms=20)
            assert broker.committed(GROUP, TOPIC, 0) == 2


async def test_a_member_that_holds_nothing_yet_seeks_nothing() -> None:
    """A replica that comes to a group which has all partitions: they come by handoffs, later than start() returns."""
    topics = {TOPIC: 1, f"__loadtrim.{GROUP}": 2}
    async with asyncio.timeout(30.0), memory_broker(topics) as broker, consumer_of(broker) as one:
        while not one.assignment():
            await one.getmany(timeout_ms=20)
        async with consumer_of(broker) as other:
            assert not other.assignment()
            assert not await other.seek_to_end(), "not all is sought that it is about to hold"
            assert not await other.seek_to_beginning()
            assert await other.seek_to_committed() == {}
            other.unsubscribe()
            for seek in (other.seek_to_end, other.seek_to_beginning, other.seek_to_committed):
                with pytest.raises(AssertionError, match="No partitions are currently assigned"):
                    await seek()


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize("first", [True, False], ids=["subscribed first", "sought first"])
async def test_what_is_not_subscribed_any_more_is_not_sought(*, auto_commit: bool, first: bool) -> None:
    """The end was committed of a topic that user code had left, and what lay before it was handed out to nobody."""
    async with memory_broker({TOPIC: 1, "other": 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        await broker.send(TOPIC, 0, *(b"%d" % number for number in range(RECORDS)))
        async with consumer_of(broker, auto_offset_reset="earliest", enable_auto_commit=auto_commit) as one:
            assert [(await one.getone()).offset for _ in range(2)] == [0, 1]
            if not auto_commit:
                await one.commit()
            if first:
                one.subscribe(["other"])
                with pytest.raises(AssertionError, match="No partitions are currently assigned"):
                    await one.seek_to_end()
                with pytest.raises(IllegalStateError):
                    one.seek(TopicPartition(TOPIC, 0), RECORDS)
            else:
                seeking = asyncio.create_task(one.seek_to_end())
                await asyncio.sleep(0)
                one.subscribe(["other"])
                assert not await seeking
            while one.assignment() != {TopicPartition("other", 0)}:
                await one.getmany(timeout_ms=20)
            one.subscribe([TOPIC])
            assert [(await one.getone()).offset for _ in range(RECORDS - 2)] == list(range(2, RECORDS))


# -- the parts ---------------------------------------------------------------------------------------------------


class Commits:
    """The agent's side of commits: its answers are played, and may take their time."""

    def __init__(self, *answers: int | Exception | None, meanwhile: Callable[[], object] = lambda: None) -> None:
        self._answers = list(answers)
        self._meanwhile = meanwhile
        self.made: list[int] = []
        self.acknowledged: int | None = None

    async def commit(self, wanted: dict[Partition, tuple[int, str]], *, named: bool) -> None:
        self.made += [offset for offset, _ in wanted.values()]

    async def committed_last(self, partitions: Any, timeout_seconds: float) -> dict[Partition, int | None]:
        answer = self._answers.pop(0)
        self._meanwhile()
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(partitions, answer)


def anew_of(
    stream: Stream, commits: Commits, kind: type[ToldListener] = AssignedAnew
) -> tuple[ToldListener, Positions]:
    """A listener's side of one stream, of which five records were handed out."""
    stream.position = stream.done = 5
    buffer = handout_of(ONE)
    acknowledged = {} if commits.acknowledged is None else {ONE: SimpleNamespace(committed=commits.acknowledged)}
    partitions = SimpleNamespace(seek=lambda *at: None, paused=lambda *at: None)
    snapshot = SimpleNamespace(assigned=acknowledged)
    agent = SimpleNamespace(commits=commits, buffer=buffer, partitions=partitions, snapshot=lambda: snapshot)

    async def run(work: Awaitable[Any]) -> Any:
        return await work

    link: Any = SimpleNamespace(
        streams={stream.partition: stream},
        held={stream.partition},
        subscription=SimpleNamespace(matches=tuple),
        buffer=buffer,
        agent=agent,
        stream=lambda partition: stream,
        stream_unless_gone=lambda partition: stream,
        must_own=lambda wanted: None,
        must_subscribe=lambda: None,
        need_agent=lambda: agent,
        post=lambda call, *args: call(*args),
        run=run,
    )
    positions = Positions(link, SimpleNamespace(), group="g", auto_commit=False)  # type: ignore[arg-type]
    return kind(Forgets(), link, positions), positions


async def rebalance(anew: ToldListener) -> None:
    await anew.on_partitions_revoked({AT})
    await anew.on_partitions_assigned({AT})


async def test_a_commit_that_comes_while_it_is_asked_what_is_committed_counts() -> None:
    """What it covers would have been handed out again, and the next commit would have gone back."""
    stream = Stream(ONE, 1, 0, by_hand=True)

    def commit() -> None:
        if not stream.commits.highest:
            stream.commits.called(4, 5, 1.0)

    anew, _ = anew_of(stream, Commits(2, 4, meanwhile=commit))
    await rebalance(anew)
    assert stream.position == 4


@pytest.mark.parametrize("kind", [AssignedAnew, ComesAnew])
async def test_a_commit_has_nothing_of_what_goes_until_it_comes_again_at_its_last_commit(
    kind: type[ToldListener],
) -> None:
    """It committed what the listener had forgotten a moment before, until the partition was released or set back."""
    commits = Commits(2, 2)
    told, positions = anew_of(Stream(ONE, 1, 0, by_hand=True), commits, kind)
    await positions.commit()
    await told.on_partitions_revoked({AT})
    with pytest.raises(CommitFailedError, match="all partitions have gone"):
        await positions.commit()
    assert commits.made == [5]
    await told.on_partitions_assigned({AT})
    await positions.commit()
    assert commits.made == [5, 2]
    await rebalance(told)
    await positions.commit()
    assert commits.made == [5, 2, 2], "there was nothing to set back"


async def test_a_plain_listener_that_comes_later_forgets_in_its_first_call_what_it_was_not_told_of() -> None:
    """aiokafka joins anew when user code subscribes, and calls the listener with nothing at first."""
    stream = Stream(ONE, 1, 0, by_hand=True)
    told, positions = anew_of(stream, commits := Commits(2))
    await told.on_partitions_revoked(set())
    with pytest.raises(CommitFailedError):
        await positions.commit()
    await told.on_partitions_assigned({AT})
    assert (stream.position, commits.made) == (2, [])


async def test_an_incremental_listener_that_comes_later_is_told_and_nothing_is_handed_out_again() -> None:
    """User code may subscribe it when it has done records already: it was told of nothing that it could forget."""
    stream = Stream(ONE, 1, 0, by_hand=True)
    told, _ = anew_of(stream, Commits(2), ComesAnew)
    await told.on_partitions_assigned({AT})
    assert stream.position == 5


class CommitsWhatGoes(ForgetsWhatGoes):
    """User code that commits in ``on_partitions_revoked``, without offsets and with those named."""

    def __init__(self, *named: dict[TopicPartition, int]) -> None:
        super().__init__()
        self.commit: Callable[..., Awaitable[None]]
        self.told: list[str] = []
        """What it was told of commits that were not made."""
        self._offsets = (None, *named)

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        for offsets in self._offsets:
            try:
                await self.commit(offsets)
            except CommitFailedError as error:
                self.told.append(str(error))


async def test_a_commit_in_the_call_that_tells_of_a_loss_fails() -> None:
    """It returned as if all were well: the member had been put out for want of calls, and had asked to come back."""
    listener = CommitsWhatGoes({TopicPartition(TOPIC, 0): 1})
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        await broker.send(TOPIC, 0, b"1", b"2")
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with consumer_of(broker, max_poll_interval_ms=500, **options) as one:
            listener.commit = one.commit
            one.subscribe([TOPIC], listener=listener)
            assert (await one.getone()).offset == 0
            while not listener.held:
                await one.getmany(timeout_ms=20)
            while one._client.link.streams:
                time.sleep(0.01)  # noqa: ASYNC251 - it keeps its loop busy
            assert (await one.getone()).offset == 0, "nothing was committed"
            assert ["lost, not given away" in error for error in listener.told] == [True, True]


@pytest.mark.parametrize("kind", [AssignedAnew, ComesAnew])
async def test_what_was_told_to_go_and_comes_back_is_not_paused_any_more(kind: type[ToldListener]) -> None:
    """A program forgets what it has paused of it, and never resumed it."""
    stream = Stream(ONE, 1, 0, by_hand=True)
    told, _ = anew_of(stream, Commits(2), kind)
    stream.paused = True
    await rebalance(told)
    assert not stream.paused


async def test_an_incremental_listener_that_comes_later_finds_paused_what_user_code_has_paused() -> None:
    stream = Stream(ONE, 1, 0, by_hand=True)
    told, positions = anew_of(stream, Commits(2), ComesAnew)
    positions.pause(AT)
    await told.on_partitions_assigned({AT})
    assert positions.paused() == {AT}


async def test_another_listener_takes_over_what_the_one_before_was_told_to_go() -> None:
    """A commit passed what the first one had forgotten, and what it passed was taken for the last commit then."""
    commits = Commits(2)
    told, positions = anew_of(Stream(ONE, 1, 0, by_hand=True), commits, ComesAnew)
    await told.on_partitions_revoked({AT})
    other = AssignedAnew(Forgets(), told._link, positions)
    with pytest.raises(CommitFailedError):
        await positions.commit()
    await other.on_partitions_assigned({AT})
    await positions.commit()
    assert commits.made == [2]


async def test_a_plain_listener_that_is_subscribed_begins_anew_before_it_is_called() -> None:
    told, positions = anew_of(Stream(ONE, 1, 0, by_hand=True), commits := Commits(2))
    told.look(told._link.streams)
    with pytest.raises(CommitFailedError):
        await positions.commit()
    (stream,) = told._link.streams.values()
    assert stream.paused, "what comes before its first call would be behind what it may have forgotten"
    await rebalance(told)
    assert not stream.paused
    await positions.commit()
    assert commits.made == [2]


async def test_what_no_record_was_handed_out_of_waits_for_the_first_call_too() -> None:
    """A record of it was handed out before that call, which named nothing that goes, and once more after it."""
    told, positions = anew_of(stream := Stream(ONE, 1, 0, by_hand=True), Commits())
    stream.position, stream.done = 2, None
    told.look(told._link.streams)
    assert stream.paused
    await told.on_partitions_revoked(set())
    await told.on_partitions_assigned({AT})
    assert not stream.paused
    assert stream not in positions.gone


async def test_what_comes_between_a_subscription_and_the_first_call_of_its_listener_waits_for_it() -> None:
    told, positions = anew_of(stream := Stream(ONE, 1, 0, by_hand=True), Commits(2))
    aside = PutAside(told._link, positions)
    aside.listener = told
    there, told._link.streams = told._link.streams, {}  # type: ignore[misc]
    aside.look(told._link.streams)
    told._link.streams = there  # type: ignore[misc]
    aside.look(there)
    assert stream.paused
    await rebalance(told)
    aside.look(there)
    assert not stream.paused, "it was called"


async def test_what_was_not_subscribed_for_a_moment_waits_for_the_call_of_the_listener_that_comes_with_it() -> None:
    """It was handed out before that call, which named nothing that goes, and once more after it."""
    told, positions = anew_of(Stream(ONE, 1, 0, by_hand=True), Commits(2, 2))
    aside = subscribed_anew(told, positions)
    told.look(told._link.streams)
    await asyncio.wait(aside._again._coming)
    (stream,) = told._link.streams.values()
    assert stream.paused
    await rebalance(told)
    assert not stream.paused
    assert stream.position == 2


async def test_what_is_unsubscribed_while_a_listener_is_to_be_told_waits_for_none() -> None:
    told, positions = anew_of(Stream(ONE, 1, 0, by_hand=True), Commits(2))
    told.look(told._link.streams)
    aside = subscribed_anew(told, positions)
    await asyncio.wait(aside._again._coming)
    (stream,) = told._link.streams.values()
    assert not stream.paused


async def test_what_is_subscribed_with_another_listener_waits_for_that_one() -> None:
    commits = Commits(2, 2, meanwhile=lambda: other.look(other._link.streams))
    told, positions = anew_of(Stream(ONE, 1, 0, by_hand=True), commits)
    other = AssignedAnew(Forgets(), told._link, positions)
    told.look(told._link.streams)
    await rebalance(told)
    (stream,) = told._link.streams.values()
    assert stream.paused, "the other one has not been told"
    assert stream in positions.told_to_go, "whoever stands for it is to take it back"
    commits._meanwhile = lambda: None
    await rebalance(other)
    assert not stream.paused


async def test_nothing_is_handed_out_between_a_subscription_and_the_first_call_of_its_listener() -> None:
    """It was set back and handed out before that call, and once more after it."""
    async with memory_broker({TOPIC: 1, f"__loadtrim.{GROUP}": 2}) as broker, asyncio.timeout(30.0):
        await broker.send(TOPIC, 0, *(b"%d" % number for number in range(RECORDS)))
        async with consumer_of(broker, auto_offset_reset="earliest", enable_auto_commit=False) as one:
            assert [(await one.getone()).offset for _ in range(2)] == [0, 1]
            listener = Forgets()
            one.subscribe([TOPIC], listener=listener)
            assert not one._client._put_aside._again._coming
            assert (await one.getone()).offset == 0
            assert listener.held == 1


async def test_a_commit_within_the_call_has_what_goes() -> None:
    """Programs commit in ``on_partitions_revoked`` what they have done."""
    commits = Commits()
    told, positions = anew_of(Stream(ONE, 1, 0, by_hand=True), commits, ComesAnew)

    async def commit(revoked: set[TopicPartition]) -> None:
        await positions.commit()
        raise RuntimeError("what the listener raises is the agent's to tell")

    told.listener.on_partitions_revoked = commit
    with pytest.raises(RuntimeError):
        await told.on_partitions_revoked({AT})
    with pytest.raises(CommitFailedError):
        await positions.commit()
    assert commits.made == [5]


async def test_a_commit_has_no_position_that_nobody_has_named_yet() -> None:
    """With ``auto_offset_reset="none"`` and no commit a partition has no position before user code seeks; it was
    committed as 0."""
    commits, stream = Commits(), Stream(ONE, 1, None, by_hand=True)
    _, positions = anew_of(stream, commits)
    stream.position, stream.done = UNPLACED, None
    await positions.commit()
    positions.seek(AT, 3)
    await positions.commit()
    assert commits.made == [3]


async def test_a_broker_that_cannot_say_what_is_committed_is_asked_again() -> None:
    stream = Stream(ONE, 1, 0, by_hand=True)
    anew, _ = anew_of(stream, Commits(KafkaConnectionError(), 3))
    await rebalance(anew)
    assert stream.position == 3


@pytest.mark.parametrize(
    ("answer", "said"), [(GroupAuthorizationFailedError(), True), (ConsumerStoppedError(), False), (None, False)]
)
async def test_what_has_no_commit_or_none_that_is_told_stays_where_it_is(
    answer: Exception | None, caplog: pytest.LogCaptureFixture, *, said: bool
) -> None:
    stream = Stream(ONE, 1, 0, by_hand=True)
    anew, _ = anew_of(stream, Commits(answer))
    await rebalance(anew)
    assert stream.position == 5
    assert ("cannot be set back" in caplog.text) == said


@pytest.mark.parametrize("answer", [None, GroupAuthorizationFailedError()], ids=["lost", "may not be read"])
async def test_where_nobody_tells_the_groups_commit_the_last_acknowledged_one_counts(answer: Exception | None) -> None:
    """What stayed went on behind what the listener had forgotten (seeds 880584 and 1339974286)."""
    stream, commits = Stream(ONE, 1, 0, by_hand=True), Commits(answer)
    commits.acknowledged = 3
    anew, _ = anew_of(stream, commits)
    await rebalance(anew)
    assert stream.position == 3


async def test_offsets_of_before_are_refused_to_the_first_transaction_and_later_ones_set_nothing_back() -> None:
    """The records come again: their offsets in a transaction would have made them done twice."""
    stream = Stream(ONE, 1, 0, by_hand=True)
    anew, positions = anew_of(stream, Commits(2))
    await rebalance(anew)
    with pytest.raises(CommitFailedError, match="set back to its last commit by a rebalance"):
        await positions.send_offsets_to_transaction(SimpleNamespace(), {AT: 5})  # type: ignore[arg-type]
    stream.position = 5
    await rebalance(anew)
    assert stream.position == 5


async def test_what_a_transaction_has_while_a_rebalance_sets_back_is_not_handed_out_again() -> None:
    anew, positions = anew_of(stream := Stream(ONE, 1, 0, by_hand=True), Commits(2, meanwhile=lambda: sends()))

    def sends() -> None:
        positions.transactional = True

    await rebalance(anew)
    assert stream.position == 5


async def test_what_is_not_subscribed_any_more_is_not_paused_by_user_code_nor_resumed_by_it() -> None:
    """It is put aside until the agent gives it up; ``resume(*paused())`` handed it out."""
    stream = Stream(ONE, 1, 0)
    stream.paused = True
    _, positions = anew_of(stream, Commits())
    assert positions.paused() == {AT}
    positions._link.held = ()
    assert positions.paused() == set(), "a plain listener was told that it goes"
    positions._link.held = {ONE}
    positions._link.subscription = Subscription()
    assert positions.paused() == set()
    positions.resume(AT)
    assert stream.paused


async def test_a_member_that_was_put_out_and_stops_is_told_that_its_commit_was_not_made() -> None:
    """A batch took longer than ``max_poll_interval_ms``, and SIGTERM came: its commit returned as if all were well."""
    told, positions = anew_of(Stream(ONE, 1, 0, by_hand=True), commits := Commits())
    told._link.streams.clear()
    assert told._link.buffer is not None
    told._link.buffer.expired = told._link.buffer.closing = True
    for offsets in (None, {AT: 5}):
        with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
            await positions.commit(offsets)
    assert commits.made == []


@pytest.mark.parametrize("kind", [AssignedAnew, ComesAnew])
async def test_what_was_lost_and_acquired_again_before_the_call_is_lost(kind: type[ToldListener]) -> None:
    """The commit was of the new acquisition: it returned as if what had been done of the old one were committed."""
    told, positions = anew_of(Stream(ONE, 1, 0, by_hand=True), commits := Commits(2), kind)
    told.listener = listener = CommitsWhatGoes({AT: 5})
    listener.commit = positions.commit
    await told.on_partitions_assigned({AT})
    told._link.streams[ONE] = again = Stream(ONE, 2, 0, by_hand=True)
    await told.on_partitions_revoked({AT})
    assert (len(listener.told), commits.made) == (2, [])
    await told.on_partitions_assigned({AT})
    again.position = again.done = 3
    await told.on_partitions_revoked({AT})
    assert (len(listener.told), commits.made) == (2, [3, 5])


async def test_what_the_listener_before_was_told_to_go_is_not_paused_any_more_either() -> None:
    stream = Stream(ONE, 1, 0, by_hand=True)
    told, positions = anew_of(stream, Commits(2), ComesAnew)
    positions.pause(AT)
    await told.on_partitions_revoked({AT})
    await ComesAnew(NobodyListens(), told._link, positions).on_partitions_assigned({AT})
    assert not stream.paused


@pytest.mark.parametrize("kind", [AssignedAnew, ComesAnew])
async def test_what_had_gone_again_when_it_was_told_to_come_is_not_lost(kind: type[ToldListener]) -> None:
    """User code had nothing of it. Its commit of everything failed, as if something had been lost."""
    told, positions = anew_of(Stream(ONE, 1, 0, by_hand=True), commits := Commits(), kind)
    told.listener = listener = CommitsWhatGoes()
    listener.commit = positions.commit
    told._link.streams.clear()
    await told.on_partitions_assigned({AT})
    await told.on_partitions_revoked({AT})
    assert (listener.told, commits.made) == ([], [])


async def test_what_user_code_seeks_before_it_comes_again_is_not_set_back() -> None:
    """It was set back to its last commit, and what user code had asked for was forgotten."""
    stream = Stream(ONE, 1, 0, by_hand=True)
    told, positions = anew_of(stream, commits := Commits(2, 2))
    aside = subscribed_anew(told, positions)
    positions.seek(AT, 4)
    await asyncio.wait(aside._again._coming)
    assert (stream.position, stream.paused) == (4, False)
    await told.on_partitions_revoked({AT})
    positions.seek(AT, 3)
    await told.on_partitions_assigned({AT})
    assert stream.position == 3
    await positions.commit()
    assert commits.made == [3]


async def test_what_goes_while_another_comes_again_is_not_taken_for_set_back() -> None:
    stream, other = Stream(ONE, 1, 0, by_hand=True), Stream(Partition(TOPIC, 1), 1, 0, by_hand=True)
    other.done = other.position = 5
    told, positions = anew_of(stream, Commits(2, meanwhile=lambda: positions.gone.add([other])))
    told._link.streams[other.partition] = other
    await told.on_partitions_revoked({AT})
    positions.gone.discard(other)
    await told.on_partitions_assigned({AT, TopicPartition(*other.partition)})
    assert other in positions.gone
    assert stream not in positions.gone


def subscribed_anew(told: ToldListener, positions: Positions) -> PutAside:
    """User code unsubscribes, and subscribes again before the agent has given anything up."""
    aside = PutAside(told._link, positions)
    aside.subscribed(Subscription())
    assert told._link.streams[ONE].paused
    aside.subscribed(Subscription((ONE.topic,)))
    return aside


async def test_what_goes_anew_is_handed_out_when_it_comes_for_that_and_not_before() -> None:
    stream = Stream(ONE, 1, 0, by_hand=True)
    told, positions = anew_of(stream, Commits(2), ComesAnew)
    aside = subscribed_anew(told, positions)
    told._come_back([stream])
    assert stream.paused, "it is not set back yet"
    await asyncio.wait(aside._again._coming)
    assert (stream.position, stream.paused) == (2, False)


@pytest.mark.parametrize("paused", [True, False])
async def test_what_user_code_pauses_while_it_comes_again_is_paused_then(*, paused: bool) -> None:
    """Its wish was forgotten; and what it resumed was handed out from where it had been, and paused for ever then."""
    stream = Stream(ONE, 1, 0, by_hand=True)
    told, positions = anew_of(stream, commits := Commits(2))
    stream.paused = not paused
    aside = subscribed_anew(told, positions)
    (positions.pause if paused else positions.resume)(AT)
    assert positions.paused() == ({AT} if paused else set())
    assert stream.paused, "until it is set back"
    await asyncio.wait(aside._again._coming)
    assert (stream.paused, stream.position) == (paused, 2)
    assert positions.paused() == ({AT} if paused else set())
    assert not commits.made


async def test_what_goes_and_comes_while_it_is_put_aside_is_not_paused_when_it_is_subscribed_again() -> None:
    """Nor for the planner, which took it for paused until user code paused or resumed it the next time."""
    stream = Stream(ONE, 1, 0, by_hand=True)
    told, positions = anew_of(stream, Commits(2), ComesAnew)
    planned_for: list[bool] = []
    told._link.need_agent().partitions.paused = lambda _, paused: planned_for.append(paused)  # type: ignore[method-assign]
    positions.pause(AT)
    aside = PutAside(told._link, positions)
    told._link.subscription = Subscription()
    aside.subscribed(told._link.subscription)
    await rebalance(told)
    assert stream.paused, "until it is subscribed again"
    assert planned_for == [True, False]
    told._link.subscription = Subscription((ONE.topic,))
    aside.subscribed(Subscription((ONE.topic,)))
    assert not stream.paused
    assert planned_for == [True, False]


async def test_what_goes_while_it_is_set_back_is_not_taken_for_come() -> None:
    """What user code pauses of it then is not to be resumed before it comes."""
    stream = Stream(ONE, 1, 0, by_hand=True)
    told, positions = anew_of(stream, Commits(2, meanwhile=lambda: positions.told_to_go.add(stream)), ComesAnew)
    positions.gone.add([stream])
    await told.on_partitions_assigned({AT})
    assert list(positions.told_to_go) == [stream]


async def test_the_hand_is_waited_for_until_it_is_empty_and_no_longer_than_asked() -> None:
    buffer = handout_of(ONE)
    hand: Hand = buffer.hand
    await hand.until_empty(0.0)
    assert buffer.take_one() is not None
    await hand.until_empty(0.01)
    assert hand.streams, "it is still in hand"
    waiting = asyncio.create_task(hand.until_empty(60.0))
    await asyncio.sleep(0)
    buffer.asked(1e9, ())
    await waiting
    assert not hand.streams
