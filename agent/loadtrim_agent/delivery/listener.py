"""Calling the user's ``ConsumerRebalanceListener`` in the user's loop, one call at a time and in order.

Theory of operation. Partitions come and go one by one, while the others go on being consumed. A listener that knows of
that (:class:`IncrementalRebalanceListener`) is told what comes and what goes. One that was written for aiokafka counts
on its calls: ``on_partitions_revoked`` with all that was held, then ``on_partitions_assigned`` with all that is held
now. So it hears of every change in that form. It may seek in the second call, in all that it is given: no record is
handed out between the two, as in aiokafka. What changes while a call goes on is told together, by the next call. That
one waits as long as the last two took, at most two seconds: however often partitions come and go, records are handed
out meanwhile.
At a leave a plain listener is called once, with all, when nothing of it is in hand any more. An incremental one is
called before that too, with what is idle.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Collection, Iterable
from typing import Protocol

import msgspec
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition

from .gate import DeliveryGate
from .listener_calls import ListenerCalls

__all__ = ["IncrementalRebalanceListener", "Listener", "RebalanceListener"]


REST_SECONDS_MAX = 2.0
"""Between two pairs of calls records are handed out for as long as the last one took, and no longer than this: it may
have been the process that was stopped for so long. Chosen."""
LEAVE_TOGETHER_SECONDS = 0.05
"""Partitions that are idle when a member leaves are drained within this time: one call tells of them. Chosen."""


class RebalanceListener(Protocol):
    """A listener has the methods of aiokafka's ``ConsumerRebalanceListener``; each may be a coroutine function."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None: ...

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None: ...


class IncrementalRebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """A ``ConsumerRebalanceListener`` that is called with what comes or goes, never with what stays.

    Derive from it where a listener keeps something with each partition. A move then costs one call, for the one
    partition that moves. User code may have records of others in work then: commit by name what is revoked.

    Source: ``ConsumerRebalanceListener`` of Kafka's Java client with cooperative rebalancing (KIP-429).
    """


class _Change(msgspec.Struct, eq=False):
    """A change is of partitions that go, come, or go and come again; it lasts until the listener has heard of it."""

    partitions: frozenset[Partition]
    goes: bool = False
    comes: bool = False
    told: bool = False


