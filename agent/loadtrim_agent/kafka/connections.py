"""Requests to brokers over connections of :mod:`.pool`, each with a channel and a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from aiokafka.abc import AbstractTokenProvider
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import CloseReason
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    RequestTimedOutError,
    StaleMetadata,
    for_code,
)
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.metadata import MetadataRequest

from loadtrim_agent.common.tasks import is_being_cancelled

from .backoff import RECONNECT_SECONDS_MAX, Backoff
from .pool import CONNECT_SECONDS, UNREACHABLE, Address, ConnectionPool, request_timeout_ms, retry_seconds

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
    "connecting",
]

log = logging.getLogger("loadtrim")
their_log = logging.getLogger("aiokafka")

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

CONNECT_SECONDS_MIN = 2.0
"""TLS and SASL take some ten round trips. Chosen: a fifth of a second each."""
BOOTSTRAP_TRIES = 5
METADATA_SECONDS = (2.0, 2.0, 4.0)
"""Chosen: longest waits for metadata; after each, a node is drawn anew. Where one of three nodes is frozen, that is the
frozen one each time in one case of 27."""
UPDATE_BROKE = (
    "An update of the cluster's metadata broke (%r), so what is known of topics and leaders may be out of date. The "
    "next update is made all the same. It is a fault of loadtrim: please report it. Said once until an update succeeds."
)
LOOKUP_SECONDS = 5.0
GROUP_COORDINATOR = 0
"""Type of coordinator in FindCoordinator."""


def check_settings(settings: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> None:
    """Raises ``ValueError`` as ``AIOKafkaConsumer`` does where no connection could be made with these."""
    AIOKafkaClient(loop=loop, **{name: settings[name] for name in CONNECTION_SETTINGS if name in settings})


@contextlib.contextmanager
def connecting() -> Iterator[None]:
    """Make of what a token provider or Kerberos raises in the block a connection that failed.

    A client that connects raises it as it is, which suits the user's start() alone.
    """
    try:
        yield
    except UNREACHABLE:
        raise
    except Exception as error:
        raise KafkaConnectionError(f"the connection could not be made: {error!r}") from error


class _TokenCall(msgspec.Struct, eq=False):
    """One call of the user's token provider."""

    outcome: asyncio.Task[str]
    waiting: int = 0
    """Connections that wait for it."""


class TokensOfUser(AbstractTokenProvider):  # type: ignore[misc]
    """Asks the user's ``sasl_oauth_token_provider`` in the user's loop, where aiokafka would: what it uses to get a
    token, an HTTP session say, belongs to that loop. The agent connects from a loop of its own.

    A member makes several connections at once, so what is asked for while a call is under way is that call's token. A
    try may be given up, so the call is cancelled when nobody waits for it any more. One call that hangs would hold up
    all connections, so the provider is asked once more after some seconds, and the first token is taken.

    Args:
        provider: the user's.
        loop: the user's.
        timeout: longest wait for a token, seconds; a connection is given up then, as one that is not answered.
        again_after: seconds after which the provider is asked once more.
    """

    def __init__(
        self, provider: AbstractTokenProvider, loop: asyncio.AbstractEventLoop, *, timeout: float, again_after: float
    ) -> None:
        self._provider = provider
        self._loop = loop
        self._timeout = timeout
        self._again_after = again_after
        self._call: _TokenCall | None = None
        """None: none is under way."""

    async def token(self) -> str:
        """Raises what the user's provider raises, and TimeoutError."""
        call = self._call
        if call is None or call.outcome.done():
            call = self._call = _TokenCall(asyncio.create_task(self._first_token(), name="loadtrim-token"))
        call.waiting += 1
        try:
            return await asyncio.shield(call.outcome)
        finally:
            call.waiting -= 1
            if not call.waiting:
                call.outcome.cancel()
                if self._call is call:
                    self._call = None

    async def _first_token(self) -> str:
        asked = [asyncio.create_task(self._ask(), name="loadtrim-ask-for-token")]
        try:
            async with asyncio.timeout(self._timeout):
                done, _ = await asyncio.wait(asked, timeout=self._again_after)
                if not done:
                    # The first call goes on: a provider that is merely slow answers it.
                    asked.append(asyncio.create_task(self._ask(), name="loadtrim-ask-for-token-again"))
                return await self._first_of(asked)
        except TimeoutError as error:
            if all(each.done() for each in asked):
                raise  # the provider's own
            text = f"sasl_oauth_token_provider has not returned a token for {self._timeout:g} s"
            raise TimeoutError(text) from error
        finally:
            for each in asked:
                each.cancel()

    @staticmethod
    async def _first_of(asked: list[asyncio.Task[str]]) -> str:
        """Return the first token, or raise what the last of them raises."""
        under_way = set(asked)
        while True:
            done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            answered = [each for each in done if each.exception() is None]
            if answered or not under_way:
                return (answered or list(done))[0].result()

    async def _ask(self) -> str:
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
    METADATA = "metadata"


