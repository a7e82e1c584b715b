"""The agent's connections: one ``AIOKafkaClient``, one socket per purpose.

The broker answers one request per connection at a time, so a parked JoinGroup would hold up the heartbeats that share
its connection. Each :class:`Lane` is therefore a connection of its own to the same broker.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Mapping
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

__all__ = ["CONNECTION_SETTINGS", "Connections", "Lane"]

log = logging.getLogger("loadtrim")

CONNECTION_SETTINGS = (
    "bootstrap_servers",
    "client_id",
    "metadata_max_age_ms",
    "request_timeout_ms",
    "retry_backoff_ms",
    "security_protocol",
    "ssl_context",
    "connections_max_idle_ms",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name",
    "sasl_oauth_token_provider",
)
"""Constructor arguments that every client of the agent takes over from the user's consumer: TLS and SASL included."""


class Lane(enum.Enum):
    """What a connection is for."""

    JOIN = "join"
    HEARTBEAT = "heartbeat"
    COMMIT = "commit"
    OFFSETS = "offsets"


class Connections:
    """Requests to the group's coordinator, with a time limit of their own each.

    Args:
        settings: the user's constructor arguments; those of :data:`CONNECTION_SETTINGS` are used.
        request_timeout: upper bound of any request, seconds: above the longest barrier.
    """

    def __init__(self, settings: Mapping[str, Any], *, request_timeout: float) -> None:
        taken = {name: settings[name] for name in CONNECTION_SETTINGS if name in settings}
        taken["request_timeout_ms"] = max(int(request_timeout * 1000), int(taken.get("request_timeout_ms", 40_000)))
        self.client = AIOKafkaClient(**taken)
        self._coordinator: int | None = None

    async def start(self) -> None:
        """Connect.

        Raises:
            aiokafka.errors.KafkaConnectionError: no bootstrap server answers.
        """
        await self.client.bootstrap()

    async def close(self) -> None:
        await self.client.close()

    async def find_coordinator(self, group: str) -> None:
        """Look the coordinator up and connect the lanes, so that requests later leave in the order they are made.

        Raises:
            KafkaError: it cannot be found now; worth another try.
        """
        node = await self.client.coordinator_lookup(0, group)
        if node != self._coordinator:
            await self.client.force_metadata_update()
        self._coordinator = node
        for lane in Lane:
            if not await self.client.ready(node, group=lane):
                raise KafkaError(f"coordinator {node} does not take connections")

    async def ask(self, lane: Lane, request: Any, *, timeout: float) -> Any:
        """Send one request to the coordinator and wait for its answer.

        Raises:
            KafkaError: no connection. TimeoutError: no answer in time; the connection is closed then, because an
            answer might still hang in it.
        """
        if self._coordinator is None:
            raise KafkaError("the coordinator is not known")
        try:
            async with asyncio.timeout(timeout):
                return await self.client.send(self._coordinator, request, group=lane)
        except TimeoutError:
            self.cut(lane)
            raise

    def cut(self, lane: Lane) -> None:
        """Close one lane; the next request opens it again."""
        connection = self.client._conns.pop((self._coordinator, lane), None)
        if connection is not None:
            connection.close()
