"""Commits for user code, and what it asks about committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    for_code,
)

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partitions import Partitions
from loadtrim_agent.kafka.group_requests import GroupRequests
from loadtrim_agent.protocol import commands as c
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState
from loadtrim_agent.protocol.group_config import Code

from .group_errors import group_error
from .membership_driver import MembershipDriver

__all__ = ["UserCommits"]


class UserCommits:
    """All methods run in the agent's loop.

    Args:
        driver: the membership in force.
        partitions: whose streams tell what is done.
        requests: asks the coordinator.
        committed_timeout: longest wait for the end of a transaction, seconds; None: offsets of open transactions are
            not waited for, because user code reads them as well.
    """

    def __init__(
        self,
        driver: MembershipDriver,
        partitions: Partitions,
        requests: GroupRequests,
        committed_timeout: float | None,
    ) -> None:
        self._driver = driver
        self._partitions = partitions
        self._requests = requests
        self._committed_timeout = committed_timeout
        self._pending: dict[int, asyncio.Future[int]] = {}
        """Request number -> the broker's code. Invariant: only requests that user code waits for."""
        self._numbers = 0

    async def run_auto_commit(self, every_seconds: float) -> None:
        """Commit for ever what is done."""
        while True:
            await asyncio.sleep(every_seconds)
            self.commit_done()

    def commit_done(self) -> None:
        """Commit what is done and was not committed, without waiting (auto-commit)."""
        offsets: dict[Partition, e.OffsetCommit] = {}
        if self._driver.config.auto_commit:
            assigned = self._driver.snapshot().assigned
            for partition, stream in self._partitions.buffer.streams.items():
                done = self._partitions.positions.done_offset(stream)
                view = assigned.get(partition)
                if done is not None and view is not None and view.committed != done:
                    offsets[partition] = e.OffsetCommit(acquisition_id=stream.acquisition_id, offset=done)
        self._driver.feed(e.CommitWantedEvent(now=boot_time(), offsets=offsets))

    async def commit(self, offsets: Mapping[Partition, tuple[int, str]], *, named: bool = True) -> None:
        """Commit for user code and wait for the broker's answer, over a rebalance if one is going on.

        Args:
            offsets: (offset, metadata) per partition.
            named: user code named the partitions; otherwise one that was just given away is passed over.

        Raises:
            CommitFailedError: a partition is not this member's any more. KafkaError: the broker refused.
        """
        wanted: dict[Partition, e.OffsetCommit] = {}
        assigned = self._driver.snapshot().assigned
        for partition, (offset, metadata) in offsets.items():
            stream = self._partitions.buffer.streams.get(partition)
            view = assigned.get(partition)
            gone = stream is None or view is None or view.state is AssignedState.TRANSFERRED
            if not named and gone:
                continue
            if stream is None:
                raise IllegalStateError(f"Partition {partition} is not assigned")
            wanted[partition] = e.OffsetCommit(acquisition_id=stream.acquisition_id, offset=offset, metadata=metadata)
        if not wanted:
            return
        code = await self._request(wanted)
        if code in (Code.ILLEGAL_GENERATION, Code.UNKNOWN_MEMBER_ID, Code.REBALANCE_IN_PROGRESS):
            raise CommitFailedError(
                "The commit was not made: a partition in it was given to another member meanwhile. What was not "
                "committed is handed out again there."
            )
        if code != Code.NONE:
            raise for_code(code)()

    async def _request(self, wanted: dict[Partition, e.OffsetCommit]) -> int:
        self._numbers += 1
        number = self._numbers
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pending[number] = waiting
        try:
            self._driver.feed(e.CommitWantedEvent(now=boot_time(), request=number, offsets=wanted))
            return await waiting
        finally:
            self._pending.pop(number, None)

    def result(self, command: c.CommitResultCommand) -> None:
        """A commit of user code was answered."""
        waiting = self._pending.get(command.request)
        if waiting is not None and not waiting.done():
            waiting.set_result(command.code)

    def close(self) -> None:
        """Nothing is committed any more: who waits is told so."""
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_result(int(Code.UNKNOWN_MEMBER_ID))

    async def committed(self, partition: Partition) -> int | None:
        """The group's committed offset, None where there is none.

        A user who reads committed records only is told of no offset that an open transaction may still change: as the
        Java client does, this waits for the transaction's end, for at most ``request_timeout_ms``.

        Raises:
            KafkaError: the broker refused, or cannot be reached. KafkaTimeoutError: a transaction stays open.
        """
        loop, config = asyncio.get_running_loop(), self._driver.config
        stable = self._committed_timeout is not None
        deadline = loop.time() + (self._committed_timeout or 0.0)
        code, offsets, unstable = await self._requests.committed([partition], stable=stable)
        while unstable:
            if loop.time() >= deadline:
                raise KafkaTimeoutError(
                    f"The committed offset of {partition.topic}-{partition.partition} is part of a transaction that "
                    "is still open. Commit or abort it first, if it is one of this process."
                )
            await asyncio.sleep(config.retry_backoff)
            code, offsets, unstable = await self._requests.committed([partition], stable=stable)
        if code:
            raise group_error(code, config) if code > 0 else KafkaConnectionError("No answer")
        offset = offsets.get(partition, -1)
        return offset if offset >= 0 else None
