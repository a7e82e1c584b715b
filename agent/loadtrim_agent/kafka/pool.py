"""The agent's connections to the brokers: a request takes one on which nothing else waits.

Theory of operation. A broker answers one request per connection at a time. A long poll or a JoinGroup waits there, and
with it whatever follows on its connection: a heartbeat, say. A connection for each kind of request avoids that and
stands idle nearly always, for most requests are answered in milliseconds. Here no kind of request owns one:

- A request takes the idle connection that was used last, and gives it back when its answer is here.
- A *channel* is a sequence of requests that must not overtake each other. While one of them is under way, the next one
  follows on the same connection. Otherwise two requests never share one.
- Where no connection is idle, a request waits for one about as long as it takes to make another, and then another is
  made. The request takes whichever is there first, so it waits for about twice that time at most.
- A connection that the broker does not read from for a while (a quota, KIP-219) stays with its channel until it does.
- No answer in time: the connection is closed, and with it all that are idle to the same broker. They may be as silent.
- What was idle for :data:`IDLE_SECONDS` is closed. One stays, as long as a request is under way to the same broker.

So there are about as many connections to a broker as requests were under way at once in the last half minute, and never
more than channels.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Mapping
from typing import Any, Protocol
from weakref import WeakValueDictionary

import msgspec
from aiokafka import __version__
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import CloseReason, create_conn
from aiokafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError
from aiokafka.protocol.admin import ApiVersionRequest

from .backoff import Backoff
from .receiving import AnswersProtocol

__all__ = [
    "CONNECT_SECONDS",
    "IDLE_SECONDS",
    "UNREACHABLE",
    "Address",
    "BreakObserver",
    "ConnectionPool",
    "PooledConnection",
    "request_timeout_ms",
    "retry_seconds",
]

log = logging.getLogger("loadtrim")

Address = tuple[str, int]
"""Host and port."""

UNREACHABLE = (KafkaError, OSError, TimeoutError)
"""No answer, or none that can be used."""

CONNECT_SECONDS = 10.0
"""A broker that has not taken a connection by then is tried again later. Source: the default of
``socket.connection.setup.timeout.ms`` in Kafka's own clients."""
IDLE_SECONDS = 30.0
"""A connection that no request has used for so long is closed. Chosen: some times the longest pause between two
requests of a quiet member, which is that between two commits (``auto_commit_interval_ms``, 5 s)."""
SWEEPS = 3
"""In so many parts of :data:`IDLE_SECONDS` it is looked once what to close."""
CLOSED = "the connections are being closed"
REFUSED = (
    "The broker refused the OAUTHBEARER token of a new connection to %s:%d; the next try asks "
    "sasl_oauth_token_provider for another. If it goes on: is the token out of date, or this machine's clock wrong? "
    "Said once until one is accepted."
)
RAISED = (
    "A new connection to %s:%d could not be made. sasl_oauth_token_provider, Kerberos or what else proves who this "
    "user is has raised %r. The consumer goes on, and tries again. Said once until a connection is made."
)
_ARGUMENTS = {
    "client_id": "client_id",
    "ssl_context": "ssl_context",
    "security_protocol": "security_protocol",
    "connections_max_idle_ms": "max_idle_ms",
    "sasl_mechanism": "sasl_mechanism",
    "sasl_plain_username": "sasl_plain_username",
    "sasl_plain_password": "sasl_plain_password",
    "sasl_kerberos_service_name": "sasl_kerberos_service_name",
    "sasl_kerberos_domain_name": "sasl_kerberos_domain_name",
    "sasl_oauth_token_provider": "sasl_oauth_token_provider",
}
"""Settings of a client of aiokafka, and how its connections call them."""
_DEFAULTS = {"client_id": f"aiokafka-{__version__}", "max_idle_ms": 540_000, "sasl_mechanism": "PLAIN"}
"""Defaults of aiokafka's client, where its connections have others."""
REQUEST_TIMEOUT_MS, RETRY_BACKOFF_MS = 40_000, 100
"""Defaults of aiokafka."""


