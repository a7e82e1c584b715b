"""Some of a broker's partitions, fetched together: what their two lanes share while they run."""

from __future__ import annotations

import asyncio

from loadtrim_agent.kafka.connections import Backoff

from .channels import PAUSE_SECONDS, BrokerLanes, Channel, Lane

__all__ = ["Bundle"]


class Bundle:
    """Partitions of one broker that are fetched together, and their two lanes."""

    def __init__(self, lanes: BrokerLanes, number: int, backoff: Backoff) -> None:
        self.lanes = lanes
        self.number = number
        """Among those of its broker."""
        self.wake = {lane: asyncio.Event() for lane in Lane}
        self.tasks: list[asyncio.Task[None]] = []
        self.backoff = backoff
        self.wait_seconds = 0.0
        """Before it is asked again; 0 while it answers."""
        self._pause: asyncio.Future[None] | None = None

    def channel(self, lane: Lane) -> Channel:
        """Each poll has one of its own, for it is held there. What is express shares one, for it is not."""
        return Channel(lane, 0 if lane is Lane.EXPRESS else self.number)

    def stir(self) -> None:
        """Let its lanes look whether there is something to ask."""
        for event in self.wake.values():
            event.set()

    async def pause(self) -> None:
        """Let more come, so that the next poll is worth it."""
        self._pause = pause = asyncio.get_running_loop().create_future()
        timer = pause.get_loop().call_later(PAUSE_SECONDS, self.hurry)
        try:
            await pause
        finally:
            timer.cancel()
            self._pause = None

    def hurry(self) -> None:
        """There is something to be had at once."""
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)
