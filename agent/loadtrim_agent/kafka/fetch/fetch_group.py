"""Some of a broker's partitions, fetched together: what their two channels share while they run."""

from __future__ import annotations

import asyncio

from ..connections import Backoff
from .channels import PAUSE_SECONDS, BrokerChannels, FetchChannel, FetchConnection

__all__ = ["FetchGroup"]


class FetchGroup:
    """Partitions of one broker that are fetched together, and their two channels."""

    def __init__(self, channels: BrokerChannels, number: int, backoff: Backoff) -> None:
        self.channels = channels
        self.number = number
        """Among those of its broker."""
        self.wakes = {channel: asyncio.Event() for channel in FetchChannel}
        self.started = False
        """The channels run."""
        self.backoff = backoff
        self.wait_seconds = 0.0
        """Before it is asked again; 0 while it answers."""
        self._pause: asyncio.Future[None] | None = None

    @property
    def in_use(self) -> bool:
        """Return whether it has partitions. Those of a broker that is gone have moved to others."""
        return bool(self.channels.states)

    def connection(self, channel: FetchChannel) -> FetchConnection:
        """Each poll has one of its own, for it is held there. What is express shares one, for it is not."""
        return FetchConnection(channel, 0 if channel is FetchChannel.EXPRESS else self.number)

    def wake(self) -> None:
        """Let its channels look whether there is something to ask."""
        for event in self.wakes.values():
            event.set()

    async def pause(self) -> None:
        """Let more come, so that the next poll is worth it."""
        self._pause = pause = asyncio.get_running_loop().create_future()
        timer = pause.get_loop().call_later(PAUSE_SECONDS, self.resume_now)
        try:
            await pause
        finally:
            timer.cancel()
            self._pause = None

    def resume_now(self) -> None:
        """There is something to be had at once."""
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)
