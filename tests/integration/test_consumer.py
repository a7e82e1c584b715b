"""The SDK's contract on a real broker: records, positions, commits, subscriptions, as ``docs/`` promises them."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaError,
)

from integration.harness import WAIT_SECONDS, committed_offsets, eventually
from integration.harness_consumers import Recorder, drain, make, new_group, send, started, take
from loadtrim import Consumer, Settings
from loadtrim.testing import Cluster

pytestmark = pytest.mark.kafka


def values(messages: list[Any]) -> list[str]:
    return [message.value.decode() for message in messages]


def numbers(count: int, prefix: str = "") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


# -- records -----------------------------------------------------------------------------------------------------


async def test_getone_and_getmany_with_partitions_and_limits(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=3)
    for partition in range(3):
        await send(quick_kafka, topic, numbers(10, f"{partition}-"), partition=partition)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with started(quick_kafka, topic, group=new_group()) as consumer:
        assert values(await take(consumer, 2, second)) == ["1-0", "1-1"]
        taken = await consumer.getmany(first, second, timeout_ms=5_000, max_records=3)
        assert sum(map(len, taken.values())) == 3
        assert set(taken) <= {first, second}
        got = await take(consumer, 25)
        assert sorted(values(got)) == sorted(
            set(numbers(10, "0-") + numbers(10, "1-") + numbers(10, "2-"))
            - {"1-0", "1-1"}
            - {record.value.decode() for records in taken.values() for record in records}
        )
        assert await consumer.getmany(timeout_ms=0) == {}
        with pytest.raises(ValueError, match="max_records"):
            await consumer.getmany(max_records=0)


async def test_max_poll_records_bounds_a_batch(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    await send(quick_kafka, topic, numbers(10))
    async with started(quick_kafka, topic, group=new_group(), max_poll_records=4) as consumer:
        (batch,) = (await consumer.getmany(timeout_ms=5_000)).values()
        assert len(batch) == 4


async def test_a_batch_is_done_by_the_next_call_only(quick_kafka: Cluster) -> None:
    """Stopped with a batch in hand: the batch is handed out again, what came before is not."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(10))
    async with started(quick_kafka, topic, group=group) as consumer:
        for _ in range(2):
            await eventually(lambda: consumer.highwater(TopicPartition(topic, 0)), "fetched")
            await consumer.getmany(timeout_ms=5_000, max_records=3)
    assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 3}
    async with started(quick_kafka, topic, group=group) as consumer:
        assert values(await take(consumer, 7)) == numbers(10)[3:]


async def test_deserializers_run_in_user_code_and_may_raise(quick_kafka: Cluster) -> None:
    """What they raise is raised there, again at each call, until user code seeks past the record."""
    topic = quick_kafka.create_topic(partitions=1)
    await send(quick_kafka, topic, ["1", "not a number", "3"])
    at = TopicPartition(topic, 0)
    options = {"value_deserializer": int, "key_deserializer": lambda key: key}
    async with started(quick_kafka, topic, group=new_group(), **options) as consumer:
        assert (await take(consumer, 1))[0].value == 1
        for _ in range(2):
            with pytest.raises(ValueError, match="not a number"):
                await take(consumer, 1)
        assert await consumer.position(at) == 1
        with pytest.raises(ValueError, match="not a number"):
            await consumer.getmany(timeout_ms=1_000)
        consumer.seek(at, 2)
        assert (await take(consumer, 1))[0].value == 3


async def test_records_without_timestamps(quick_kafka: Cluster) -> None:
    """A timestamp of -1 is handed on as it is, and no lateness is made up from it."""
    topic = quick_kafka.create_topic(partitions=1)
    await send(quick_kafka, topic, numbers(20), timestamp_ms=-1)
    async with started(quick_kafka, topic, group=new_group(), settings=Settings(report_seconds=0.2)) as consumer:
        got = await take(consumer, 20)
        assert {message.timestamp for message in got} == {-1}
        await consumer.getmany(timeout_ms=0)
        assert consumer._client.link.agent is not None
        metering = consumer._client.services.metering
        await eventually(lambda: any(p.position == 20 for p in metering.snapshot.partitions), "it is measured")
        (seen,) = metering.snapshot.partitions
        assert seen.lag_seconds < 60.0, "the epoch is not when it was sent"
        report = metering.meter.report(0.0, "m", 1, 1_000)
        assert sum(report.late.values()) == 0


