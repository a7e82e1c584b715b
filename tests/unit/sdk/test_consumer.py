"""The facade: both implementations have what it calls, and what needs no broker is decided without one."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from typing import Any, Self, get_type_hints

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import ConsumerStoppedError, IllegalStateError
from aiokafka.structs import TopicPartition
from prometheus_client import CollectorRegistry

from loadtrim import Consumer, Settings
from loadtrim.managed import ManagedConsumer
from loadtrim.plain import PlainConsumer

PUBLIC = sorted(name for name, member in vars(Consumer).items() if not name.startswith("_") and callable(member))
AT = TopicPartition("t", 0)


def make(**settings: Any) -> Consumer:
    return Consumer(
        "t", group_id="g", settings=Settings(http="off", **settings), handle_signals=False, registry=CollectorRegistry()
    )


@pytest.mark.parametrize("enabled", [True, False], ids=["managed", "plain"])
# All but stop, which takes ``at_once`` here.
@pytest.mark.parametrize("name", sorted(set(PUBLIC) - {"stop"}))
async def test_each_call_is_answered_by_both(name: str, enabled: bool) -> None:
    """The same kind of call: a coroutine function where ``Consumer``'s is one, with the same parameters."""
    consumer = make(enabled=enabled)
    parts: list[Any] = [consumer._client, consumer._positions, consumer._queries]
    call = next(getattr(part, name) for part in parts if hasattr(part, name))
    mine = getattr(consumer, name)
    assert asyncio.iscoroutinefunction(call) == asyncio.iscoroutinefunction(mine)
    assert list(inspect.signature(call).parameters) == list(inspect.signature(mine).parameters)


CALLS = sorted(name for name, member in vars(AIOKafkaConsumer).items() if not name.startswith("_") and callable(member))
BY_HAND = ["__aiter__", "__anext__", "__aenter__"]
"""All but ``__aexit__``, whose parameters have other names and come from the interpreter."""


@pytest.mark.parametrize("name", [*CALLS, *BY_HAND])
def test_it_has_aiokafkas_methods_with_their_parameters(name: str) -> None:
    """Names, order, defaults, and whether the result is to be awaited."""
    theirs, mine = getattr(AIOKafkaConsumer, name), getattr(Consumer, name)
    told = [
        [(each.name, each.kind, each.default) for each in inspect.signature(call).parameters.values()]
        for call in (theirs, mine)
    ]
    assert told[0] == told[1]
    # An iteration may answer without a coroutine of its own.
    assert asyncio.iscoroutinefunction(theirs) == asyncio.iscoroutinefunction(mine) or name == "__anext__"


async def test_the_settings_choose_the_implementation() -> None:
    assert isinstance(make()._client, ManagedConsumer)
    plain = make(enabled=False)._client
    assert isinstance(plain, PlainConsumer)
    assert isinstance(plain, AIOKafkaConsumer)


async def test_a_managed_consumer_that_is_not_started() -> None:
    consumer = make()
    assert consumer.subscription() == {"t"}
    assert consumer.assignment() == set()
    assert consumer.paused() == set()
    assert consumer.partitions_for_topic("t") is None
    for refused in (consumer.getone, consumer.getmany):
        with pytest.raises(IllegalStateError, match=r"not started: await start\(\) first"):
            await refused()
    with pytest.raises(IllegalStateError, match="not started"):  # and no end, after which none could begin
        [record async for record in consumer]
    with pytest.raises(ConsumerStoppedError):
        await consumer.topics()
    for call in (consumer.highwater, consumer.last_stable_offset):
        with pytest.raises(IllegalStateError, match="is not assigned"):
            call(AT)
    with pytest.raises(IllegalStateError, match="not started"):
        await consumer.committed(AT)
    with pytest.raises(IllegalStateError, match="not started"):  # it returned as if all were committed
        await consumer.commit()
    for seek in (consumer.seek_to_beginning, consumer.seek_to_end, consumer.seek_to_committed):
        with pytest.raises(AssertionError, match="No partitions are currently assigned"):
            await seek()
    with pytest.raises(IllegalStateError, match=r"assign\(\) is refused"):
        consumer.assign([AT])
    with pytest.raises(TypeError, match="TopicPartition"):
        consumer.pause("t")  # type: ignore[arg-type]
    consumer.unsubscribe()
    assert consumer.subscription() == set()
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError):
        consumer.__aiter__()


@pytest.mark.parametrize("asked", ["ab", ("t", 0), "t"])
async def test_records_of_what_is_no_partition_are_refused(asked: Any) -> None:
    """A name of two letters was taken for a partition, and its records were waited for without end."""
    consumer = make()
    for refused in (consumer.getone, consumer.getmany):
        with pytest.raises(TypeError, match=r"is no partition.*TopicPartition\(topic, number\)"):
            await refused(AT, asked)


async def test_one_that_never_started_is_dropped_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        consumer = make()
        del consumer


@pytest.mark.parametrize("enabled", [True, False], ids=["managed", "plain"])
async def test_what_frameworks_read_in_their_logs_is_there_before_the_start(enabled: bool) -> None:
    """FastStream's logging listener reads these names before it calls the user's listener."""
    consumer = make(enabled=enabled)
    consumer.subscribe(["a", "b"])
    assert consumer._group_id == "g"
    assert consumer._subscription.topics == frozenset({"a", "b"})
    assert consumer._coordinator.member_id == ""
    assert consumer._loop is asyncio.get_running_loop()


async def test_a_subclass_is_itself_within_its_block() -> None:
    """For a type checker it was a plain ``Consumer`` there, without what the subclass has."""
    assert get_type_hints(Consumer.__aenter__)["return"] is Self
