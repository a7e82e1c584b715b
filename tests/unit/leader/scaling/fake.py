"""The scaler in memory, for tests of what uses the port; it keeps to the contract of the real ones."""

from __future__ import annotations

import asyncio
from collections import deque

from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, ScaleRequest

__all__ = ["FakeScaler"]


class FakeScaler:
    """Accepts everything and remembers it, unless told otherwise.

    Args:
        seconds: How long each answer takes, by the loop's clock.
    """

    name = "fake"
    scales = True
    withdrawable = False
    per_generation = False

    def __init__(self, *, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.requests: list[ScaleRequest] = []
        """Everything asked for, in order."""
        self.asked_at: list[float] = []
        """When, by the loop's clock."""
        self.state: ScaleRequest | None = None
        """The wanted state as the other side has it: the last accepted request."""
        self.answers: deque[ScaleOutcome | Exception] = deque()
        """The next answers, first one first; an exception is raised. Empty: everything is accepted."""
        self.in_flight_max = 0
        """Most requests that were under way at the same time."""
        self.withdrawn = 0
        """Times."""
        self.closed = False
        self._in_flight = 0
        self._closing = asyncio.Event()

    def answer_next(self, *answers: ScaleOutcome | Exception | Answer) -> None:
        """Queue answers."""
        self.answers.extend(ScaleOutcome(a, f"as told: {a}") if isinstance(a, Answer) else a for a in answers)

    async def request(self, wanted: ScaleRequest) -> ScaleOutcome:
        """As told by ``answers``; accepted without."""
        if self.closed:
            return ScaleOutcome(Answer.FAILED, "the scaler is closed")
        self.requests.append(wanted)
        self.asked_at.append(asyncio.get_running_loop().time())
        self._in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self._in_flight)
        try:
            if await self._closed_within(self.seconds):
                return ScaleOutcome(Answer.FAILED, "the scaler was closed")
        finally:
            self._in_flight -= 1
        outcome = self.answers.popleft() if self.answers else ScaleOutcome(Answer.ACCEPTED)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.accepted:
            self.state = wanted
        return outcome

    async def _closed_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._closing.wait()
        except TimeoutError:
            return False

    def withdraw(self) -> None:
        """What was carried out stays."""
        self.withdrawn += 1

    async def close(self) -> None:
        """Break off what is under way."""
        self.closed = True
        self._closing.set()