async def test_stop_in_the_middle(quick_kafka: Cluster) -> None:
    """Who waits for a record is told; the iteration ends; the record in hand is not done; stopping twice is fine."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    consumer = make(quick_kafka, topic, group=group)
    await consumer.start()
    waiting = asyncio.create_task(consumer.getone())
    many = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
    await asyncio.sleep(0)
    await asyncio.gather(consumer.stop(), consumer.stop())
    with pytest.raises(ConsumerStoppedError):
        await asyncio.wait_for(waiting, WAIT_SECONDS)
    assert await asyncio.wait_for(many, WAIT_SECONDS) == {}
    with pytest.raises(ConsumerStoppedError):
        await consumer.getone()
    with pytest.raises(ConsumerStoppedError):
        await consumer.getmany()
    with pytest.raises(ConsumerStoppedError):
        aiter(consumer)
    await consumer.stop()


async def test_iteration_ends_at_stop(quick_kafka: Cluster) -> None:
    """Stopped by another task, it ends after the record in hand, which is done then."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(5))
    seen = []
    async with started(quick_kafka, topic, group=group) as consumer:
        async for message in consumer:
            seen.append(message.value.decode())
            if len(seen) == 3:
                stopping = asyncio.create_task(consumer.stop())
                await eventually(lambda: consumer._client.link.buffer.closing, "it stops")
        await stopping
    assert seen == numbers(3)
    assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 3}


async def test_stop_by_another_task_waits_for_the_record_in_hand(quick_kafka: Cluster) -> None:
    """A shutdown hook stops the consumer while a task works on a record: no other member is handed it meanwhile."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(3))
    working, finish = asyncio.Event(), asyncio.Event()

    async def work(consumer: Consumer) -> None:
        async for _ in consumer:
            working.set()
            await finish.wait()

    async with started(quick_kafka, topic, group=group) as one:
        task = asyncio.create_task(work(one))
        await asyncio.wait_for(working.wait(), WAIT_SECONDS)
        async with started(quick_kafka, topic, group=group) as two:
            stopping = asyncio.create_task(one.stop())
            taking = asyncio.create_task(two.getone())
            # A stop without the wait takes a third of a second, and so does the other member's first record.
            await asyncio.wait([stopping, taking], timeout=2.0, return_when=asyncio.FIRST_COMPLETED)
            assert (stopping.done(), taking.done()) == (False, False)
            finish.set()
            await asyncio.wait_for(asyncio.gather(task, stopping), WAIT_SECONDS)
            assert (await asyncio.wait_for(taking, WAIT_SECONDS)).value == b"1"


async def test_stop_waits_no_longer_than_the_drain_time(quick_kafka: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(3))
    working, settings = asyncio.Event(), Settings(http="off", drain_seconds=0.5)

    async def work(consumer: Consumer) -> None:
        async for _ in consumer:
            working.set()
            await asyncio.Event().wait()

    async with started(quick_kafka, topic, group=group, settings=settings) as one:
        task = asyncio.create_task(work(one))
        await asyncio.wait_for(working.wait(), WAIT_SECONDS)
        await asyncio.wait_for(one.stop(), WAIT_SECONDS)
        services = one._client.services  # type: ignore[union-attr]
        assert services._errors["left_in_hand"] == 1
        assert f"{topic}-0 at offset 0" in caplog.text
        task.cancel()
    async with started(quick_kafka, topic, group=group) as two:
        assert (await asyncio.wait_for(two.getone(), WAIT_SECONDS)).value == b"0"


async def test_getmany_without_waiting_ends_at_sigterm(quick_kafka: Cluster) -> None:
    """A loop of getmany() that never waits is told to end too, and what it had in hand is done."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(3))
    async with started(quick_kafka, topic, group=group) as consumer:
        await eventually(lambda: consumer.highwater(TopicPartition(topic, 0)), "fetched")
        got = 0
        while got < 3:
            got += sum(map(len, (await consumer.getmany(timeout_ms=100)).values()))
        consumer._client.end_iteration(False)
        with pytest.raises(ConsumerStoppedError):
            await consumer.getmany()
    assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 3}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_dead_agent_is_told_and_can_be_stopped(quick_kafka: Cluster) -> None:
    """The agent's thread dies: the next call raises, every time; stop() returns."""
    topic = quick_kafka.create_topic(partitions=1)
    consumer = make(quick_kafka, topic, group=new_group())
    await consumer.start()
    assert consumer._client.link.thread is not None
    consumer._client.link.thread.post(sys.exit)
    for _ in range(2):
        with pytest.raises(KafkaError):
            await asyncio.wait_for(consumer.getone(), WAIT_SECONDS)
    await asyncio.wait_for(consumer.stop(), WAIT_SECONDS)


