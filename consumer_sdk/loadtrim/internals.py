"""Private names of ``AIOKafkaConsumer`` that frameworks read in their logs.

Programs read ``consumer._loop`` and ``consumer._client.cluster`` besides, which need no view of their own.

FastStream's logging listener reads ``consumer._coordinator.member_id``, ``consumer._group_id`` and
``consumer._subscription.topics`` before it calls the user's own listener. Without these names the user's listener is
never called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

__all__ = ["CoordinatorView", "SubscriptionView"]


class Introspected(Protocol):
    """A consumer that may be in a group."""

    @property
    def member_id(self) -> str: ...

    def subscription(self) -> Iterable[str]: ...


class CoordinatorView:
    """The place of ``AIOKafkaConsumer._coordinator``, to be read only.

    Args:
        client: is asked at each reading.
    """

    def __init__(self, client: Introspected) -> None:
        self._client = client

    @property
    def member_id(self) -> str:
        """The id that the group's coordinator gave; empty before the start, where aiokafka has no coordinator yet."""
        return self._client.member_id


class SubscriptionView:
    """The place of ``AIOKafkaConsumer._subscription``, to be read only.

    Args:
        client: is asked at each reading.
    """

    def __init__(self, client: Introspected) -> None:
        self._client = client

    @property
    def topics(self) -> frozenset[str]:
        """Topics subscribed now."""
        return frozenset(self._client.subscription())
