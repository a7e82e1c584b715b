"""Ports of the agent that the Kafka shell works for."""

from __future__ import annotations

from typing import Protocol

from loadtrim_agent.protocol.events import Event

__all__ = ["ControlLogReader", "EventFeed", "TopicObserver"]


class EventFeed(Protocol):
    """The feed takes events for the protocol machine."""

    def feed(self, event: Event) -> None:
        """Give the machine an event, in the agent's loop."""


class ControlLogReader(EventFeed, Protocol):
    """The reader takes records of the control topic."""

    @property
    def log_read_seconds(self) -> float:
        """Least mean time between two reads of the log; 0: a record is waited for."""

    def unreadable(self) -> None:
        """A record is none of ours, or cannot be decoded."""

    def clock(self, seconds: float, round_trip_seconds: float) -> None:
        """An own append was answered: own wall clock minus the broker's, and how long the request took."""


class TopicObserver(Protocol):
    """The observer takes changes of the watched topics."""

    def topics_changed(self, topics: tuple[str, ...], partitions: dict[str, int]) -> None:
        """The topics subscribed now, and partitions per watched topic."""