def request_timeout_ms(settings: Mapping[str, Any], least_seconds: float) -> int:
    """Return how long a request may take by a client's settings, or this where it is longer."""
    return max(int(least_seconds * 1000), int(settings.get("request_timeout_ms", REQUEST_TIMEOUT_MS)))


def retry_seconds(settings: Mapping[str, Any]) -> float:
    """Return the wait before a first further try, by a client's settings."""
    return int(settings.get("retry_backoff_ms", RETRY_BACKOFF_MS)) / 1000


class BreakObserver(Protocol):
    """The observer is told of connections that break: what it knows of the cluster may be out of date."""

    def force_metadata_update(self) -> object:
        """A connection has broken."""


class PooledConnection(msgspec.Struct, eq=False):
    """One connection to a broker."""

    connection: Any
    """Connection of aiokafka."""
    requests: int = 0
    """Requests under way. Invariant: all are of one channel."""
    idle_since: float = 0.0
    """Time of the loop at which the last request ended."""
    reads_at: float = 0.0
    """Time of the loop before which the broker reads nothing of it."""

    @property
    def usable(self) -> bool:
        """Return whether it stands, and no answer is to come that nobody waits for."""
        return self.connection.connected() and not self.connection._requests


class _Waiter(msgspec.Struct, eq=False):
    """A request for which no connection was idle."""

    taken: asyncio.Future[PooledConnection]
    wait_seconds: float
    """Least wait before another connection is made, seconds."""
    overdue: bool = False
    """Set when it has waited for so long, and for as long as a new connection takes."""


class _NoToken(Exception):
    """The cause is what the token provider raised. It may look as if the broker were not reached: a TimeoutError."""


class _TokenOutsideLimit(AbstractTokenProvider):  # type: ignore[misc]
    """A token provider that stops the time limit of one connection meanwhile: a token has a limit of its own.

    Args:
        provider: gives the token.
        limit: of the connection; entered.
    """

    def __init__(self, provider: AbstractTokenProvider, limit: asyncio.Timeout) -> None:
        self._provider = provider
        self._limit = limit

    async def token(self) -> str:
        """Return the provider's token, or raise _NoToken from what it raises."""
        loop = asyncio.get_running_loop()
        left = (self._limit.when() or loop.time()) - loop.time()
        self._limit.reschedule(None)
        try:
            return str(await self._provider.token())
        except Exception as error:
            raise _NoToken from error
        finally:
            self._limit.reschedule(loop.time() + left)

    def extensions(self) -> dict[str, str]:
        found: dict[str, str] = self._provider.extensions()
        return found


