"""Connections to the coordinator: they delay, break, swallow and repeat what goes over them.

A connection carries one request at a time at the broker, in order, as Kafka's do: what is sent behind a parked
JoinGroup waits for it. What happens to one request is its :class:`Fate`; scripts give fates by hand, chaos draws them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loadtrim_agent.protocol.group_config import Code

from .coordinator import refused
from .scheduler import Scheduler, Timer

__all__ = ["DISCONNECTED", "Connection", "Fate", "Network"]

DISCONNECTED = Code.DISCONNECTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What happens to one request."""

    request_seconds: float = 0.002
    answer_seconds: float = 0.002
    arrives: bool = True
    """False: it gets lost on the way. Without ``breaks_seconds`` the connection swallows all later ones, too."""
    answered: bool = True
    """False: carried out, and the answer gets lost, likewise."""
    breaks_seconds: float | None = None
    """After this time the connection breaks: no answer."""
    late_seconds: float | None = None
    """It arrives (only) this late; nobody waits for the answer."""
    copy_seconds: float | None = None
    """A copy arrives this late as well; nobody waits for its answer."""


class _Call:
    __slots__ = ("answered", "fate", "lane_epoch", "request", "timer")

    def __init__(self, request: Any, answered: Callable[[Any], None], fate: Fate, lane_epoch: int) -> None:
        self.request = request
        self.answered = answered
        self.fate = fate
        self.lane_epoch = lane_epoch
        self.timer: Timer | None = None


class Network:
    """Makes connections. ``fate_of(source, request)`` decides what happens to each request."""

    def __init__(self, scheduler: Scheduler, serve: Callable[[Any, Callable[[Any], None]], None]) -> None:
        self.scheduler = scheduler
        self.serve = serve
        self.fate_of: Callable[[str, Any], Fate] = lambda source, request: Fate()
        self.late_until = 0.0
        """No request that is under way arrives after this time."""
        self.coordinators = 0
        """Brokers that have taken the group over: a connection leads to one, until the coordinator is looked up."""

    def connect(self, source: str) -> Connection:
        return Connection(self, source)


class Connection:
    """One connection of one member; opened again by itself after it was closed."""

    def __init__(self, network: Network, source: str) -> None:
        self._network = network
        self._scheduler = network.scheduler
        self._source = source
        self._epoch = 0
        self._calls: list[_Call] = []
        """Asked and not answered, on this connection as it is now."""
        self._waiting: deque[_Call] = deque()
        """Arrived behind the one that is being served."""
        self._serving: _Call | None = None
        self._arrival = 0.0
        self._swallows = False
        self._deaf = False
        self._coordinator = network.coordinators

    def find(self) -> bool:
        """Lead to the coordinator of now. Return whether it is another one than before."""
        before, self._coordinator = self._coordinator, self._network.coordinators
        return before != self._coordinator

    def ask(self, request: Any, answered: Callable[[Any], None], *, timeout_seconds: float) -> None:
        """Send a request; ``answered`` gets the answer, or :data:`DISCONNECTED`. Never at once."""
        fate = self._network.fate_of(self._source, request)
        call = _Call(request, answered, fate, self._epoch)
        self._calls.append(call)
        scheduler, now = self._scheduler, self._scheduler.now
        call.timer = scheduler.after(timeout_seconds, self._break, call)
        if fate.copy_seconds is not None:
            self._deliver_later(fate.copy_seconds, request)
        if fate.breaks_seconds is not None:
            scheduler.after(fate.breaks_seconds, self._break, call)
        if not fate.arrives:
            self._swallows = self._swallows or fate.breaks_seconds is None
        elif fate.late_seconds is not None:
            self._deliver_later(fate.late_seconds, request)
        elif not self._swallows:
            self._arrival = max(self._arrival, now + fate.request_seconds)
            scheduler.at(self._arrival, self._arrive, call)

    def close(self, *, tell: bool = True) -> None:
        """Close it: whoever waits for an answer is told (or, where the process is gone, not)."""
        calls, self._calls = self._calls, []
        self._epoch += 1
        self._waiting.clear()
        self._serving = None
        self._swallows = self._deaf = False
        for call in calls:
            if call.timer is not None:
                call.timer.cancel()
            if tell:
                self._scheduler.after(0.0, call.answered, DISCONNECTED)

    def _deliver_later(self, delay: float, request: Any) -> None:
        self._network.late_until = max(self._network.late_until, self._scheduler.now + delay)
        self._scheduler.after(delay, self._network.serve, request, _ignore)

    def _break(self, call: _Call) -> None:
        if call in self._calls:
            self.close()

    def _arrive(self, call: _Call) -> None:
        if call.lane_epoch != self._epoch:
            # The connection was closed while the request was under way: the broker reads it all the same.
            self._network.serve(call.request, _ignore)
        elif self._serving is not None:
            self._waiting.append(call)
        else:
            self._serve(call)

    def _serve(self, call: _Call) -> None:
        self._serving = call
        if self._coordinator != self._network.coordinators:
            self._replied(call, refused(call.request, Code.NOT_COORDINATOR))
        else:
            self._network.serve(call.request, lambda reply: self._replied(call, reply))

    def _replied(self, call: _Call, reply: Any) -> None:
        if call.lane_epoch != self._epoch:
            return
        self._serving = None
        self._deaf = self._deaf or not (call.fate.answered or call.fate.breaks_seconds is not None)
        if not self._deaf and call.fate.answered:
            self._scheduler.after(call.fate.answer_seconds, self._answer, call, reply)
        if self._waiting:
            self._serve(self._waiting.popleft())

    def _answer(self, call: _Call, reply: Any) -> None:
        if call.lane_epoch != self._epoch or call not in self._calls:
            return
        self._calls.remove(call)
        if call.timer is not None:
            call.timer.cancel()
        call.answered(reply)


def _ignore(reply: Any) -> None:
    """Nobody waits for this answer."""
