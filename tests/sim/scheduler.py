"""Virtual time: a heap of actions, run one by one in the order of their times."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

__all__ = ["Scheduler", "Timer"]

START_SECONDS = 1000.0
"""Virtual time does not start at zero, so that "never" and "at the start" differ."""


class Timer:
    """An action that is to happen; :meth:`cancel` makes it not happen."""

    __slots__ = ("action", "args", "cancelled")

    def __init__(self, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.action = action
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Scheduler:
    """Runs actions in the order of their times; actions of one time in the order in which they were asked for."""

    def __init__(self, seed: int) -> None:
        self.now = START_SECONDS
        self.rng = random.Random(seed)
        self.steps = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0

    def at(self, time: float, action: Callable[..., None], *args: Any) -> Timer:
        """Run ``action(*args)`` at ``time``, or now where that has passed."""
        timer = Timer(action, args)
        self._sequence += 1
        heapq.heappush(self._heap, (max(time, self.now), self._sequence, timer))
        return timer

    def after(self, delay_seconds: float, action: Callable[..., None], *args: Any) -> Timer:
        return self.at(self.now + delay_seconds, action, *args)

    @property
    def due(self) -> bool:
        """Return whether an action is due now."""
        return bool(self._heap) and self._heap[0][0] <= self.now

    def pass_time(self, seconds: float) -> None:
        """Let a moment pass in which no action is begun."""
        self.now += seconds

    def step(self, until: float) -> bool:
        """Run the next action. False: nothing is due before ``until``, which is now the time."""
        while self._heap:
            time, _, timer = self._heap[0]
            if time > until:
                break
            heapq.heappop(self._heap)
            if timer.cancelled:
                continue
            self.now = max(self.now, time)
            self.steps += 1
            timer.action(*timer.args)
            return True
        self.now = max(self.now, until)
        return False