async def test_an_agent_that_failed_leaves_its_partitions_to_the_others(quick_kafka: Cluster) -> None:
    """At once: it went on heartbeating, so that not even the session's end would have freed them."""
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    both = {TopicPartition(topic, index) for index in range(2)}
    session: dict[str, Any] = {"group": group, "session_timeout_ms": 30_000, "heartbeat_interval_ms": 1_000}
    async with started(quick_kafka, topic, **session) as one, started(quick_kafka, topic, **session) as two:
        await eventually(lambda: one.assignment() | two.assignment() == both, "both are in the group")
        link = one._client.link  # type: ignore[union-attr]
        link.post(link.need_agent().raise_to_user, KafkaError("broken"))
        await eventually(lambda: two.assignment() == both, "the other has all", timeout_seconds=10.0)
        with pytest.raises(KafkaError, match="broken"):
            await one.getone()
        await asyncio.wait_for(one.stop(), 10.0)


async def test_a_failed_membership_is_raised_at_each_call(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    async with started(quick_kafka, topic, group=new_group()) as consumer:
        assert consumer._client.link.agent is not None
        assert consumer._client.link.thread is not None
        consumer._client.link.thread.post(consumer._client.link.agent.raise_to_user, KafkaError("membership broke"))
        for _ in range(2):
            with pytest.raises(KafkaError, match="membership broke"):
                await asyncio.wait_for(consumer.getone(), WAIT_SECONDS)
        with pytest.raises(KafkaError, match="membership broke"):
            await asyncio.wait_for(consumer.getmany(timeout_ms=100), WAIT_SECONDS)


# -- refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        ({"group_id": None}, "AIOKafkaConsumer"),
        ({"partition_assignment_strategy": ()}, "LOADTRIM_ENABLED=false"),
        ({"group_instance_id": "me"}, "Leave it out"),
        ({"auto_offset_reset": "somewhere"}, "earliest, latest and none"),
        ({"max_poll_records": 0}, "max_poll_records"),
    ],
)
async def test_refused_arguments_say_what_to_do_instead(options: dict[str, Any], instead: str) -> None:
    with pytest.raises(ValueError, match=instead):
        Consumer("topic", settings=Settings(http="off"), **{"group_id": "g", **options})


async def test_assign_is_refused_and_unknown_arguments_are_named(quick_kafka: Cluster) -> None:
    consumer = make(quick_kafka, "topic", group=new_group())
    with pytest.raises(IllegalStateError, match="subscribe"):
        consumer.assign([TopicPartition("topic", 0)])
    with pytest.raises(TypeError, match="bootstrap"):
        Consumer("topic", group_id="g", bootstrap="localhost")


# -- positions and commits ---------------------------------------------------------------------------------------


