"""User code as people write it: each takes records from a consumer and says when it has done them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError, UnknownMemberIdError
from aiokafka.structs import TopicPartition

from loadtrim import IncrementalRebalanceListener
from loadtrim_agent.common.partition import Partition

from .mind_changes import change_its_mind

if TYPE_CHECKING:
    from .world import Member

__all__ = [
    "FIRST_PROGRAMS",
    "FORGETTING",
    "LATER_PROGRAMS",
    "LISTENERS",
    "LISTENER_SECONDS",
    "OUTPUT",
    "PROGRAMS",
    "Forgets",
    "Gathered",
    "Program",
]

Program = Callable[["Member"], Awaitable[None]]
Batch = dict[TopicPartition, list[Any]]
OUTPUT = "output"
"""Topic of what transactions put out."""


async def iterates(member: Member) -> None:
    """``async for``, one record at a time."""
    async for record in member.consumer:
        await member.work(record)


async def waits_with_a_limit(member: Member) -> None:
    """``wait_for(getone())``: the wait is cancelled again and again."""
    while True:
        try:
            record = await asyncio.wait_for(member.consumer.getone(), member.rng.uniform(0.02, 0.5))
        except TimeoutError:
            continue
        except ConsumerStoppedError:
            return
        await member.work(record)


async def gathers_batches(member: Member) -> None:
    """``getmany`` and ``gather``."""
    while True:
        try:
            batches = await member.consumer.getmany(timeout_ms=200, max_records=member.rng.randint(1, 20))
        except ConsumerStoppedError:
            return
        records = [record for batch in batches.values() for record in batch]
        for record in records:
            member.took(record)
        await asyncio.gather(*(asyncio.sleep(member.cost()) for _ in records))
        for record in records:
            member.did(record)


async def tells(member: Member) -> None:
    """A task for each record, a few at a time, that says when it is done."""
    consumer, free = member.consumer, asyncio.Semaphore(member.rng.randint(1, 8))

    async def handle(record: Any) -> None:
        async with consumer.work(record):
            await asyncio.sleep(member.cost())
            member.did(record)
        free.release()

    tasks: set[asyncio.Task[None]] = set()
    async for record in consumer:
        member.took(record)
        tasks.add(asyncio.create_task(handle(record)))
        await free.acquire()
    await asyncio.gather(*tasks)


async def commits_by_hand(member: Member) -> None:
    """``commit()`` after a few records, or of one record's offset."""
    count = 0
    async for record in member.consumer:
        await member.work(record)
        count += 1
        if count % member.rng.randint(1, 4) == 0:
            at = TopicPartition(record.topic, record.partition)
            try:
                await member.consumer.commit({at: record.offset + 1} if member.rng.random() < 0.5 else None)
            except (CommitFailedError, IllegalStateError):
                continue  # the partition went to another member


