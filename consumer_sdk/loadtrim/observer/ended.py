"""This tells a group that members are gone, where a parent has reaped their process and it is certain.

The coordinator notices a process that was killed by the session timeout, and its partitions stand still until then. A
process that is gone has no lease that anybody must respect, so its membership may be ended at once. A process that is
only believed to be gone keeps it (docs/decisions/group-protocol.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError, UnknownMemberIdError, for_code
from aiokafka.protocol.group import LeaveGroupRequest

from loadtrim.errors import UsageError
from loadtrim_agent.common.host import process_id, start_of
from loadtrim_agent.wire.codec import encode
from loadtrim_agent.wire.envelope import COORDINATION
from loadtrim_agent.wire.ownership_records import LeftRecord

from .connection import Connection
from .control_topic import topic_of
from .group import ObservedGroup

__all__ = ["EndedProcesses", "end_memberships", "members_of"]

log = logging.getLogger("loadtrim")

END_SECONDS = 8.0
"""The longest time of a try. Chosen: most of the session timeout, after which the group knows by itself."""


def members_of(state: ObservedGroup, instance: str, pid: int, start: str) -> tuple[str, ...]:
    """Return the ids of the members that a process was.

    Args:
        state: the group as it is seen.
        instance: the name that the orchestrator gave.
        pid: of the process. What it forked or started has others, and goes on.
        start: :func:`~loadtrim_agent.common.host.start_mark` of the process. In another container there may be an
            instance of this name with this process id, and it is somebody else.
    """
    return tuple(
        each.member
        for each in state.members
        if start and (each.instance, process_id(each.process), start_of(each.process)) == (instance, str(pid), start)
    )


async def end_memberships(connection: Connection, group: str, members: Iterable[str]) -> int:
    """Tell the coordinator that these members have left.

    Args:
        connection: how to reach the cluster.
        group: the group's id.
        members: ids of members whose process has ended *for certain*. What a living one does meanwhile is done twice.

    Returns:
        How many of them it still had: those that left by themselves are none any more.

    Raises:
        KafkaError: it could not be told. It notices by the session timeout.
    """
    ended = []
    client = AIOKafkaClient(**connection.client_options())
    async with _announcing(connection, group) as announce:
        try:
            await client.bootstrap()
            node = await client.coordinator_lookup(CoordinationType.GROUP, group)
            for member in members:
                request = LeaveGroupRequest(group, member)
                answer = await client.send(node, request, group=ConnectionGroup.COORDINATION)
                if answer.error_code not in (0, UnknownMemberIdError.errno):
                    raise for_code(answer.error_code)()
                if answer.error_code == 0:
                    ended.append(member)
        finally:
            await client.close()
        await announce(ended)
    return len(ended)


@contextlib.asynccontextmanager
async def _announcing(connection: Connection, group: str) -> AsyncIterator[Callable[[Iterable[str]], Awaitable[None]]]:
    """Tell the group's log of members that have left. Members that do not hear it ask by their next heartbeat.

    The producer is started beside all else in the block, which takes as long.
    """
    producer = AIOKafkaProducer(**connection.client_options())
    starting = asyncio.ensure_future(producer.start())

    async def announce(members: Iterable[str]) -> None:
        try:
            await starting
            for member in members:
                record = LeftRecord(group=group, member=member, at=time.time())
                await producer.send_and_wait(topic_of(group), encode(record), partition=COORDINATION)
        except (KafkaError, OSError, UsageError) as error:
            log.debug("The log of %s was not told that members have left: %r", group, error)

    try:
        yield announce
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await producer.stop()


class EndedProcesses:
    """This ends the memberships of processes as they end, in the background.

    Args:
        connection: how to reach the cluster.
        say: called with a sentence about each process whose membership was ended, or could not be.
    """

    def __init__(self, connection: Connection, say: Callable[[str], None]) -> None:
        self._connection = connection
        self._say = say
        self._tasks: set[asyncio.Task[None]] = set()

    def process_ended(self, state: ObservedGroup, instance: str, pid: int, start: str) -> bool:
        """Take note of a process that was reaped. Returns at once.

        Args:
            state: of its group, as it is seen now.
            instance: as in :func:`members_of`.
            pid: as well.
            start: as well.

        Returns:
            Whether the group is seen to have a member of it.
        """
        if members := members_of(state, instance, pid, start):
            task = asyncio.create_task(self._end(state.group, instance, members), name=f"end {instance}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return bool(members)

    async def close(self) -> None:
        """Give up what is under way: the group notices by itself."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end(self, group: str, instance: str, members: tuple[str, ...]) -> None:
        try:
            async with asyncio.timeout(END_SECONDS):
                ended = await end_memberships(self._connection, group, members)
        except (KafkaError, OSError, TimeoutError) as error:
            self._say(
                f"{instance} has ended, and group {group} could not be told ({error!r}): it notices by the session "
                "timeout, and its partitions stand still until then. It takes READ on the group"
            )
        else:
            if ended:
                self._say(f"{instance} has ended, and group {group} was told: others take its partitions now")
