"""Follows a group's control topic for as long as somebody looks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from loadtrim.errors import CommandError

from .connection import Connection
from .control_topic import ControlTopic
from .group import GroupObserver

__all__ = ["GroupFollower", "following"]

_log = logging.getLogger("loadtrim.up")

RETRY_SECONDS = 1.0


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
        self.trouble = "connecting"
        """The reason why nothing is known of the group at present; empty while it is followed."""
        self._connection = connection
        self._on_change = on_change

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
            except CommandError as error:
                self._tell(error.happened)
            except Exception as error:
                # The view is a spectator: what breaks in it must not stop what it watches.
                _log.exception("following %s failed; trying again", self.group)
                self._tell(f"the view failed: {error!r}")
            await asyncio.sleep(RETRY_SECONDS)

    async def _follow(self) -> None:
        async with ControlTopic(self._connection, self.group) as topic:
            recent = await topic.recent()
            view = GroupObserver(self.group)
            for record, at in [*recent.coordination, *recent.telemetry]:
                view.apply(record, at)
            self.view = view
            self._tell("")
            async for entries in topic.follow(recent.positions):
                for record, at in entries:
                    view.apply(record, at)
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
