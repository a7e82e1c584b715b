"""What the Kafka shell tells the agent that it works for."""

from __future__ import annotations

from typing import Protocol

from loadtrim_agent.protocol.events import Event

__all__ = ["ControlLogReader", "EventFeed", "TopicObserver"]


class EventFeed(Protocol):
    """Takes events for the protocol machine."""

    def feed(self, event: Event) -> None:
        """Give the machine an event, in the agent's loop."""


class ControlLogReader(EventFeed, Protocol):
    """Takes what is read of the control topic."""

    def unreadable(self) -> None:
        """A record is none of ours, or cannot be decoded."""

    def clock(self, seconds: float, round_trip_seconds: float) -> None:
        """An own append was answered: own wall clock minus the broker's, and how long the request took."""


class TopicObserver(Protocol):
    """Takes what becomes of the topics that are watched."""

    def topics_changed(self, topics: tuple[str, ...], partitions: dict[str, int]) -> None:
        """The topics subscribed now, and partitions per watched topic."""
