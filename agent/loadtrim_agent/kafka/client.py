"""aiokafka's client, mended where it goes on with what reaches nobody."""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Any

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaConnectionError, KafkaError
from aiokafka.protocol.admin import ApiVersionRequest

__all__ = ["Client"]

log = logging.getLogger("loadtrim")

BOOTSTRAP_TRIES = 5
REFUSED = (
    "The broker refused the OAUTHBEARER token of a new connection to node %s; the next try asks "
    "sasl_oauth_token_provider for another. If it goes on: is the token out of date, or this machine's clock wrong?"
)


class Client(AIOKafkaClient):  # type: ignore[misc]
    """As aiokafka's, except for two things that it never recovers from.

    * A bootstrap server whose answer names no broker: aiokafka keeps that connection to ask again, and when it is
      closed has no broker to ask, for ever. Here the next bootstrap server, or the same, is asked anew.
    * A refused OAUTHBEARER token: the refusal is an ordinary answer that holds the reason (RFC 7628, 3.2.3), which
      aiokafka takes for success, so that every request fails with IllegalSaslState until the broker closes the
      connection. Here a new connection is asked for its versions first, which takes a round trip.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
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
        connection = await super()._get_conn(node_id, group=group, no_hint=no_hint)
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

    async def _is_accepted(self, connection: Any) -> bool:
        try:
            answer = await connection.send(ApiVersionRequest())
        except (KafkaError, OSError, TimeoutError):
            return False
        return not answer.error_code
