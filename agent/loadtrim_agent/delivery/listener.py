"""Calling the user's ``ConsumerRebalanceListener`` in the user's loop, one call at a time and in order.

Theory of operation. Partitions come and go one by one, while the others go on being consumed. A listener that knows of
that (:class:`IncrementalRebalanceListener`) is told what comes and what goes. One that was written for aiokafka counts
on its calls: ``on_partitions_revoked`` with all that was held, then ``on_partitions_assigned`` with all that is held
now. So it hears of every change in that form. It may seek in the second call, in all that it is given: no record is
handed out between the two, as in aiokafka. What changes while a call goes on is told together, by the next call. That
one waits as long as the last two took: however often partitions come and go, records are handed out half of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.structs import TopicPartition

from loadtrim_agent.common.error_boundary import ErrorBoundary
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.tasks import is_being_cancelled

from .gate import DeliveryGate

__all__ = ["IncrementalRebalanceListener", "Listener", "RebalanceListener"]

log = logging.getLogger("loadtrim")


class RebalanceListener(Protocol):
    """A listener has the methods of aiokafka's ``ConsumerRebalanceListener``; each may be a coroutine function."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None: ...

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None: ...


class IncrementalRebalanceListener(ConsumerRebalanceListener):  # type: ignore[misc]
    """A ``ConsumerRebalanceListener`` that is called with what comes or goes, never with what stays.

    Derive from it where a listener keeps something with each partition. A move then costs one call, for the one
    partition that moves.

    Source: ``ConsumerRebalanceListener`` of Kafka's Java client with cooperative rebalancing (KIP-429).
    """


@dataclass(eq=False, slots=True)
class _Change:
    """A change is of partitions that come, or of some that go; it lasts until the listener has heard of it."""

    partitions: frozenset[Partition]
    comes: bool
    told: bool = False


class Listener:
    """The agent's side of the listener. Calls wait for each other, so user code never sees them overlap.

    What the listener raises is logged and goes no further, as aiokafka does.

    Args:
        user_loop: the loop that user code runs in.
        boundary: counts what the listener raises.
        gate: held up between the two calls of a listener that counts on it.
    """

    def __init__(self, user_loop: asyncio.AbstractEventLoop, boundary: ErrorBoundary, gate: DeliveryGate) -> None:
        self._user_loop = user_loop
        self._boundary = boundary
        self._gate = gate
        self._turn = asyncio.Lock()
        self._target: RebalanceListener | None = None
        self._changes: list[_Change] = []
        """Not told yet, in their order."""
        self._held: frozenset[Partition] = frozenset()
        """What the listener was told that it holds."""
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
            self._held = frozenset()
        self._target = target

    @property
    def leaving(self) -> bool:
        """True while the member leaves: the next call tells that all goes, and is the last one."""
        return self._leaving.is_set()

    @leaving.setter
    def leaving(self, leaving: bool) -> None:
        (self._leaving.set if leaving else self._leaving.clear)()

    async def assigned(self, partitions: Iterable[Partition]) -> None:
        """Tell that partitions come, and wait for the end of the call."""
        await self._tell(_Change(frozenset(partitions), comes=True))

    async def revoked(self, partitions: Iterable[Partition]) -> None:
        """Tell that partitions go, and wait for the end of the call."""
        await self._tell(_Change(frozenset(partitions), comes=False))

    async def _tell(self, change: _Change) -> None:
        if self._target is None:
            return
        self._changes.append(change)
        await asyncio.sleep(0)  # What changes in the same turn of the loop is told together.
        async with self._turn:
            while not change.told:
                await self._rest()
                await self._tell_together()

    async def _rest(self) -> None:
        """Wait while records are handed out between two pairs of calls. A leave waits for nothing."""
        if asyncio.get_running_loop().time() < self._rests_until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(self._rests_until):
                    await self._leaving.wait()

    async def _tell_together(self) -> None:
        """Tell what all changes so far come to: what came and went before user code heard of it is not told."""
        told = list(self._changes)
        self._changes.clear()
        held, gone = self._held, frozenset[Partition]()
        for change in told:
            if change.comes:
                held |= change.partitions
            else:
                gone |= change.partitions & self._held
                held -= change.partitions
        try:
            if not self.leaving:
                await self._call(held, gone)
            elif gone:
                await self._call(frozenset(), self._held)
        finally:
            for change in told:
                change.told = True

    async def _call(self, held: frozenset[Partition], gone: frozenset[Partition]) -> None:
        before, self._held = self._held, held
        come = held - (before - gone)
        target = self._target  # Both calls are of one listener, though user code may subscribe with another meanwhile.
        if target is None or (not come and not gone):
            return
        if isinstance(target, IncrementalRebalanceListener):
            if gone:
                await self._run(target.on_partitions_revoked, gone)
            if come:
                await self._run(target.on_partitions_assigned, come)
            return
        seconds = 0.0
        self._gate.hold_up(True)
        try:
            seconds += await self._run(target.on_partitions_revoked, before)
            if not self.leaving:
                seconds += await self._run(target.on_partitions_assigned, held)
        finally:
            self._gate.hold_up(False)
            self._rests_until = asyncio.get_running_loop().time() + seconds

    async def _run(self, method: Callable[[set[TopicPartition]], Any], partitions: Iterable[Partition]) -> float:
        """Return the seconds that the call took. Until it began user code may have kept its loop busy with records."""
        those = {TopicPartition(*p) for p in partitions}
        timed = _Timed()
        call = asyncio.run_coroutine_threadsafe(timed.run(method, those), self._user_loop)
        try:
            await asyncio.wrap_future(call)
        except (Exception, asyncio.CancelledError) as error:
            # User code that awaits a task of its own that was cancelled ends with a cancellation too.
            if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                raise
            self._boundary.broke("listener")
            log.exception("%s raised; the group goes on as if it had returned", method.__name__)
        return timed.seconds


class _Timed:
    """One call in the user's loop, and how long it took there."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def run(self, method: Callable[[set[TopicPartition]], Any], partitions: set[TopicPartition]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            result = method(partitions)
            if inspect.isawaitable(result):
                await result
        finally:
            self.seconds = loop.time() - began
