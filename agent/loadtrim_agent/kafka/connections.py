"""Requests to brokers, each with a channel and a time limit. Their connections are :mod:`.pool`'s."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Mapping
from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, NodeNotReadyError, for_code
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.metadata import MetadataRequest

from loadtrim_agent.common.tasks import is_being_cancelled

from .backoff import RECONNECT_SECONDS_MAX, Backoff
from .client import METADATA, Client
from .pool import CONNECT_SECONDS, ConnectionPool

__all__ = [
    "CONNECTION_SETTINGS",
    "RECONNECT_SECONDS_MAX",
    "UNREACHABLE",
    "Backoff",
    "Channel",
    "Connections",
    "Coordinator",
    "TokensOfUser",
    "check_settings",
    "connect_seconds",
]

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

UNREACHABLE = (KafkaError, OSError, asyncio.TimeoutError)
"""No answer, or none that can be used."""

CONNECT_SECONDS_MIN = 2.0
"""TLS and SASL take some ten round trips. Chosen: a fifth of a second each."""
LOOKUP_SECONDS = 5.0
GROUP_COORDINATOR = 0
"""Type of coordinator in FindCoordinator."""


def check_settings(settings: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> None:
    """Raises ``ValueError`` as ``AIOKafkaConsumer`` does where no connection could be made with these."""
    AIOKafkaClient(loop=loop, **{name: settings[name] for name in CONNECTION_SETTINGS if name in settings})


class TokensOfUser(AbstractTokenProvider):  # type: ignore[misc]
    """Asks the user's ``sasl_oauth_token_provider`` in the user's loop, where aiokafka would: what it uses to get a
    token, an HTTP session say, belongs to that loop. The agent connects from a loop of its own.

    Args:
        provider: the user's.
        loop: the user's.
        timeout: longest wait for a token, seconds; a connection is given up then, as one that is not answered.
    """

    def __init__(self, provider: AbstractTokenProvider, loop: asyncio.AbstractEventLoop, *, timeout: float) -> None:
        self._provider = provider
        self._loop = loop
        self._timeout = timeout

    async def token(self) -> str:
        """Raises what the user's provider raises, and TimeoutError."""
        async with asyncio.timeout(self._timeout):
            asked = asyncio.run_coroutine_threadsafe(self._provider.token(), self._loop)
            try:
                return str(await asyncio.wrap_future(asked))
            except asyncio.CancelledError as error:
                if is_being_cancelled():
                    raise
                raise KafkaError("sasl_oauth_token_provider was cancelled and gave no token") from error

    def extensions(self) -> dict[str, str]:
        found: dict[str, str] = self._provider.extensions()
        return found


class Channel(enum.Enum):
    """Requests of one purpose, which do not overtake each other."""

    JOIN = "join"
    HEARTBEAT = "heartbeat"
    COMMIT = "commit"
    OFFSETS = "offsets"
    TAIL = "tail"
    APPEND = "append"
    TELEMETRY = "telemetry"
    REPORT = "report"
    LOOK = "look"


BACKGROUND = (METADATA, Channel.TELEMETRY, Channel.REPORT, Channel.LOOK)
"""No caller notices when these wait."""
BACKGROUND_WAIT_SECONDS = 0.05
"""For so long a request of the background waits for a connection that is in use. Chosen: some times what a commit takes
(7 ms), so that it seldom is what another connection is made for."""


def connect_seconds(session_timeout: float) -> float:
    """Return how long a connection to the coordinator may take, seconds: several tries must fit into one session."""
    return min(CONNECT_SECONDS, max(CONNECT_SECONDS_MIN, session_timeout / 4))


