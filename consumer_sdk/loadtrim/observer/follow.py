"""Follows a group's control topic for as long as somebody looks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final

from loadtrim.errors import CommandError
from loadtrim_agent.common.error_boundary import FirstOfKind

from .connection import Connection
from .control_topic import RECENT_SECONDS, ControlTopic, Entry
from .group import GroupObserver, ObservedGroup

__all__ = ["CONNECTING", "GroupFollower", "following", "read_group"]

_log = logging.getLogger("loadtrim.up")

RETRY_SECONDS: Final = 1.0
CONNECTING: Final = "connecting"
"""The trouble of a follower that has not reached the cluster yet, and has not failed to."""
LISTEN_SECONDS: Final = 2.5
"""A word of a group that seems silent is waited for so long. Chosen: its members speak every second."""


class BrokersTime:
    """The time by the brokers' clock: they stamp a record as they append it.

    That of the machine that looks on may be wrong by seconds, after a laptop's sleep say, and all would seem silent.
    """

    def __init__(self) -> None:
        self._ahead_seconds = 0.0

    def heard(self, entries: Sequence[Entry]) -> None:
        """Take in records that were appended just now."""
        if entries:
            self._ahead_seconds = time.time() - max(at for _, at in entries)

    def now(self) -> float:
        """Return the time, in seconds since the epoch; this machine's where no record has come yet."""
        return time.time() - self._ahead_seconds


async def read_group(
    topic: ControlTopic, seconds: float = RECENT_SECONDS, scan_seconds: float | None = None
) -> tuple[GroupObserver, float]:
    """Read how a group is now, and the time by the brokers' clock. Where all seem silent a word is waited for.

    Args:
        topic: the group's.
        seconds: see :meth:`ControlTopic.recent`.
        scan_seconds: likewise.
    """
    view, clock = GroupObserver(topic.group), BrokersTime()
    recent = await topic.recent(seconds, scan_seconds)
    _apply(view, (*recent.coordination, *recent.telemetry))
    view.unreadable = recent.unreadable
    if view.heard_lately(clock.now()):
        return view, clock.now()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LISTEN_SECONDS), contextlib.aclosing(topic.follow(recent.positions)) as batches:
            async for entries in batches:
                clock.heard(entries)
                _apply(view, entries)
                if view.heard_lately(clock.now()):
                    break
    return view, clock.now()


def _apply(view: GroupObserver, entries: Iterable[Entry]) -> None:
    for record, at in entries:
        view.apply(record, at)


class GroupFollower:
    """The task that keeps a :class:`GroupObserver` up to date; after trouble with the cluster it tries again for ever.

    Args:
        connection: how to reach the cluster.
        group: the group's id.
        on_change: called on the loop after every batch of records, and when the trouble changes.
    """

    def __init__(self, connection: Connection, group: str, on_change: Callable[[], None] | None = None) -> None:
        self.group = group
        self.view = GroupObserver(group)
        self.trouble = CONNECTING
        """The reason why nothing is known of the group at present; empty while it is followed."""
        self._clock = BrokersTime()
        self._connection = connection
        self._on_change = on_change
        self._errors = FirstOfKind()

    def state(self) -> ObservedGroup:
        """Return the group as it is now, by the brokers' clock. O(members + partitions)."""
        return self.view.state(self._clock.now())

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
            except CommandError as error:
                self._tell(error.happened)
            except Exception as error:
                # The view is a spectator: what breaks in it must not stop what it watches.
                _log.log(self._errors.level(error), "following %s failed; trying again", self.group, exc_info=error)
                self._tell(f"the view failed: {error!r}")
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        async with ControlTopic(self._connection, self.group) as topic:
            recent = await topic.recent()
            view = GroupObserver(self.group)
            _apply(view, (*recent.coordination, *recent.telemetry))
            self.view = view
            self._tell("")
            async for entries in topic.follow(recent.positions):
                self._clock.heard(entries)
                _apply(view, entries)
                view.unreadable = topic.unreadable
                if entries:
                    self._tell("")

    def _tell(self, trouble: str) -> None:
        self.trouble = trouble
        if self._on_change is not None:
            self._on_change()


@contextlib.asynccontextmanager
async def following(
    connection: Connection, group: str, on_change: Callable[[], None] | None = None
) -> AsyncIterator[GroupFollower]:
    """Follow a group while inside the block."""
    follower = GroupFollower(connection, group, on_change)
    task = asyncio.create_task(follower.run(), name=f"follow {group}")
    try:
        yield follower
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