async def test_positions_seek_pause_and_queries(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=2)
    await send(quick_kafka, topic, numbers(10), partition=0)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with started(quick_kafka, topic, group=new_group()) as consumer:
        assert consumer.assignment() == {first, second}
        assert consumer.subscription() == frozenset({topic})
        assert topic in await consumer.topics()
        assert consumer.partitions_for_topic(topic) == {0, 1}
        await take(consumer, 4)
        assert await consumer.position(first) == 4
        consumer.seek(first, 8)
        assert values(await take(consumer, 2)) == ["8", "9"]
        await consumer.seek_to_beginning(first)
        assert values(await take(consumer, 1)) == ["0"]
        await consumer.seek_to_end()
        await send(quick_kafka, topic, ["new"], partition=0)
        assert values(await take(consumer, 1)) == ["new"]
        await consumer.commit({first: 5})
        assert await consumer.seek_to_committed(first) == {first: 5}
        assert values(await take(consumer, 1)) == ["5"]
        assert await consumer.beginning_offsets([first]) == {first: 0}
        assert await consumer.end_offsets([first]) == {first: 11}
        assert consumer.highwater(first) == 11
        with pytest.raises(IllegalStateError):
            consumer.seek(TopicPartition("other", 0), 1)


async def test_a_paused_partition_stays_owned(quick_kafka: Cluster) -> None:
    """Paused by the user: owned, not handed out, not planned for; resumed it goes on where it was."""
    topic = quick_kafka.create_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with started(quick_kafka, topic, group=new_group(), settings=Settings(report_seconds=0.2)) as consumer:
        consumer.pause(first)
        await send(quick_kafka, topic, numbers(3, "p"), partition=0)
        await send(quick_kafka, topic, numbers(3), partition=1)
        assert values(await take(consumer, 3)) == numbers(3)
        assert consumer.paused() == {first}
        assert consumer.assignment() == {first, second}
        states = consumer._client.services.metering
        await eventually(
            lambda: {p.partition.partition: p.state.value for p in states.snapshot.partitions}.get(0) == "paused",
            "its state is told",
        )
        consumer.resume(first)
        assert values(await take(consumer, 3)) == numbers(3, "p")
        assert consumer.paused() == set()


async def test_manual_commits_count_and_nothing_else(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(10))
    at = TopicPartition(topic, 0)
    async with started(quick_kafka, topic, group=group, enable_auto_commit=False) as consumer:
        await take(consumer, 3)
        await consumer.commit()
        assert await consumer.committed(at) == 3
        await take(consumer, 4)
        await consumer.commit({at: (5, "a note")})
        await take(consumer, 1)
        with pytest.raises(IllegalStateError):
            await consumer.commit({TopicPartition(topic, 7): 1})
    assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 5}
    async with started(quick_kafka, topic, group=group, enable_auto_commit=False) as consumer:
        assert values(await take(consumer, 1)) == ["5"]


async def test_commit_in_on_partitions_revoked_counts(quick_kafka: Cluster) -> None:
    """The handoff starts at the last acknowledged commit as it stands when the listener has returned."""
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    await send(quick_kafka, topic, numbers(20), partition=None)
    first = make(quick_kafka, group=group, enable_auto_commit=False)

    async def commit(revoked: set[TopicPartition]) -> None:
        await first.commit()

    listener = Recorder(revoked=commit)
    first.subscribe([topic], listener=listener)
    await first.start()
    handled: list[str] = []

    async def consume() -> None:
        async for message in first:
            value = message.value.decode()
            handled.append(value)

    consuming = asyncio.create_task(consume())
    await eventually(lambda: len(handled) == 20, "all was handed out and nothing committed")
    async with started(quick_kafka, topic, group=group, enable_auto_commit=False) as second:
        await first.stop()
        await consuming
        await eventually(lambda: len(second.assignment()) == 2, "the other has all")
        await send(quick_kafka, topic, ["last"], partition=0)
        assert values(await take(second, 1)) == ["last"], "nothing that was committed is handed out again"
    assert listener.held() == set()


