"""Tell a member's slack and queues in ``load`` records, which are its signs of life as well."""

from __future__ import annotations

import asyncio
import contextlib
import math

from msgspec import structs

from loadtrim_agent.common.clock import boot_time, wall_time
from loadtrim_agent.wire.ownership_records import LoadRecord

from .metering_task import MeteringTask
from .ports import ReportTarget

__all__ = ["SOON_SHARE", "LoadsTask"]

SOON_SHARE = 1.0 / 16.0
"""Of the longest time between two ``load`` records: one is told at once after so much of it at the earliest. Chosen:
60 ms in groups of up to 16 members, an eighth of the time after which loads that changed are told anyway."""


class LoadsTask:
    """Write one member's ``load`` records. All methods run in the agent's loop."""

    def __init__(self, metering: MeteringTask) -> None:
        self._metering = metering
        self._told: LoadRecord | None = None
        self._told_at = -math.inf
        """Boot clock."""
        self._seconds = 0.0
        """Longest time between two of them, as of then."""
        self._soon = asyncio.Event()
        """Set while the next one is not to wait."""

    async def run(self, target: ReportTarget) -> None:
        """Tell for ever: after half of the target's time when something changed, else after all of it."""
        while True:
            every = target.load_seconds()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(every / 2):
                    await self._soon.wait()
            soon = self._soon.is_set()
            self._soon.clear()
            member, generation = target.member()
            if not member:
                continue
            self._metering.gather()  # what was done since the last time does not wait any more
            load = structs.replace(self._metering.meter.load(wall_time(), member, generation), pod=target.pod)
            same = self._told is not None and (load.slack, load.queues) == (self._told.slack, self._told.queues)
            if same and not soon and boot_time() - self._told_at < every * 0.75:
                continue
            self._told, self._told_at, self._seconds = load, boot_time(), every
            await target.write(load)

    def tell_soon(self) -> bool:
        """Tell at once, unless that was a moment ago. Returns whether it will be told."""
        if boot_time() - self._told_at < self._seconds * SOON_SHARE:
            return False
        self._soon.set()
        return True
