"""What user code may do to its subscription between two calls.

It has nothing in hand then but what it has gathered.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiokafka.errors import IllegalStateError
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.partition import Partition

if TYPE_CHECKING:
    from .world import Member

__all__ = ["change_its_mind"]

MIND_CHANGES_SHARE = 0.15
TOPICS_SHARE = 0.5
"""Of the calls after which user code could change its mind, with one topic and with several. Chosen: some ten times a
member and run."""
AT_ONCE_MAX = 3
"""Changes one after the other, without a call between them, where there are several topics. Chosen."""
BACK_MAX = 5
"""Records that user code goes back by. Chosen."""


async def change_its_mind(member: Member) -> None:
    """Do one of what user code may do to its subscription, or nothing. What it pauses or leaves it takes up in the end.

    With several topics it does up to :data:`AT_ONCE_MAX` of them, and subscribes some of the topics.
    """
    consumer, options = member.consumer, member.world.options
    if not member.world.faulty:
        consumer.resume(*consumer.paused())
        if set(member.topics) != set(options.topics):
            await _subscribe_topics(member, options.topics)
    elif len(options.topics) == 1:
        await _change(member, CHANGES, share=MIND_CHANGES_SHARE, at_once=1)
    else:
        await _change(member, CHANGES_OF_TOPICS, share=TOPICS_SHARE, at_once=AT_ONCE_MAX)


async def _change(member: Member, changes: tuple[Change, ...], *, share: float, at_once: int) -> None:
    if member.rng.random() < share:
        member.remembers = member.consumer.assignment()
        for _ in range(member.rng.randint(1, at_once) if at_once > 1 else 1):
            with contextlib.suppress(IllegalStateError):  # it has gone meanwhile
                await member.rng.choice(changes)(member)


async def _subscribe_again(member: Member) -> None:
    """Subscribe what is subscribed. A listener of aiokafka's form counts on it that all begins anew."""
    if member.world.options.gathers == "plain":
        member.forget()
    member.subscribe()


async def _subscribe_anew(member: Member) -> None:
    member.consumer.unsubscribe()
    member.forget()
    await asyncio.sleep(member.rng.choice((0.0, 0.0, 0.01, 0.3)))
    member.subscribe()


async def _subscribe_others(member: Member) -> None:
    """Subscribe some of the topics, drawn."""
    topics = member.world.options.topics
    await _subscribe_topics(member, tuple(member.rng.sample(topics, member.rng.randint(1, len(topics)))))


async def _subscribe_topics(member: Member, topics: tuple[str, ...]) -> None:
    """Subscribe these topics, and forget what was gathered of what is left, or of all as :func:`_subscribe_again`."""
    left = None if member.world.options.gathers == "plain" else _held(member, set(member.topics) - set(topics))
    member.forget(left)
    member.topics = topics
    member.subscribe()


async def _pause(member: Member) -> None:
    held = sorted(member.consumer.assignment())
    member.consumer.pause(*member.rng.sample(held, member.rng.randint(0, len(held))))


async def _resume(member: Member) -> None:
    member.consumer.resume(*member.consumer.paused())


async def _go_back(member: Member) -> None:
    """Hand out from the last commit on what is held, and forget what of it was gathered."""
    for at in sorted(member.consumer.assignment()):
        offset = (await member.consumer.seek_to_committed(at))[at]
        if offset is not None:  # else the group has lost it
            member.forget((at,))
            member.world.journal.sought(Partition(*at), offset)


async def _seek_back(member: Member) -> None:
    """Hand out from some records before the last commit on: what was gathered behind it is forgotten."""
    for at in _some(member):
        position, committed = await member.consumer.position(at), await member.consumer.committed(at)
        offset = max(0, min(position, committed or 0) - member.rng.randint(0, BACK_MAX))
        member.consumer.seek(at, offset)
        _sought(member, at, offset)


async def _seek_to_beginning(member: Member) -> None:
    for at in _some(member):
        await member.consumer.seek_to_beginning(at)
        _sought(member, at, 0)


async def _seek_to_end(member: Member) -> None:
    """Skip what there is: nobody has to do it any more."""
    for at in _some(member):
        member.forget((at,))
        try:
            await member.consumer.seek_to_end(at)
        finally:
            if at.topic in member.topics:
                member.world.journal.skipped(Partition(*at))


def _sought(member: Member, at: TopicPartition, offset: int) -> None:
    """Note a seek: of a topic that is not subscribed any more it means nothing."""
    member.forget((at,))
    if at.topic in member.topics:
        member.world.journal.sought(Partition(*at), offset)


def _some(member: Member) -> list[TopicPartition]:
    """Return some of what it holds, or held when it began to change its mind."""
    held = sorted(member.consumer.assignment() | member.remembers)
    return member.rng.sample(held, member.rng.randint(0, len(held)))


def _held(member: Member, topics: set[str]) -> set[TopicPartition]:
    """Return the partitions of these topics of which it has gathered something."""
    records = member.gathered.records
    return {TopicPartition(record.topic, record.partition) for record in records if record.topic in topics}


Change = Callable[["Member"], Awaitable[None]]
CHANGES: tuple[Change, ...] = (_subscribe_again, _subscribe_anew, _pause, _resume, _go_back)
CHANGES_OF_TOPICS: tuple[Change, ...] = (
    *CHANGES, _subscribe_others, _subscribe_others, _seek_back, _seek_to_beginning, _seek_to_end,
)  # fmt: skip