@pytest.mark.parametrize(("reset", "expected"), [("earliest", "0"), ("latest", "new")])
async def test_first_position_is_committed_before_anything_is_handed_out(
    quick_kafka: Cluster, reset: str, expected: str
) -> None:
    """Rule 4, also with commits by hand: who takes over after a death starts where this one did."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(5))
    options = {"auto_offset_reset": reset, "enable_auto_commit": False}
    async with started(quick_kafka, topic, group=group, **options):
        start = 0 if reset == "earliest" else 5
        assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): start}
    await send(quick_kafka, topic, ["new"])
    async with started(quick_kafka, topic, group=group, **options) as consumer:
        assert values(await take(consumer, 1)) == [expected]


async def test_auto_commit_commits_while_running(quick_kafka: Cluster) -> None:
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(10))
    at = TopicPartition(topic, 0)
    async with started(quick_kafka, topic, group=group, auto_commit_interval_ms=50) as consumer:
        await take(consumer, 6)

        async def five() -> bool:
            return await consumer.committed(at) == 5

        await eventually(five, "what is done is committed, and the record in hand is not")


# -- subscriptions -----------------------------------------------------------------------------------------------


async def test_several_topics_and_mixed_subscriptions(quick_kafka: Cluster) -> None:
    """Two members of one group that subscribe different topics: nobody is given what it did not ask for."""
    one, two, both = (quick_kafka.create_topic(partitions=2) for _ in range(3))
    group = new_group()
    async with started(quick_kafka, one, both, group=group) as first:
        assert {at.topic for at in first.assignment()} == {one, both}
        async with started(quick_kafka, two, both, group=group) as second:
            for topic in (one, two, both):
                await send(quick_kafka, topic, numbers(20, topic), partition=None)
            async with drain(first, second) as counts:
                await eventually(lambda: len(counts) == 60, "everything arrives")
            assert set(counts.values()) == {1}
            assert two not in {at.topic for at in first.assignment()}
            assert one not in {at.topic for at in second.assignment()}
        await eventually(lambda: {at.topic for at in first.assignment()} == {one, both}, "both is back")


async def test_pattern_subscription_and_topics_that_appear(quick_kafka: Cluster) -> None:
    """A pattern takes new topics in as they appear, and never control or baseline topics, whatever their names."""
    prefix = f"pat-{new_group()}"
    quick_kafka.create_topic(partitions=1, name=f"{prefix}-a")
    group = new_group()
    own = f"{prefix}-control"
    settings = Settings(http="off", control_topic=own, baseline_topic=f"{prefix}-baselines")
    quick_kafka.create_topic(partitions=1, name=f"{prefix}-baselines")
    consumer = make(quick_kafka, group=group, settings=settings)
    listener = Recorder()
    consumer.subscribe(pattern=f"^({prefix}|__loadtrim).*", listener=listener)
    await consumer.start()
    try:
        assert consumer.subscription() == {f"{prefix}-a"}
        quick_kafka.create_topic(partitions=2, name=f"{prefix}-b")
        await send(quick_kafka, f"{prefix}-b", ["hello"])
        assert values(await take(consumer, 1)) == ["hello"]
        await eventually(lambda: len(listener.held()) == 3, "each partition came once")
        assert {at.topic for at in consumer.assignment()} == {f"{prefix}-a", f"{prefix}-b"}
    finally:
        await consumer.stop()
    assert listener.held() == set()


async def test_topic_enlarged_while_running(quick_kafka: Cluster) -> None:
    """New partitions are taken in; what was there goes on."""
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    listener, other = Recorder(), Recorder()
    first = make(quick_kafka, group=group)
    first.subscribe([topic], listener=listener)
    second = make(quick_kafka, group=group)
    second.subscribe([topic], listener=other)
    async with first, second, drain(first, second) as counts:
        await send(quick_kafka, topic, numbers(10))
        admin = AIOKafkaAdminClient(bootstrap_servers=quick_kafka.bootstrap)
        await admin.start()
        try:
            await admin.create_partitions({topic: NewPartitions(4)})
        finally:
            await admin.close()
        await eventually(lambda: len(first.assignment() | second.assignment()) == 4, "the new ones are owned")
        await send(quick_kafka, topic, numbers(40, "n"), partition=None)
        await eventually(lambda: len(counts) == 50, "everything arrives")
        assert set(counts.values()) == {1}
        await eventually(lambda: len(listener.held()) + len(other.held()) == 4, "each came once")


async def test_subscribe_again_and_unsubscribe_while_running(quick_kafka: Cluster) -> None:
    one, two = quick_kafka.create_topic(partitions=1), quick_kafka.create_topic(partitions=1)
    listener = Recorder()
    consumer = make(quick_kafka, group=new_group())
    consumer.subscribe([one], listener=listener)
    async with consumer:
        await send(quick_kafka, one, ["1"])
        await send(quick_kafka, two, ["2"])
        assert values(await take(consumer, 1)) == ["1"]
        consumer.subscribe([two], listener=listener)
        assert values(await take(consumer, 1)) == ["2"]
        await eventually(lambda: listener.held() == {TopicPartition(two, 0)}, "one went, the other came")
        assert consumer.subscription() == {two}
        consumer.unsubscribe()
        assert await consumer.getmany(timeout_ms=0) == {}, "what is in hand is done, and nothing comes any more"
        await eventually(lambda: listener.held() == set() == consumer.assignment(), "nothing is held")


async def test_unsubscribe_with_a_record_in_hand(quick_kafka: Cluster) -> None:
    """It is done at the next call, and only then handed over: nobody else is handed it."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(2))
    async with started(quick_kafka, topic, group=group) as one, started(quick_kafka, topic, group=group) as two:
        first, other = (one, two) if one.assignment() else (two, one)
        assert values(await take(first, 1)) == ["0"]
        first.unsubscribe()
        assert await first.getmany(timeout_ms=0) == {}
        assert values(await take(other, 1)) == ["1"]


