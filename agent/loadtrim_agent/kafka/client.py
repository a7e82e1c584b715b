"""aiokafka's client, mended where it goes on with what reaches nobody."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from typing import Any

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.admin import ApiVersionRequest

__all__ = ["CONNECT_SECONDS", "Client"]

log = logging.getLogger("loadtrim")

BOOTSTRAP_TRIES = 5
CONNECT_SECONDS = 10.0
"""A node that has not taken a connection by then is tried again later. Source: ``socket.connection.setup.timeout.ms``,
whose default in Kafka's own clients this is."""
METADATA_SECONDS = (2.0, 2.0, 4.0)
"""Chosen: longest waits for metadata; after each, a node is drawn anew. Where one of three nodes is frozen, that is the
frozen one each time in one case of 27."""
REFUSED = (
    "The broker refused the OAUTHBEARER token of a new connection to node %s; the next try asks "
    "sasl_oauth_token_provider for another. If it goes on: is the token out of date, or this machine's clock wrong?"
)


class Client(AIOKafkaClient):  # type: ignore[misc]
    """As aiokafka's, except for two things that it never recovers from, and two that cost it a minute.

    * A bootstrap server whose answer names no broker: aiokafka keeps that connection to ask again, and when it is
      closed has no broker to ask, for ever. Here the next bootstrap server, or the same, is asked anew.
    * A refused OAUTHBEARER token: the refusal is an ordinary answer that holds the reason (RFC 7628, 3.2.3), which
      aiokafka takes for success, so that every request fails with IllegalSaslState until the broker closes the
      connection. Here a new connection is asked for its versions first, which takes a round trip.
    * A broker that takes connections and never answers, as one that is frozen: aiokafka waits for
      ``request_timeout_ms``, and connects to no other broker meanwhile. Here each connection is made on its own, within
      a time.
    * A broker that froze with connections open, and is asked for metadata: aiokafka waits as long for its answer. Here
      another is asked after seconds.

    Args:
        connect_timeout: longest wait for a new connection at the first try, seconds.
        settings: of aiokafka's client.
    """

    def __init__(self, *, connect_timeout: float = CONNECT_SECONDS, **settings: Any) -> None:
        super().__init__(**settings)
        self._connect_timeout = connect_timeout
        self._connecting: dict[Any, asyncio.Lock] = {}
        self._limits: dict[Any, float] = {}
        """Longest wait for the next connection to a node that was too slow, seconds: it is given longer each time."""
        self._retry_seconds = int(settings.get("retry_backoff_ms", 100)) / 1000
        self._unsure = settings.get("sasl_mechanism") == "OAUTHBEARER"
        self._accepted: weakref.WeakSet[Any] = weakref.WeakSet()
        self._asking = asyncio.Lock()

    async def bootstrap(self) -> None:
        """Connect.

        Raises:
            KafkaConnectionError: no bootstrap server answers, or none names a broker.
        """
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

    async def _get_conn(
        self, node_id: Any, *, group: Any = ConnectionGroup.DEFAULT, no_hint: bool = False
    ) -> Any | None:
        connection = await self._connected(node_id, group, no_hint=no_hint)
        if not self._unsure or connection is None or connection in self._accepted:
            return connection
        async with self._asking:
            if connection not in self._accepted and await self._is_accepted(connection):
                self._accepted.add(connection)
        if connection in self._accepted:
            return connection
        log.error(REFUSED, node_id)
        connection.close()
        return None

    @property
    def _get_conn_lock(self) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext()

    async def _connected(self, node_id: Any, group: Any, *, no_hint: bool) -> Any | None:
        known = self._conns.get((node_id, group))
        if known is not None and known.connected():  # nearly every request
            return known
        async with self._connecting.setdefault((node_id, group), asyncio.Lock()):
            limit = self._limits.get(node_id, self._connect_timeout)
            try:
                async with asyncio.timeout(limit):
                    connection = await super()._get_conn(node_id, group=group, no_hint=no_hint)
            except TimeoutError:
                log.debug("Node %s has not taken a connection within %.1f s", node_id, limit)
                self._limits[node_id] = max(limit, min(2 * limit, CONNECT_SECONDS))
                # As after any connection that fails: what is known of the cluster may be out of date.
                self.force_metadata_update()
                return None
            if connection is not None:
                self._limits.pop(node_id, None)
            return connection

    async def _metadata_update(self, cluster_metadata: Any, topics: Any) -> bool:
        for seconds in METADATA_SECONDS:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    return bool(await super()._metadata_update(cluster_metadata, topics))
            log.debug("No node has answered which brokers lead %s within %.1f s; asking again", topics, seconds)
        # On a network as slow as that the answer takes its time.
        return bool(await super()._metadata_update(cluster_metadata, topics))

    async def _is_accepted(self, connection: Any) -> bool:
        try:
            answer = await connection.send(ApiVersionRequest())
        except (KafkaError, OSError, TimeoutError):
            return False
        return not answer.error_code