class Connections:
    """Requests over one client of aiokafka's, with a channel and a time limit each.

    Args:
        settings: the user's constructor arguments; those of :data:`CONNECTION_SETTINGS` are used.
        pool: where the connections come from; None: a pool of its own.
        request_timeout: upper bound of any request, seconds: above the longest that is asked for.
    """

    def __init__(
        self, settings: Mapping[str, Any], pool: ConnectionPool | None = None, *, request_timeout: float = 0.0
    ) -> None:
        taken = {name: settings[name] for name in CONNECTION_SETTINGS if name in settings}
        taken["request_timeout_ms"] = max(int(request_timeout * 1000), int(taken.get("request_timeout_ms", 40_000)))
        self.retry_backoff = int(taken.get("retry_backoff_ms", 100)) / 1000
        self.pool = pool if pool is not None else ConnectionPool(settings, request_timeout=request_timeout)
        self._owns_pool = pool is None
        waits = dict.fromkeys(BACKGROUND, BACKGROUND_WAIT_SECONDS)
        self.client = Client(self.pool, waits, **taken)

    async def start(self) -> None:
        """Connect.

        Raises:
            aiokafka.errors.KafkaConnectionError: no bootstrap server answers.
        """
        await self.client.bootstrap()

    async def close(self) -> None:
        await self.client.close()
        if self._owns_pool:
            await self.pool.close()

    async def connect(self, node: int, channel: Channel) -> None:
        """Have a connection, an earlier one where it still stands.

        Raises:
            NodeNotReadyError: the node does not take connections, or did not a moment ago.
        """
        if not await self.client.ready(node, group=channel):
            raise NodeNotReadyError(f"Node {node} does not take connections")

    async def send(self, node: int, channel: Channel, request: Any, *, timeout: float) -> Any:
        """Send one request and wait for its answer.

        Raises:
            KafkaError: no connection. TimeoutError: no answer in time; the connection is closed then, because an
            answer might still hang in it.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self.client.send(node, request, group=channel)
        except TimeoutError:
            self.cut(node, channel)
            raise

    async def partitions_of(self, topic: str, channel: Channel, *, timeout: float) -> tuple[int, list[int]]:
        """Ask any broker for a topic's partitions: (error code, their numbers).

        Not by the client's own metadata: a broker that creates topics by itself would make it.

        Raises:
            KafkaError: no connection. TimeoutError: no answer in time.
        """
        node = self.client.get_random_node()
        if node is None:
            raise KafkaError("no broker is known")
        request = MetadataRequest([topic], allow_auto_topic_creation=False)
        answer = await self.send(node, channel, request, timeout=timeout)
        code, *_, partitions = answer.topics[0]
        return code, sorted(entry[1] for entry in partitions)

    def cut(self, node: int | None, channel: Channel) -> None:
        """Close one channel's connection; its next request goes over another."""
        self.client.cut(node, channel)


class Coordinator:
    """Requests to the group's coordinator.

    Args:
        connections: started before the first request.
        group: whose coordinator it is.
    """

    def __init__(self, connections: Connections, group: str) -> None:
        self._connections = connections
        self._group = group
        self._node: int | None = None

    async def find(self) -> None:
        """Look the coordinator up, and have a connection to it.

        Raises:
            KafkaError: it cannot be found now; worth another try.
        """
        client = self._connections.client
        asked = client.get_random_node()
        if asked == self._node:
            # The coordinator so far is silent, or has told that it is none: most often another broker knows better.
            asked = client.get_random_node()
        if asked is None:
            raise KafkaError("no broker is known")
        request = FindCoordinatorRequest(self._group, GROUP_COORDINATOR)
        timeout = min(LOOKUP_SECONDS, self._connections.pool.connect_timeout)
        answer = await self._connections.send(asked, Channel.OFFSETS, request, timeout=timeout)
        if answer.error_code:
            raise for_code(answer.error_code)()
        self._node = node = int(answer.coordinator_id)
        if client.cluster.broker_metadata(node) is None:
            await client.force_metadata_update()
        await self._connections.connect(node, Channel.HEARTBEAT)

    async def ask(self, channel: Channel, request: Any, *, timeout: float) -> Any:
        """Send one request and wait for its answer; raises what :meth:`Connections.send` does."""
        if self._node is None:
            raise KafkaError("the coordinator is not known")
        return await self._connections.send(self._node, channel, request, timeout=timeout)

    def cut(self, channel: Channel) -> None:
        """Close one channel's connection; its next request goes over another."""
        self._connections.cut(self._node, channel)