# -- the rebalance listener --------------------------------------------------------------------------------------


async def test_seek_in_on_partitions_assigned(quick_kafka: Cluster) -> None:
    """The listener returns before the first record is handed out, so a seek there decides which one that is."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(10))
    consumer = make(quick_kafka, group=group)

    async def seek(assigned: set[TopicPartition]) -> None:
        await asyncio.sleep(0.1)
        for at in assigned:
            consumer.seek(at, 7)

    consumer.subscribe([topic], listener=Recorder(assigned=seek))
    async with consumer:
        assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 7}
        assert values(await take(consumer, 3)) == ["7", "8", "9"]


async def test_listener_hears_only_of_what_comes_and_goes(quick_kafka: Cluster) -> None:
    """Members come and go; what stays is never mentioned, and a listener that raises stops nothing."""
    topic, group = quick_kafka.create_topic(partitions=4), new_group()

    def fail(partitions: set[TopicPartition]) -> None:
        raise RuntimeError("user code")

    stays, comes = Recorder(), Recorder(assigned=fail, revoked=fail)
    first = make(quick_kafka, group=group)
    first.subscribe([topic], listener=stays)
    async with first:
        assert stays.calls == [("assigned", frozenset(TopicPartition(topic, p) for p in range(4)))]
        second = make(quick_kafka, group=group)
        second.subscribe([topic], listener=comes)
        async with second, drain(first, second) as counts:
            await send(quick_kafka, topic, numbers(200), partition=None)
            await eventually(lambda: len(counts) == 200, "everything arrives")
            await eventually(lambda: (len(stays.held()), len(comes.held())) == (2, 2), "each has its half")
            assert set(counts.values()) == {1}
        await eventually(lambda: len(stays.held()) == 4, "all is back")
        assert comes.held() == set()
        assert second._client.link.agent is not None
        # By what the other one heard, for a listener that hears of all would leave nothing that it never lost.
        kept = set(range(4)) - {at.partition for _, some in comes.calls for at in some}
        assert len(kept) == 2
        named = [at.partition for _, some in stays.calls for at in some]
        assert all(named.count(partition) == 1 for partition in kept)


# -- one process, switched off, shadow ---------------------------------------------------------------------------


async def test_two_consumers_in_one_process(quick_kafka: Cluster) -> None:
    """Of one group, on one HTTP server and in one registry: both are shown, records are shared."""
    topic, group = quick_kafka.create_topic(partitions=4), new_group()
    settings = Settings(http="127.0.0.1:0")
    first = make(quick_kafka, topic, group=group, settings=settings, client_id="one")
    second = make(quick_kafka, topic, group=group, settings=settings, client_id="two")
    async with first, second:
        url = first._client.services._registration.url
        assert url == second._client.services._registration.url
        await send(quick_kafka, topic, numbers(100), partition=None)
        async with drain(first, second) as counts:
            await eventually(lambda: len(counts) == 100, "everything arrives")
        assert set(counts.values()) == {1}
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /status HTTP/1.0\r\n\r\n")
        found = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
        writer.close()
        agents = found["agents"] if isinstance(found, dict) else found
        assert sorted(agent["client_id"] for agent in agents) == ["one", "two"]


async def test_disabled_is_a_plain_aiokafka_consumer(quick_kafka: Cluster) -> None:
    """LOADTRIM_ENABLED=false: the same code on AIOKafkaConsumer, arguments that loadtrim refuses included."""
    topic, group = quick_kafka.create_topic(partitions=2), new_group()
    await send(quick_kafka, topic, numbers(10), partition=None)
    listener = Recorder()
    consumer = make(quick_kafka, group=group, settings=Settings(enabled=False), group_instance_id="me")
    consumer.subscribe([topic], listener=listener)
    async with consumer:
        assert isinstance(consumer._client, AIOKafkaConsumer)
        assert len(await take(consumer, 9)) == 9
        assert sum(map(len, (await consumer.getmany(timeout_ms=5_000)).values())) == 1
        first = TopicPartition(topic, 0)
        assert await consumer.position(first) == 5
        await consumer.commit()
        assert await consumer.committed(first) == 5
        consumer.pause(first)
        assert consumer.paused() == {first}
        consumer.resume(first)
        await consumer.seek_to_beginning(first)
        seen = []
        async for message in consumer:
            seen.append(message.value.decode())
            if len(seen) == 5:
                break
        assert seen == ["0", "2", "4", "6", "8"]
        assert consumer.subscription() == {topic}
    assert not any(topic.startswith("__loadtrim." + group) for topic in await topics(quick_kafka))


async def test_disabled_ends_at_sigterm_too(quick_kafka: Cluster) -> None:
    """The same code: the iteration ends after the record in hand, a wait ends at once, nothing is skipped."""
    topic, group = quick_kafka.create_topic(partitions=1), new_group()
    await send(quick_kafka, topic, numbers(5))
    plain = Settings(enabled=False)
    seen = []
    async with started(quick_kafka, topic, group=group, settings=plain) as consumer:
        async for message in consumer:
            seen.append(message.value.decode())
            if len(seen) == 3:
                consumer._client.end_iteration(False)
    assert seen == numbers(3)
    async with started(quick_kafka, topic, group=group, settings=plain) as consumer:
        assert values(await take(consumer, 2)) == ["3", "4"]
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0)
        consumer._client.end_iteration(False)
        with pytest.raises(ConsumerStoppedError):
            await asyncio.wait_for(waiting, WAIT_SECONDS)
        with pytest.raises(ConsumerStoppedError):
            await consumer.getmany()
    assert await committed_offsets(quick_kafka.bootstrap, group) == {(topic, 0): 5}


async def test_disabled_without_a_group(quick_kafka: Cluster) -> None:
    topic = quick_kafka.create_topic(partitions=1)
    await send(quick_kafka, topic, ["1"])
    consumer = Consumer(
        bootstrap_servers=quick_kafka.bootstrap, settings=Settings(enabled=False), auto_offset_reset="earliest"
    )
    async with consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert values(await take(consumer, 1)) == ["1"]


async def topics(kafka: Cluster) -> set[str]:
    async with AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap) as plain:
        return set(await plain.topics())