class Gathered:
    """Records that user code has gathered, to do and commit them together."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.doing = asyncio.Lock()


async def gathers(member: Member) -> None:
    """Gathers records, does them together and commits; what it has gathered it forgets at a rebalance."""
    gathered = member.gathered
    while True:
        try:
            batches = await member.consumer.getmany(timeout_ms=200, max_records=member.rng.randint(1, 4))
        except ConsumerStoppedError:
            return
        records = [record for batch in batches.values() for record in batch]
        for record in records:
            member.took(record)
        gathered.records += records
        if member.world.options.changes_its_mind:
            await change_its_mind(member)
        if records and len(gathered.records) < member.rng.randint(2, 10):
            continue
        if member.world.options.names_offsets and not gathered.records:
            continue  # there are no offsets to name
        async with gathered.doing:
            together, gathered.records = gathered.records, []
            await asyncio.sleep(member.cost())
            for record in together:
                member.did(record)
            with contextlib.suppress(CommitFailedError, IllegalStateError):  # a partition went to another member
                await member.consumer.commit(_behind(together) if member.world.options.names_offsets else None)


async def names_partitions(member: Member) -> None:
    """``getmany`` of one partition after the other: nobody names one that has gone."""
    named: set[TopicPartition] = set()
    while True:
        for at in sorted(member.consumer.assignment()) or (None,):
            try:
                await _batch_of(member, at)
            except ConsumerStoppedError:
                for each in sorted(named - {at}):  # What it had of these no call makes done any more.
                    member.world.journal.comes_again(Partition(*each))
                return
            named |= {at} if at is not None else set()


async def has_a_task_for_each(member: Member) -> None:
    """A task for each partition, which ends when the partition has gone. Its last call makes done what it had."""
    tasks: dict[TopicPartition, asyncio.Task[None]] = {}

    async def consume(at: TopicPartition) -> None:
        while await _batch_of(member, at) or at in member.consumer.assignment():
            pass

    try:
        while True:
            # A program that asks for nothing is told of nothing that breaks. One task asks for a partition at a time.
            if not member.consumer.assignment() and all(task.done() for task in tasks.values()):
                try:
                    await _batch_of(member, None)
                except ConsumerStoppedError:
                    return
            for at in sorted(member.consumer.assignment()):
                if at not in tasks or tasks[at].done():
                    if at in tasks:
                        tasks.pop(at).result()
                    tasks[at] = asyncio.ensure_future(consume(at))
            await asyncio.wait([*tasks.values(), asyncio.ensure_future(asyncio.sleep(0.1))], timeout=0.1)
            if any(task.done() and isinstance(task.exception(), ConsumerStoppedError) for task in tasks.values()):
                return
    except Exception:
        # What broke for one partition ends the program: the others would be consumed for ever, and that one by nobody.
        for task in tasks.values():
            task.cancel()
        raise
    finally:
        await asyncio.gather(*tasks.values(), return_exceptions=True)


async def _batch_of(member: Member, at: TopicPartition | None) -> int:
    """Do some records of a partition, and return how many; None: nothing is assigned."""
    named = () if at is None else (at,)
    batches = await member.consumer.getmany(*named, timeout_ms=100, max_records=member.rng.randint(1, 8))
    records = [record for batch in batches.values() for record in batch]
    for record in records:
        member.took(record)
    for record in records:
        await asyncio.sleep(member.cost())
        member.did(record)
    return len(records)


async def changes_its_mind(member: Member) -> None:
    """Commits beside auto-commit; subscribes anew, pauses and goes back when nothing is in hand."""
    while True:
        try:
            batches = await member.consumer.getmany(timeout_ms=100, max_records=member.rng.randint(1, 4))
        except ConsumerStoppedError:
            return
        records = [record for batch in batches.values() for record in batch]
        for record in records:
            member.took(record)
        for record in records:
            await asyncio.sleep(member.cost())
            member.did(record)
        if batches and member.rng.random() < 0.3:
            with contextlib.suppress(CommitFailedError, IllegalStateError):  # a partition went to another member
                await member.consumer.commit()
        if not batches:  # so all that was done before is known to be done
            await change_its_mind(member)


def _behind(records: list[Any]) -> dict[TopicPartition, int]:
    """Return the offsets behind these records, as user code names them in a commit."""
    return {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}


class Forgets(ConsumerRebalanceListener):
    """The listener of :func:`gathers`, which counts on what Kafka's clients do: what is not committed comes again.

    Args:
        member: whose records it forgets.
    """

    SECONDS = 2 * 5.0
    """For so long a partition may stand still because of it: two seconds for what is in hand, three for what is being
    done, and a pair of calls under way before."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: Any) -> None:
        async with self._member.gathered.doing:
            self._member.forget(revoked)

    async def on_partitions_assigned(self, assigned: Any) -> None: ...


class ForgetsWhatGoes(IncrementalRebalanceListener, Forgets):
    """It is told of what goes alone, and keeps what it has gathered of the rest."""


FORGETTING: dict[str, type[Forgets]] = {"plain": Forgets, "incremental": ForgetsWhatGoes}


async def goes_back(member: Member) -> None:
    """``seek`` to an earlier record, now and then."""
    async for record in member.consumer:
        await member.work(record)
        if member.world.faulty and member.rng.random() < 0.05:
            offset = max(0, record.offset - member.rng.randint(0, 3))
            try:
                member.consumer.seek(TopicPartition(record.topic, record.partition), offset)
            except IllegalStateError:
                continue  # it is not held any more
            member.world.journal.sought(Partition(record.topic, record.partition), offset)


async def pauses(member: Member) -> None:
    """``pause`` and ``resume`` of whatever is held."""
    consumer = member.consumer

    async def resume(at: TopicPartition) -> None:
        await asyncio.sleep(member.rng.uniform(0.1, 2.0))
        if at in consumer.assignment():
            consumer.resume(at)

    resuming = set()
    async for record in consumer:
        await member.work(record)
        held = sorted(consumer.assignment())
        if held and member.world.faulty and member.rng.random() < 0.1:
            at = member.rng.choice(held)
            consumer.pause(at)
            resuming.add(asyncio.ensure_future(resume(at)))


async def computes(member: Member) -> None:
    """Code that blocks its loop: the agent's goes on."""
    async for record in member.consumer:
        member.took(record)
        if member.world.faulty and member.rng.random() < 0.2:
            member.block(member.rng.uniform(0.05, 3.0))
        await asyncio.sleep(member.cost())
        member.did(record)


