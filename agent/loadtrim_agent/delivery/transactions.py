"""Offsets on their way through a producer's transaction: whose they are, and that no handoff overtakes them.

The broker takes such offsets from any producer for any group. What keeps them right is: they carry the member's
generation (the broker refuses those of a member that was left behind), they are of partitions that this member holds
(within a generation nobody but the owner knows), and a handoff that begins meanwhile waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

import msgspec
from aiokafka.errors import CommitFailedError, IllegalStateError

from loadtrim_agent.common.clock import boot_time
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.protocol import events as e
from loadtrim_agent.protocol.assigned_partition import AssignedState

from .ports import Member

__all__ = ["Fence", "Transactions"]


class Fence(msgspec.Struct, frozen=True):
    """A commit in the group's name carries this."""

    member: str
    generation: int


class Transactions:
    """All methods run in the agent's loop.

    Args:
        member: the membership in force.
        patience_seconds: longest wait for a rebalance to end.
    """

    def __init__(self, member: Member, patience_seconds: float) -> None:
        self._member = member
        self._patience_seconds = patience_seconds
        self._changed = asyncio.Event()

    def generation_changed(self) -> None:
        """Another generation has begun, or there will be none."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def begin(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Offsets of these will be sent: from now to :meth:`end` none of them is released.

        Returns:
            The acquisition of each.

        Raises:
            CommitFailedError: one was given to another member meanwhile. IllegalStateError: one is not held, or
            auto-commit is on.
        """
        if self._member.snapshot().config.auto_commit:
            raise IllegalStateError(
                "Offsets cannot be part of a transaction while auto-commit commits them outside of it: create the "
                "consumer with enable_auto_commit=False."
            )
        assigned = self._member.snapshot().assigned
        acquisitions: dict[Partition, int] = {}
        for partition in sorted(partitions):
            held = assigned.get(partition)
            if held is None:
                raise IllegalStateError(f"Partition {partition} is not assigned")
            acquisitions[partition] = held.acquisition_id
        self._check(acquisitions)
        self._member.feed(e.TransactionSendsEvent(now=boot_time(), acquisitions=acquisitions))
        return acquisitions

    def end(self, acquisitions: Mapping[Partition, int]) -> None:
        """The offsets were sent, or will not be."""
        self._member.feed(e.TransactionSentEvent(now=boot_time(), acquisitions=dict(acquisitions)))

    async def fence(self, acquisitions: Mapping[Partition, int], refused: int | None) -> Fence:
        """Return what a commit of these acquisitions carries now.

        Args:
            acquisitions: as :meth:`begin` returned them.
            refused: a generation that the broker refused: a later one is waited for.

        Raises:
            CommitFailedError: one of them is not held any more, or no later generation began in time.
        """
        try:
            async with asyncio.timeout(self._patience_seconds):
                while self._member.snapshot().generation in (refused, -1):
                    self._check(acquisitions)
                    await self._changed.wait()
        except TimeoutError:
            raise _failed("this member was shut out of its group") from None
        self._check(acquisitions)
        now = self._member.snapshot()
        return Fence(now.member, now.generation)

    def _check(self, acquisitions: Mapping[Partition, int]) -> None:
        assigned = self._member.snapshot().assigned
        for partition, acquisition_id in acquisitions.items():
            held = assigned.get(partition)
            # Nothing of an acquisition that is not opened was handed out: the offsets are of one that was lost.
            if (
                held is None
                or held.acquisition_id != acquisition_id
                or held.state is AssignedState.TRANSFERRED
                or not held.opened
            ):
                raise _failed(f"{partition.topic}-{partition.partition} was given to another member meanwhile")


def _failed(why: str) -> CommitFailedError:
    return CommitFailedError(
        f"The offsets were not added to the transaction: {why}. Abort the transaction: what it covers is handed out "
        "again by the partition's owner."
    )
