"""The condition of an agent: events of its life that others wait for."""

from __future__ import annotations

import asyncio

from loadtrim_agent.common.clock import boot_time, wall_time

__all__ = ["AgentCondition"]

WATCH_SECONDS = 1.0
"""Chosen: a tenth of what a probe waits for."""


class AgentCondition:
    """Events of an agent's life, set in the agent's loop."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        """Set while the member is in a generation."""
        self.settled = asyncio.Event()
        """Set once everything owned in the first generation is delivered."""
        self.left = asyncio.Event()
        """Set when the member has left its group."""
        self.failed = asyncio.Event()
        """Set when :attr:`failure` is."""
        self.leave_by = float("inf")
        """Deadline of the leave under way (boot clock); infinite: none. Invariant: never later than before."""
        self.reported = asyncio.Event()
        """Unset while the last report is on its way."""
        self.reported.set()
        self.generation = -1
        self.since = wall_time()
        """When the present generation began, seconds since the epoch; before the first one: when the agent was made."""
        self.ran_at = boot_time()
        """Time at which the agent's loop was last seen to run (boot clock)."""
        self.failure: BaseException | None = None
        """Invariant: never changed once it is set."""

    @property
    def over(self) -> bool:
        """The member has left its group, or nothing of it works any more. May be asked in any thread."""
        return self.left.is_set() or self.failure is not None

    def fail(self, error: BaseException) -> None:
        """Membership or fetching broke for good."""
        self.failure = error
        self.failed.set()

    async def watch_loop(self) -> None:
        """Note for ever that the agent's loop runs: a probe that comes on another thread cannot ask it."""
        while True:
            self.ran_at = boot_time()
            await asyncio.sleep(WATCH_SECONDS)

    def enter(self, generation: int) -> None:
        """A generation began."""
        self.generation = generation
        self.since = wall_time()
        self.entered.set()
