"""``python endings.py PROGRAM BOOTSTRAP TOPIC GROUP``: loops around a consumer as people write them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
import time
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import CommitFailedError, ConsumerStoppedError, IllegalStateError

from loadtrim import Consumer, IncrementalRebalanceListener
from loadtrim.testing.cluster import create_topic
from pages.blocks import blocks

BOOTSTRAP, TOPIC, GROUP = sys.argv[2:5]


def consumer(group: str = GROUP, **options: Any) -> Consumer:
    return Consumer(TOPIC, bootstrap_servers=BOOTSTRAP, group_id=group, auto_offset_reset="earliest", **options)


def got(message: object) -> None:
    print("got", flush=True)


async def plain() -> None:
    async with consumer() as records:
        async for message in records:
            got(message)


async def two_consumers() -> None:
    async def consume(group: str) -> None:
        async with consumer(group) as records:
            async for message in records:
                got(message)

    await asyncio.gather(consume(GROUP), consume(GROUP + "-2"))


async def side_by_side() -> None:
    """The record in hand of each consumer is done once the other one has been told to end."""
    told = (asyncio.Event(), asyncio.Event())

    async def until_told(records: Consumer, heard: asyncio.Event) -> None:
        with suppress(ConsumerStoppedError):
            await records.getone()
        heard.set()

    async def consume(number: int, group: str) -> None:
        async with consumer(group) as records:
            message = await records.getone()
            async with records.work(message):
                waiting = asyncio.create_task(until_told(records, told[number]))
                got(message)
                await told[1 - number].wait()
            await waiting

    await asyncio.gather(consume(0, GROUP), consume(1, GROUP + "-2"))


async def iterated_again_and_again() -> None:
    async with consumer() as records:
        while True:
            async for message in records:
                got(message)


async def whatever_is_raised() -> None:
    """It never lets the event loop turn, once there is nothing more."""
    async with consumer() as records:
        while True:
            try:
                for messages in (await records.getmany(timeout_ms=100)).values():
                    got(messages)
            except Exception:
                pass


async def handler_that_never_returns() -> None:
    async with consumer() as records:
        async for message in records:
            got(message)
            await asyncio.Event().wait()


async def handler_that_blocks_the_loop() -> None:
    async with consumer() as records:
        async for message in records:
            got(message)
            while True:
                time.sleep(0.01)  # noqa: ASYNC251 - that is the case


class EndsItself(IncrementalRebalanceListener):
    """The first call comes while the start is under way: it returns when the call has begun."""

    def on_partitions_assigned(self, assigned: object) -> None:
        got(assigned)
        os.kill(os.getpid(), signal.SIGTERM)

    def on_partitions_revoked(self, revoked: object) -> None: ...


async def starting() -> None:
    records = Consumer(bootstrap_servers=BOOTSTRAP, group_id=GROUP)
    records.subscribe([TOPIC], listener=EndsItself())
    try:
        await records.start()
    except ConsumerStoppedError:
        print("not started", flush=True)


async def starting_another() -> None:
    async with consumer(GROUP + "-2"):
        await starting()


async def stopped_in_a_task() -> None:
    """A handler of its own stops the consumer; the iteration ends at once, and the program with it."""
    records = consumer()
    await records.start()
    stops: list[asyncio.Task[None]] = []
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, lambda: stops.append(asyncio.create_task(records.stop()))
    )
    async for message in records:
        got(message)


async def beside_another_task() -> None:
    await asyncio.gather(plain(), asyncio.Event().wait())


async def started_again_and_again() -> None:
    while True:
        await plain()


async def told_by_the_error() -> None:
    async with consumer() as records:
        try:
            while True:
                for messages in (await records.getmany(timeout_ms=100)).values():
                    got(messages)
        except ConsumerStoppedError:
            print("stopped", flush=True)


async def exactly_once() -> None:
    """The loop of docs/compatibility.md as it stands there."""

    def transform(record: Any) -> Any:
        got(record)
        return record.value

    (loop,) = [block.text for block in blocks() if block.section == "Exactly-once" and block.language == "python"]
    names: dict[str, Any] = {
        "consumer": consumer(enable_auto_commit=False),
        "producer": AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=GROUP),
        "transform": transform,
        "suppress": suppress,
        "CommitFailedError": CommitFailedError,
        "IllegalStateError": IllegalStateError,
        "ConsumerStoppedError": ConsumerStoppedError,
    }
    output = await create_topic(BOOTSTRAP)
    loop = loop.replace('"output"', f'"{output}"')
    exec("async def loop():\n" + textwrap.indent(loop, "    "), names)
    await names["loop"]()


async def own_handler_later() -> None:
    """It handles SIGTERM by itself since the consumer came, and goes on with something else after it."""

    def theirs(number: int, frame: object) -> None:
        print("theirs", flush=True)
        sys.exit(0)

    async with consumer() as records:
        signal.signal(signal.SIGTERM, theirs)
        await records.getone()


asyncio.run(globals()[sys.argv[1]]())
if sys.argv[1] == "own_handler_later":
    got(None)
    time.sleep(3600)