class ConnectionMaker:
    """New connections that can be used: accepted by the broker, with answers that come in as :mod:`.receiving` says.

    Args:
        settings: the user's constructor arguments.
        request_timeout: upper bound of any request, seconds.
    """

    def __init__(self, settings: Mapping[str, Any], request_timeout: float) -> None:
        named = {name: settings[given] for given, name in _ARGUMENTS.items() if given in settings}
        self._arguments = _DEFAULTS | named | {"request_timeout_ms": request_timeout_ms(settings, request_timeout)}
        self._unsure = settings.get("sasl_mechanism") == "OAUTHBEARER"
        self._said: set[tuple[Address, str]] = set()
        """Brokers and what was said of each since it took a connection. Invariant: two texts a broker at most."""
        self.observers: dict[BreakObserver, None] = {}
        """In the order in which they came, as all that has effects: by address, a seed would not repeat a run."""

    async def make(self, broker: Address, limit_seconds: float) -> tuple[Any, float]:
        """Return a new connection of aiokafka's, and the seconds that it took, less the wait for a token.

        Args:
            broker: where to.
            limit_seconds: longest time that it may take, less the wait for a token.

        Raises:
            KafkaError, OSError, TimeoutError: the broker does not take it.
        """
        async with asyncio.timeout(limit_seconds) as limit:
            made = await self._accepted(broker, self._with_limit(limit))
            # The limit stood still meanwhile, so what it has left tells the time without the token's.
            left = (limit.when() or 0.0) - asyncio.get_running_loop().time()
            return made, limit_seconds - left

    def _with_limit(self, limit: asyncio.Timeout) -> dict[str, Any]:
        provider = self._arguments.get("sasl_oauth_token_provider")
        if not isinstance(provider, AbstractTokenProvider):
            return self._arguments
        return self._arguments | {"sasl_oauth_token_provider": _TokenOutsideLimit(provider, limit)}

    async def _accepted(self, broker: Address, arguments: Mapping[str, Any]) -> Any:
        try:
            connection = await create_conn(*broker, on_close=self._closed, **arguments)
        except UNREACHABLE:
            raise
        except Exception as raised:
            # A token provider and Kerberos raise what they like. It may be well again at the next try.
            error = raised.__cause__ if isinstance(raised, _NoToken) else raised
            self._say(broker, RAISED, error)
            raise KafkaConnectionError(f"the connection could not be made: {error!r}") from error
        try:
            if self._unsure and not await self._is_accepted(connection):
                self._say(broker, REFUSED)
                raise KafkaConnectionError("the broker refused the token")
            self._said -= {(broker, RAISED), (broker, REFUSED)}
            AnswersProtocol.take_over(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _say(self, broker: Address, text: str, *arguments: object) -> None:
        """Say it once until the broker takes a connection: each channel tries again and again."""
        log.log(logging.DEBUG if (broker, text) in self._said else logging.ERROR, text, *broker, *arguments)
        self._said.add((broker, text))

    async def _is_accepted(self, connection: Any) -> bool:
        # A refusal is an ordinary answer that holds the reason (RFC 7628, 3.2.3), which aiokafka takes for success. All
        # requests would fail with IllegalSaslState then, until the broker closes the connection.
        try:
            answer = await connection.send(ApiVersionRequest())
        except UNREACHABLE:
            return False
        return not answer.error_code

    def _closed(self, connection: Any, reason: CloseReason | None) -> None:
        if reason in (CloseReason.CONNECTION_BROKEN, CloseReason.CONNECTION_TIMEOUT):
            for observer in list(self.observers):
                observer.force_metadata_update()


class _Reach:
    """The way in which a broker has taken connections so far.

    Args:
        backoff: after failures in a row.
        limit_seconds: longest wait for a connection.
    """

    def __init__(self, backoff: Backoff, limit_seconds: float) -> None:
        self._backoff = backoff
        self._limit_first_seconds = limit_seconds
        self.limit_seconds = limit_seconds
        """Longest wait for the next connection: a broker that was too slow is given longer each time."""
        self.refused_until = float("-inf")
        """Time of the loop before which no connection is tried."""
        self.fastest_seconds = 0.0
        """Least time that a connection took, less the wait for a token; 0: there was none."""

    def succeeded(self, took_seconds: float) -> None:
        """A connection is there."""
        self.fastest_seconds = min(took_seconds, self.fastest_seconds or took_seconds)
        self.limit_seconds = self._limit_first_seconds
        self._backoff.succeeded()

    def failed(self, error: BaseException, now: float) -> None:
        """A connection was refused, or took too long."""
        if isinstance(error, TimeoutError):
            self.limit_seconds = max(self.limit_seconds, min(2 * self.limit_seconds, CONNECT_SECONDS))
        self.refused_until = now + self._backoff.failed()


class BrokerConnections:
    """The connections to one broker.

    Args:
        broker: where it is.
        maker: makes new ones.
        reach: how the broker has taken connections so far.
    """

    def __init__(self, broker: Address, maker: ConnectionMaker, reach: _Reach) -> None:
        self._broker = broker
        self._maker = maker
        self._reach = reach
        self._idle: list[PooledConnection] = []
        """The one used last is the last."""
        self._held: dict[Hashable, PooledConnection] = {}
        """Channel -> the connection of its requests under way."""
        self._turns: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        """Channel -> its request that looks for a connection: requests leave in the order in which they were made."""
        self._waiting: list[_Waiter] = []
        """In the order in which they came."""
        self._making: dict[asyncio.Task[PooledConnection], None] = {}
        """In the order in which they began. Invariant: at least as many as there are overdue requests."""
        self._closed = False

    # -- taking and giving back ----------------------------------------------------------------------------------

    async def take(self, channel: Hashable, wait_seconds: float) -> PooledConnection:
        """Return a connection for one more request of a channel.

        Args:
            channel: whose.
            wait_seconds: how long the request waits, at least, before another connection is made.

        Raises:
            KafkaError, OSError, TimeoutError: none can be had.
        """
        turn = self._turns.setdefault(channel, asyncio.Lock())
        async with turn:
            if self._closed:
                raise KafkaConnectionError(CLOSED)
            taken = self._held.get(channel)
            if taken is None or not taken.connection.connected():
                taken = self._last_used() or await self._wait(wait_seconds)
                self._held[channel] = taken
            taken.requests += 1
            return taken

    def _last_used(self) -> PooledConnection | None:
        while self._idle:
            found = self._idle.pop()
            if found.usable:
                return found
            found.connection.close()
        return None

    async def _wait(self, wait_seconds: float) -> PooledConnection:
        waiter = _Waiter(asyncio.get_running_loop().create_future(), wait_seconds)
        self._waiting.append(waiter)
        try:
            if self._held:
                await asyncio.wait([waiter.taken], timeout=max(wait_seconds, self._reach.fastest_seconds))
            if not waiter.taken.done():
                waiter.overdue = True
                self._make_missing()
            return await waiter.taken
        except asyncio.CancelledError:
            if waiter.taken.done() and not waiter.taken.cancelled() and waiter.taken.exception() is None:
                self._offer(waiter.taken.result())
            raise
        finally:
            self._waiting.remove(waiter)

    def give_back(self, channel: Hashable, given: PooledConnection, throttle_seconds: float) -> None:
        """End one request.

        Args:
            channel: whose.
            given: its connection.
            throttle_seconds: for so long the broker reads nothing more of it.
        """
        given.requests -= 1
        loop = asyncio.get_running_loop()
        if throttle_seconds > 0:
            given.reads_at = max(given.reads_at, loop.time() + throttle_seconds)
        if given.reads_at > loop.time() and given.connection.connected():
            loop.call_at(given.reads_at, self._release, channel, given)
        else:
            self._release(channel, given)

    def _release(self, channel: Hashable, given: PooledConnection) -> None:
        if given.requests or given.reads_at > asyncio.get_running_loop().time():
            return  # it is released by what ends later
        if self._held.get(channel) is given:
            del self._held[channel]
            self._offer(given)
        # Else it is closed, because it broke or was cut, or it was released before.

    def _offer(self, offered: PooledConnection) -> None:
        """Give a connection to the request that waits and may wait least, or keep it for the next."""
        if not offered.usable:
            # A request that nobody waits for any more: its answer would hold up the next one's.
            offered.connection.close()
            return
        waiting = [each for each in self._waiting if not each.taken.done()]
        if waiting:
            min(waiting, key=lambda each: each.wait_seconds).taken.set_result(offered)
            return
        offered.idle_since = asyncio.get_running_loop().time()
        self._idle.append(offered)

    # -- making --------------------------------------------------------------------------------------------------

    def _make_missing(self) -> None:
        """Make as many connections as there are overdue requests."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        overdue = [each for each in self._waiting if each.overdue and not each.taken.done()]
        for waiter in overdue[len(self._making) :]:
            if loop.time() < self._reach.refused_until:
                error = NodeNotReadyError(f"{self._broker} did not take a connection a moment ago")
                waiter.taken.set_exception(error)
                continue
            making = loop.create_task(self._make(), name="loadtrim-connecting")
            self._making[making] = None
            making.add_done_callback(self._made)

    async def _make(self) -> PooledConnection:
        made, took_seconds = await self._maker.make(self._broker, self._reach.limit_seconds)
        self._reach.succeeded(took_seconds)
        return PooledConnection(made)

    def _made(self, making: asyncio.Task[PooledConnection]) -> None:
        self._making.pop(making, None)
        error = KafkaConnectionError("making it was cancelled") if making.cancelled() else making.exception()
        if error is None:
            self._offer(making.result())
        else:
            self._reach.failed(error, asyncio.get_running_loop().time())
            waiter = next((each for each in self._waiting if each.overdue and not each.taken.done()), None)
            if waiter is not None:
                waiter.taken.set_exception(error)
        # Whichever request was served, or has come meanwhile: none waits for a connection that nobody makes.
        self._make_missing()

    # -- closing -------------------------------------------------------------------------------------------------

    def cut(self, channel: Hashable) -> None:
        """Close a channel's connection, and all that are idle."""
        held = self._held.pop(channel, None)
        if held is not None:
            held.connection.close()
        idle, self._idle = self._idle, []
        for each in idle:
            each.connection.close()

    def close_idle(self, since: float) -> None:
        """Close what is idle since then or longer, or was closed by the broker.

        The one used last stays while a request is under way, as a long poll always is: what is taken over waits for no
        handshake then.
        """
        kept: list[PooledConnection] = []
        for each in self._idle:
            ready = each is self._idle[-1] and bool(self._held)
            if each.usable and (ready or each.idle_since > since):
                kept.append(each)
            else:
                each.connection.close(reason=CloseReason.IDLE_DROP)
        self._idle = kept

    async def close(self) -> None:
        """Close all of them; there will be no others."""
        self._closed = True
        making = list(self._making)
        for task in making:
            task.cancel()
        await asyncio.gather(*making, return_exceptions=True)
        gone = [each.connection.close(reason=CloseReason.SHUTDOWN) for each in [*self._held.values(), *self._idle]]
        self._held.clear()
        self._idle.clear()
        for waiter in self._waiting:
            if not waiter.taken.done():
                waiter.taken.set_exception(KafkaConnectionError(CLOSED))
            elif not waiter.taken.cancelled() and waiter.taken.exception() is None:
                waiter.taken.result().connection.close()
        await asyncio.gather(*(each for each in gone if each is not None), return_exceptions=True)


class ConnectionPool:
    """The connections of one agent, shared by its clients. See the module's text.

    Args:
        settings: the user's constructor arguments; TLS and SASL are taken from them.
        request_timeout: upper bound of any request, seconds: above the longest that is asked for.
        connect_timeout: longest wait for a new connection at the first try, seconds.
    """

    def __init__(
        self, settings: Mapping[str, Any], *, request_timeout: float = 0.0, connect_timeout: float = CONNECT_SECONDS
    ) -> None:
        self.settings = settings
        """The user's constructor arguments."""
        self._maker = ConnectionMaker(settings, request_timeout)
        self._retry_seconds = retry_seconds(settings)
        self.connect_timeout = connect_timeout
        self._brokers: dict[Address, BrokerConnections] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    def observe(self, observer: BreakObserver) -> None:
        """Tell it of each connection that breaks, until :meth:`forget`."""
        self._maker.observers[observer] = None

    def forget(self, observer: BreakObserver) -> None:
        """Tell it no more."""
        self._maker.observers.pop(observer, None)

    def to(self, broker: Address) -> BrokerConnections:
        """Return the connections to a broker.

        Raises:
            KafkaConnectionError: the pool is closed.
        """
        if self._closed:
            raise KafkaConnectionError(CLOSED)
        found = self._brokers.get(broker)
        if found is None:
            reach = _Reach(Backoff(self._retry_seconds), self.connect_timeout)
            found = self._brokers[broker] = BrokerConnections(broker, self._maker, reach)
            if self._sweep is None:
                self._sweep_later()
        return found

    def _sweep_later(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(IDLE_SECONDS / SWEEPS, self._sweep_now)

    def _sweep_now(self) -> None:
        since = asyncio.get_running_loop().time() - IDLE_SECONDS
        for broker in self._brokers.values():
            broker.close_idle(since)
        self._sweep_later()

    async def close(self) -> None:
        """Close all connections; there will be no others."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        brokers, self._brokers = self._brokers, {}
        for connections in brokers.values():
            await connections.close()
