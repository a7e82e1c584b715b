"""Streams of topics that are not subscribed any more are kept from user code until the agent has given them up."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.delivery.partition_stream import Stream
from loadtrim_agent.kafka.subscription import Subscription

from .agent_link import AgentLink
from .assigned_anew import ToldListener
from .coming_again import ComingAgain
from .positions import Positions

__all__ = ["PutAside"]


class PutAside:
    """The streams that are put aside. Methods run in the user's thread.

    With manual commits they are gone for user code. One that is subscribed again before the agent has given it up comes
    again at its last commit, as in aiokafka: a program may forget what it has not committed when it subscribes anew.
    Nor is it paused any more, for the same reason, with auto-commit too.

    Args:
        link: to the agent.
        positions: of the assigned partitions.
    """

    def __init__(self, link: AgentLink, positions: Positions) -> None:
        self._link = link
        self._positions = positions
        self._again = ComingAgain(link, positions)
        self.listener: ToldListener | None = None
        """The one that is subscribed, as the agent calls it."""

    def subscribed(self, subscription: Subscription) -> list[Partition]:
        """Hand out no record of what is not subscribed any more, before the agent has read the subscription.

        Return what is subscribed again. A listener is to be told that it has gone and comes, before its first record.
        """
        aside, streams = self._positions.aside, self._link.streams
        matched = self._put(streams, subscription)
        back = [stream for stream in aside.unsubscribed(streams.values()) if stream.partition.topic in matched]
        if self.listener is not None:
            self.listener.keep(back)
        elif gone := list(self._positions.gone.times(back)):
            self._again.begin(gone, partial(aside.take_back, gone))
        aside.take_back(back)
        return [stream.partition for stream in back]

    def look(self, streams: Mapping[Partition, Stream]) -> None:
        """Hand out no record either of what has come since for the subscription before, which the agent reads soon.

        Nor of what a listener is to be told first.
        """
        if self.listener is not None:
            self.listener.look(streams)
        self._put(streams, self._link.subscription)

    def _put(self, streams: Mapping[Partition, Stream], subscription: Subscription) -> Collection[str]:
        """Put aside what is not subscribed; return which of the topics are."""
        aside = self._positions.aside
        matched = subscription.matches({partition.topic for partition in streams})
        unsubscribed = [stream for stream in streams.values() if stream.partition.topic not in matched]
        new = [stream for stream in unsubscribed if stream not in aside]
        aside.put(unsubscribed)
        self._positions.run_again(unsubscribed)
        self._again.go(new)
        return matched