BACKGROUND = (Channel.METADATA, Channel.TELEMETRY, Channel.REPORT, Channel.LOOK)
"""No record is later where these wait."""
BACKGROUND_WAIT_SECONDS = 0.05
"""For so long a request of the background waits for a connection that is in use. Chosen: some times what a commit takes
(7 ms), so that it seldom is what another connection is made for."""


def connect_seconds(session_timeout: float) -> float:
    """Return how long a connection to the coordinator may take, seconds: several tries must fit into one session."""
    return min(CONNECT_SECONDS, max(CONNECT_SECONDS_MIN, session_timeout / 4))


class Client(AIOKafkaClient):  # type: ignore[misc]
    """As aiokafka's, except for where its connections come from, three things that it never recovers from, and two that
    cost it a minute.

    * Requests take their connections from a pool (:mod:`.pool`); ``group`` names the channel.
    * A bootstrap server whose answer names no broker: aiokafka keeps that connection to ask again, and when it is
      closed has no broker to ask, for ever. Here the next bootstrap server, or the same, is asked anew.
    * Brokers that were all replaced while this client was cut off: aiokafka asks those that it knows, for ever. Here
      the bootstrap servers are asked when none of them answers (KIP-899).
    * An error that aiokafka does not expect while it updates its metadata: its task for that ends. Here it is said, and
      the next update is made.
    * A broker that takes connections and never answers, as one that is frozen: aiokafka waits for
      ``request_timeout_ms``, and connects to no other broker meanwhile. Here each connection is made on its own, within
      a time.
    * A broker that froze with connections open, and is asked for metadata: aiokafka waits as long for its answer. Here
      another is asked after seconds.

    Args:
        pool: of its connections.
        creates_topics: whether a broker may make a topic that it is asked about (``auto.create.topics.enable``).
        settings: of aiokafka's client.
    """

    def __init__(self, pool: ConnectionPool, *, creates_topics: bool = True, **settings: Any) -> None:
        super().__init__(**settings)
        self._pool = pool
        self._creates_topics = creates_topics
        self._retry_seconds = retry_seconds(settings)
        self.cluster_id = ""
        """The cluster's own name, as the last answer tells it; empty: none has told it."""
        self._update_broke = False
        """The last update of the metadata broke, and it was said."""

    async def bootstrap(self) -> None:
        """Connect.

        Raises:
            KafkaConnectionError: no bootstrap server answers, or none names a broker.
        """
        self._pool.observe(self)
        for tried in range(BOOTSTRAP_TRIES):
            await super().bootstrap()
            if self.cluster.brokers():
                return
            self._conns.pop(("bootstrap", ConnectionGroup.DEFAULT)).close()
            await asyncio.sleep(self._retry_seconds * 2**tried)
        raise KafkaConnectionError(
            f"Unable to bootstrap from {self.hosts}: no answer names a broker. Does the broker accept this user's "
            "credentials, and has it finished its start?"
        )

    async def close(self) -> None:
        """Ask for no metadata any more. The connections are the pool's."""
        self._pool.forget(self)
        await super().close()

    # -- requests ------------------------------------------------------------------------------------------------

    async def ready(self, node_id: Any, *, group: Any = ConnectionGroup.DEFAULT) -> bool:
        """Return whether the node takes connections; afterwards one is there."""
        try:
            connections, channel, taken = await self._take(node_id, group)
        except NodeNotReadyError:
            return False
        connections.give_back(channel, taken, 0.0)
        return True

    async def send(self, node_id: Any, request: Any, *, group: Any = ConnectionGroup.DEFAULT) -> Any:
        """Send a request and return its answer.

        Raises:
            NodeNotReadyError: there is no connection. KafkaConnectionError: it broke. RequestTimedOutError: no answer
            within ``request_timeout_ms``.
        """
        connections, channel, taken = await self._take(node_id, group)
        throttle_seconds = 0.0
        try:
            async with asyncio.timeout(self._request_timeout_ms / 1000):
                answer = await taken.connection.send(request)
            throttle_seconds = getattr(answer, "throttle_time_ms", 0) / 1000
            return answer
        except TimeoutError as error:
            taken.connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
            raise RequestTimedOutError from error
        finally:
            connections.give_back(channel, taken, throttle_seconds)

    def cut(self, node_id: Any, group: Any) -> None:
        """Close the connection of a channel, and those to the same node that no request uses."""
        broker = self.cluster.broker_metadata(node_id)
        if broker is not None:
            self._pool.to((broker.host, broker.port)).cut((self, group))

    async def _take(self, node_id: Any, group: Any) -> tuple[Any, Any, Any]:
        channel = (self, group)
        try:
            connections = self._pool.to(self._address(node_id))
            taken = await connections.take(channel, BACKGROUND_WAIT_SECONDS if group in BACKGROUND else 0.0)
        except (KafkaError, OSError, TimeoutError) as error:
            if not isinstance(error, NodeNotReadyError):
                their_log.error("Unable connect to node with id %s: %s", node_id, error)
                # As after any connection that fails: what is known of the cluster may be out of date.
                self.force_metadata_update()
            raise NodeNotReadyError(f"Node {node_id} does not take connections") from error
        return connections, channel, taken

    def _address(self, node_id: Any) -> Address:
        if isinstance(node_id, tuple):
            return node_id  # a bootstrap server, of which nothing else is known
        broker = self.cluster.broker_metadata(node_id)
        if broker is None:
            raise StaleMetadata(f"Broker id {node_id} not in current metadata")
        return broker.host, broker.port

    # -- metadata ------------------------------------------------------------------------------------------------

    async def _metadata_update(self, cluster_metadata: Any, topics: Any) -> bool:
        # aiokafka's task that calls this ends by any error, and in silence. Every wait for metadata would then last for
        # ever.
        try:
            updated = await self._update_in_time(cluster_metadata, topics)
        except Exception as error:
            log.log(logging.DEBUG if self._update_broke else logging.ERROR, UPDATE_BROKE, error, exc_info=error)
            self._update_broke = True
            cluster_metadata.failed_update(None)
            return False
        self._update_broke = False
        return updated

    async def _update_in_time(self, cluster_metadata: Any, topics: Any) -> bool:
        request = MetadataRequest(list(topics) if topics else None, self._creates_topics)
        for seconds in METADATA_SECONDS:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await self._ask_for_metadata(cluster_metadata, request)
            log.debug("No node has answered which brokers lead %s within %.1f s; asking again", topics, seconds)
        # On a network as slow as that the answer takes its time.
        return await self._ask_for_metadata(cluster_metadata, request)

    async def _ask_for_metadata(self, cluster_metadata: Any, request: MetadataRequest) -> bool:
        asked: list[Any] = []
        for node in self._nodes_to_ask():
            asked.append(node)
            try:
                metadata = await self.send(node, request, group=Channel.METADATA)
            except NodeNotReadyError:
                continue
            except KafkaError as error:
                their_log.warning("Unable to request metadata from node with id %s: %r", node, error)
                continue
            if not metadata.brokers:
                return False
            cluster_metadata.update_metadata(metadata)
            self.cluster_id = getattr(metadata, "cluster_id", None) or self.cluster_id
            return True
        their_log.error("Unable to update metadata from %s", asked)
        cluster_metadata.failed_update(None)
        return False

    def _nodes_to_ask(self) -> Iterator[Any]:
        """Yield the brokers that are known, in any order, and then the bootstrap servers that are none of these."""
        brokers = self.cluster.brokers()
        nodes = [broker.nodeId for broker in brokers]
        random.shuffle(nodes)
        yield from nodes
        known = {(broker.host, broker.port) for broker in brokers}
        yield from ((host, port) for host, port, _ in self.hosts if (host, port) not in known)


