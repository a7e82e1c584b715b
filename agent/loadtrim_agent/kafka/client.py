"""The client of aiokafka on connections from a pool, mended where it goes on with what reaches no broker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Any

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError, RequestTimedOutError, StaleMetadata
from aiokafka.protocol.metadata import MetadataRequest

from .pool import Address, ConnectionPool

__all__ = ["METADATA", "Client"]

log = logging.getLogger("loadtrim")
their_log = logging.getLogger("aiokafka")

BOOTSTRAP_TRIES = 5
METADATA = "metadata"
"""Channel of the requests for metadata."""
METADATA_SECONDS = (2.0, 2.0, 4.0)
"""Chosen: longest waits for metadata; after each, a node is drawn anew. Where one of three nodes is frozen, that is the
frozen one each time in one case of 27."""


class Client(AIOKafkaClient):  # type: ignore[misc]
    """As aiokafka's, except for where its connections come from, one thing that it never recovers from, and two that
    cost it a minute.

    * Requests take their connections from a pool (:mod:`.pool`); ``group`` names the channel.
    * A bootstrap server whose answer names no broker: aiokafka keeps that connection to ask again, and when it is
      closed has no broker to ask, for ever. Here the next bootstrap server, or the same, is asked anew.
    * A broker that takes connections and never answers, as one that is frozen: aiokafka waits for
      ``request_timeout_ms``, and connects to no other broker meanwhile. Here each connection is made on its own, within
      a time.
    * A broker that froze with connections open, and is asked for metadata: aiokafka waits as long for its answer. Here
      another is asked after seconds.

    Args:
        pool: of its connections.
        waits: channel -> seconds that its requests wait for an idle connection before another is made; a channel
            that is left out waits no longer than it takes to make one.
        settings: of aiokafka's client.
    """

    def __init__(self, pool: ConnectionPool, waits: dict[Any, float], **settings: Any) -> None:
        super().__init__(**settings)
        self._pool = pool
        self._waits = waits
        self._retry_seconds = int(settings.get("retry_backoff_ms", 100)) / 1000

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
            taken = await connections.take(channel, self._waits.get(group, 0.0))
        except (KafkaError, OSError, TimeoutError) as error:
            if not isinstance(error, NodeNotReadyError):
                their_log.error("Unable connect to node with id %s: %s", node_id, error)
                # As after any connection that fails: what is known of the cluster may be out of date.
                self.force_metadata_update()
            raise NodeNotReadyError(f"Node {node_id} does not take connections") from error
        return connections, channel, taken

    def _address(self, node_id: Any) -> Address:
        broker = self.cluster.broker_metadata(node_id)
        if broker is None:
            raise StaleMetadata(f"Broker id {node_id} not in current metadata")
        return broker.host, broker.port

    # -- metadata ------------------------------------------------------------------------------------------------

    async def _metadata_update(self, cluster_metadata: Any, topics: Any) -> bool:
        request = MetadataRequest(list(topics) if topics else None)
        for seconds in METADATA_SECONDS:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return await self._ask_for_metadata(cluster_metadata, request)
            log.debug("No node has answered which brokers lead %s within %.1f s; asking again", topics, seconds)
        # On a network as slow as that the answer takes its time.
        return await self._ask_for_metadata(cluster_metadata, request)

    async def _ask_for_metadata(self, cluster_metadata: Any, request: MetadataRequest) -> bool:
        nodes = [broker.nodeId for broker in self.cluster.brokers()]
        random.shuffle(nodes)
        for node in nodes:
            try:
                metadata = await self.send(node, request, group=METADATA)
            except NodeNotReadyError:
                continue
            except KafkaError as error:
                their_log.warning("Unable to request metadata from node with id %s: %r", node, error)
                continue
            if not metadata.brokers:
                return False
            cluster_metadata.update_metadata(metadata)
            return True
        their_log.error("Unable to update metadata from %s", nodes)
        cluster_metadata.failed_update(None)
        return False