async def shares_a_consumer(member: Member) -> None:
    """Several tasks ask one consumer: a call of one makes done what the others have in hand (docs/compatibility.md)."""

    async def work() -> None:
        while True:
            try:
                record = await member.consumer.getone()
            except ConsumerStoppedError:
                return
            member.took(record)
            member.did(record)
            await asyncio.sleep(member.cost())

    await asyncio.gather(*(work() for _ in range(member.rng.randint(2, 4))))


async def transacts(member: Member) -> None:
    """Consume, transform, produce: a transaction for each batch, exactly once."""
    async with member.producer() as producer:
        while True:
            try:
                batch = await member.consumer.getmany(timeout_ms=200, max_records=member.rng.randint(1, 10))
            except ConsumerStoppedError:
                return
            if not batch:
                continue
            try:
                await _transform(member, producer, batch)
            except (CommitFailedError, IllegalStateError, TimeoutError, UnknownMemberIdError):
                with contextlib.suppress(AssertionError):  # aiokafka's own; open is one whose commit failed
                    await producer.abort_transaction()
                await _rewind(member, batch)


async def _transform(member: Member, producer: Any, batch: Batch) -> None:
    records = [record for rows in batch.values() for record in rows]
    for record in records:
        member.took(record)
    try:
        async with producer.transaction():
            for record in records:
                await asyncio.sleep(member.cost())
                await producer.send(OUTPUT, b"%d:%d" % (record.partition, record.offset), partition=0)
            offsets = {at: rows[-1].offset + 1 for at, rows in batch.items()}
            sending = member.consumer.send_offsets_to_transaction(producer, offsets)
            impatient = member.world.faulty and member.rng.random() < 0.1
            await asyncio.wait_for(sending, member.rng.uniform(0.0, 0.05) if impatient else None)
    finally:
        for record in records:
            member.dropped(record)


async def _rewind(member: Member, batch: Batch) -> None:
    """The transaction was aborted: what is still held goes on behind the last one that was committed."""
    for at in sorted(batch.keys() & member.consumer.assignment()):
        with contextlib.suppress(IllegalStateError):  # it has gone meanwhile
            await member.consumer.seek_to_committed(at)


FIRST_PROGRAMS = ("computes", "gathers_batches", "goes_back", "iterates", "pauses", "waits_with_a_limit")
"""What most groups are made of."""
PROGRAMS: dict[str, Program] = {
    program.__name__: program
    for program in (iterates, waits_with_a_limit, gathers_batches, goes_back, pauses, computes, shares_a_consumer)
}
LATER_PROGRAMS: dict[str, Program] = {
    program.__name__: program for program in (tells, changes_its_mind, names_partitions, has_a_task_for_each)
}
"""Those that some groups have beside the others, drawn apart: what a seed had before it still has."""
"""By name; ``commits_by_hand`` and ``transacts`` go with groups that do not commit by themselves."""


SLOW_CALL_SECONDS_MAX = 0.5
LISTENER_SECONDS = {"slow": 5 * 2 * SLOW_CALL_SECONDS_MAX}
"""Listener -> how long a partition may stand still because of it. A move that is off is told by two pairs of calls,
behind a pair that is under way, with as long a time for other partitions before each of the two."""


class _Listener(ConsumerRebalanceListener):
    """A rebalance listener that does what ``action`` does."""

    def __init__(self, member: Member, action: Callable[[], Awaitable[Any]]) -> None:
        self._member = member
        self._action = action
        self._slow: frozenset[Partition] = frozenset()
        """A rebalance did not wait for what was in hand of these."""

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._slow = self._member.works_too_long()
        await self._action()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        for partition in sorted(self._slow.intersection(assigned)):
            self._member.world.journal.comes_again(partition)
        await self._action()


def _slow(member: Member) -> ConsumerRebalanceListener:
    async def sleep() -> None:
        await asyncio.sleep(member.rng.uniform(0.0, SLOW_CALL_SECONDS_MAX))

    return _Listener(member, sleep)


def _raises(member: Member) -> ConsumerRebalanceListener:
    async def fail() -> None:
        if member.rng.random() < 0.5:
            raise RuntimeError("a listener of user code failed")

    return _Listener(member, fail)


def _cancels(member: Member) -> ConsumerRebalanceListener:
    async def await_cancelled() -> None:
        if member.rng.random() < 0.5:
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task

    return _Listener(member, await_cancelled)


LISTENERS: dict[str, Callable[[Member], ConsumerRebalanceListener]] = {
    "slow": _slow,
    "raises": _raises,
    "cancels": _cancels,
}