class Connections:
    """Requests over one client of aiokafka's, with a channel and a time limit each.

    Args:
        settings: the user's constructor arguments; those of :data:`CONNECTION_SETTINGS` are used.
        pool: where the connections come from; None: a pool of its own.
        request_timeout: upper bound of any request, seconds: above the longest that is asked for.
        creates_topics: whether a broker may make a topic by itself that it is asked about.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        pool: ConnectionPool | None = None,
        *,
        request_timeout: float = 0.0,
        creates_topics: bool = True,
    ) -> None:
        taken = {name: settings[name] for name in CONNECTION_SETTINGS if name in settings}
        taken["request_timeout_ms"] = request_timeout_ms(taken, request_timeout)
        self.retry_backoff = retry_seconds(taken)
        self.pool = pool if pool is not None else ConnectionPool(settings, request_timeout=request_timeout)
        self._owns_pool = pool is None
        self.client = Client(self.pool, creates_topics=creates_topics, **taken)

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
        """Ask any broker for a topic's partitions: (error code, their numbers). No broker makes it for the asking.

        Raises:
            KafkaError: no connection. TimeoutError: no answer in time.
        """
        node = self.client.get_random_node()
        if node is None:
            raise NodeNotReadyError("no broker is known")
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
        self._away = False
        """The coordinator could not be reached, or there was none, since it was found last."""

    async def find(self) -> bool:
        """Look the coordinator up, and have a connection to it.

        Returns:
            Whether it may have nothing in mind but what was stored: it is another broker than before, or was away.

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
        was_away, self._away = self._away, self._away or asked == self._node
        answer = await self._connections.send(asked, Channel.OFFSETS, request, timeout=timeout)
        if answer.error_code:
            self._away = True
            raise for_code(answer.error_code)()
        before, self._node = self._node, int(answer.coordinator_id)
        self._away = True
        node = self._node
        if client.cluster.broker_metadata(node) is None:
            await client.force_metadata_update()
        await self._connections.connect(node, Channel.HEARTBEAT)
        self._away = False
        return was_away or before not in (None, node)

    async def ask(self, channel: Channel, request: Any, *, timeout: float) -> Any:
        """Send one request and wait for its answer; raises what :meth:`Connections.send` does."""
        if self._node is None:
            raise KafkaError("the coordinator is not known")
        return await self._connections.send(self._node, channel, request, timeout=timeout)

    def cut(self, channel: Channel) -> None:
        """Close one channel's connection; its next request goes over another."""
        self._connections.cut(self._node, channel)