class Listener:
    """The agent's side of the listener. Calls wait for each other, so user code never sees them overlap.

    Args:
        user_loop: the loop that user code runs in.
        boundary: counts what the listener raises.
        gate: held up between the two calls of a listener that counts on it.
    """

    def __init__(self, user_loop: asyncio.AbstractEventLoop, boundary: ErrorBoundary, gate: DeliveryGate) -> None:
        self.calls = ListenerCalls(user_loop, boundary)
        self._gate = gate
        self._turn = asyncio.Lock()
        self._target: RebalanceListener | None = None
        self._changes: list[_Change] = []
        """Not told yet, in their order."""
        self.held: frozenset[Partition] = frozenset()
        """Read only: what the listener was told that it holds."""
        self._had: frozenset[Partition] = frozenset()
        """User code has records of these, and the listener was not told of them yet."""
        self.shown: frozenset[Partition] | None = None
        """What a plain listener sees as held while it is called; None: it is not. Any thread reads it."""
        self._changed = asyncio.Event()
        """Set when there is more to tell."""
        self._rests_until = 0.0
        """Time of the agent's loop until which records are handed out, whatever there is to tell."""
        self._leaving = asyncio.Event()

    @property
    def target(self) -> RebalanceListener | None:
        """The user's listener; a new one holds nothing yet."""
        return self._target

    @target.setter
    def target(self, target: RebalanceListener | None) -> None:
        if target is not self._target:
            self.held = self._had = frozenset()
        self._target = target
        self._changed.set()

    @property
    def plain(self) -> bool:
        """There is a listener, and it is called with all that is held whenever something comes or goes."""
        return self._target is not None and not isinstance(self._target, IncrementalRebalanceListener)

    def reported_of(self, partitions: Collection[Partition]) -> Collection[Partition]:
        """Return what user code sees as held of what there is. Any thread.

        A plain listener takes what it is told for what is held: in its calls that, and between them no more than that.
        """
        shown, held = self.shown, self.held
        if shown is not None:
            return shown
        return held.intersection(partitions) if self.plain else partitions

    @property
    def leaving(self) -> bool:
        """True while the member leaves: the next call tells that all goes, and is the last one."""
        return self._leaving.is_set()

    @leaving.setter
    def leaving(self, leaving: bool) -> None:
        (self._leaving.set if leaving else self._leaving.clear)()
        self._changed.set()

    async def assigned(self, partitions: Iterable[Partition]) -> None:
        """Tell that partitions come, and wait for the end of the call."""
        await self._tell(_Change(frozenset(partitions), comes=True))

    async def introduce(self, partitions: Iterable[Partition]) -> None:
        """Tell a new listener of partitions that run already, and wait for the end of the call."""
        self._had |= frozenset(partitions)
        await self.assigned(partitions)

    async def revoked(self, partitions: Iterable[Partition]) -> None:
        """Tell that partitions go, and wait for the end of the call."""
        await self._tell(_Change(frozenset(partitions), goes=True))

    async def assigned_anew(self, partitions: Iterable[Partition]) -> None:
        """Tell that partitions go and come again, and wait for the end of both calls."""
        await self._tell(_Change(frozenset(partitions), goes=True, comes=True))

    async def _tell(self, change: _Change) -> None:
        if self._target is None:
            return
        self._changes.append(change)
        self._changed.set()
        await asyncio.sleep(0)  # What changes in the same turn of the loop is told together.
        async with self._turn:
            while not change.told:
                await self._rest()
                await self._all_of_a_leave()
                if not change.told:
                    await self._tell_together()

    async def _rest(self) -> None:
        """Wait while records are handed out between two pairs of calls. A leave waits for nothing."""
        if asyncio.get_running_loop().time() < self._rests_until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._rests_until):
                    await self._leaving.wait()

    async def _all_of_a_leave(self) -> None:
        """Wait until all is gone, where the member leaves: user code may still work on a record of what is left.

        An incremental listener need not wait for that, nor does what is idle: it is told at once what goes together.
        """
        self._tell_no_more_comes()
        incremental = isinstance(self._target, IncrementalRebalanceListener)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_TOGETHER_SECONDS if incremental else None):
                while self.leaving and self._target is not None and self._is_left():
                    self._changed.clear()
                    await self._changed.wait()
                    self._tell_no_more_comes()

    def _is_left(self) -> bool:
        """Return whether user code has something of a partition that does not go yet."""
        held, gone = self._outcome()
        return bool(held or self._had - gone)

    def _tell_no_more_comes(self) -> None:
        """At a leave what comes is not told: it goes at once, and nothing waits for a call that would tell of it."""
        if self.leaving:
            for change in self._changes:
                change.told = change.told or change.comes
            self._changes = [change for change in self._changes if not change.told]

    def _outcome(self) -> tuple[frozenset[Partition], frozenset[Partition]]:
        """Return what all changes so far come to: what is held after them, and what the listener loses by them."""
        held, gone = self.held, frozenset[Partition]()
        for change in self._changes:
            if change.goes:
                gone |= change.partitions & (self.held | self._had)
                held -= change.partitions
            if change.comes:
                held |= change.partitions
        return held, gone

    async def _tell_together(self) -> None:
        """Tell of all changes so far. What came and went before user code had anything of it is not told."""
        held, gone = self._outcome()
        told = list(self._changes)
        self._changes.clear()
        try:
            await self._call(held, gone)
        finally:
            for change in told:
                change.told = True

    async def _call(self, held: frozenset[Partition], gone: frozenset[Partition]) -> None:
        before, self.held = self.held | gone, held
        self._had -= held | gone
        come = held - (before - gone) if not self.leaving else frozenset[Partition]()
        target = self._target  # Both calls are of one listener, though user code may subscribe with another meanwhile.
        if target is None or (not come and not gone):
            return
        if isinstance(target, IncrementalRebalanceListener):
            if gone:
                await self.calls.run(target.on_partitions_revoked, gone)
            if come:
                await self.calls.run(target.on_partitions_assigned, come)
            return
        seconds = 0.0
        self._gate.hold_up(True)
        try:
            self.shown = before
            seconds += await self.calls.run(target.on_partitions_revoked, before)
            if self.leaving:
                self.held = frozenset()
            else:
                self.shown = held
                seconds += await self.calls.run(target.on_partitions_assigned, held)
        finally:
            self.shown = None
            self._gate.hold_up(False)
            self._rests_until = asyncio.get_running_loop().time() + min(seconds, REST_SECONDS_MAX)
