"""Which connection a request goes over, how many there are, and when they are closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaConnectionError, NodeNotReadyError

from loadtrim_agent.kafka import pool as module
from loadtrim_agent.kafka.pool import CONNECT_SECONDS, IDLE_SECONDS, ConnectionPool, PooledConnection

pytestmark = pytest.mark.looptime

BROKER = ("broker", 9092)
MAKE_SECONDS = 0.01
SOON = 0.001
"""Less than it takes to make a connection."""


class Made:
    """A connection of aiokafka's to a broker that answers when the test says so."""

    def __init__(self, on_close: Callable[[Any, CloseReason | None], None]) -> None:
        self._requests: deque[object] = deque()
        self._on_close = on_close
        self.reason: CloseReason | None = None
        self.open = True
        self.said_versions = 0

    def connected(self) -> bool:
        return self.open

    def close(self, reason: CloseReason | None = None) -> None:
        if self.open:
            self.open, self.reason = False, reason
            self._on_close(self, reason)

    async def send(self, request: object) -> SimpleNamespace:
        self.said_versions += 1
        return SimpleNamespace(error_code=0)


class Told:
    """Counts what it is told of."""

    times = 0

    def force_metadata_update(self) -> None:
        self.times += 1


class Broker:
    """Takes connections after some time, or does not."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self.seconds = MAKE_SECONDS
        self.error: BaseException | None = None
        self.tries = 0
        self.taking: Callable[[], object] = lambda: None
        """Called at the moment at which it takes a connection."""

    async def create_conn(self, host: str, port: int, *, on_close: Any, **_: object) -> Made:
        self.tries += 1
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        self.made.append(Made(on_close))
        self.taking()
        return self.made[-1]

    @property
    def open(self) -> int:
        return sum(each.open for each in self.made)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    monkeypatch.setattr(module, "create_conn", broker.create_conn)
    monkeypatch.setattr(module.AnswersProtocol, "take_over", lambda connection: None)
    return broker


@contextlib.asynccontextmanager
async def pooled(**options: Any) -> AsyncIterator[ConnectionPool]:
    pool = ConnectionPool({"retry_backoff_ms": 100}, **options)
    try:
        yield pool
    finally:
        await pool.close()


class Requests:
    """Requests of channels, each open until the test ends it."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.to = pool.to(BROKER)
        self.taken: list[tuple[str, PooledConnection]] = []
        self.tasks: dict[str, asyncio.Task[PooledConnection]] = {}

    async def begin(self, channel: str, patience: float = 0.0) -> Any:
        taken = await self.to.take(channel, patience)
        taken.connection._requests.append(channel)
        self.taken.append((channel, taken))
        return taken.connection

    def ask(self, channel: str, patience: float = 0.0) -> asyncio.Task[Any]:
        return asyncio.create_task(self.begin(channel, patience))

    def end(self, channel: str, *, throttle: float = 0.0, answered: bool = True) -> None:
        found = next(each for each in self.taken if each[0] == channel)
        self.taken.remove(found)
        if answered:
            found[1].connection._requests.popleft()
        self.to.give_back(channel, found[1], throttle)


async def test_requests_one_after_the_other_share_one_connection(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        for channel in ("heartbeat", "commit", "append", "heartbeat"):
            await requests.begin(channel)
            requests.end(channel)
        assert len(broker.made) == 1


async def test_what_waits_at_the_broker_holds_up_no_other_channel(broker: Broker) -> None:
    """A JoinGroup waits there for as long as the rebalance takes; heartbeats go on."""
    async with pooled() as pool:
        requests = Requests(pool)
        join = await requests.begin("join")
        async with asyncio.timeout(3 * MAKE_SECONDS):
            heartbeat = await requests.begin("heartbeat")
        assert heartbeat is not join


async def test_a_channel_follows_on_the_connection_of_its_request_under_way(broker: Broker) -> None:
    """On another one it could overtake it."""
    async with pooled() as pool:
        requests = Requests(pool)
        spare = await requests.begin("append")
        first = await requests.begin("commit")
        requests.end("append")
        assert spare is not first
        assert await requests.begin("commit") is first
        requests.end("commit")
        assert await requests.begin("append") is spare, "the first is still in use"
        requests.end("commit")
        requests.end("append")
        assert await requests.begin("commit") is spare, "none is under way, and this one was used last"


async def test_requests_of_a_channel_leave_in_order_while_there_is_no_connection(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        await asyncio.gather(*(requests.ask(channel) for channel in ("a", "b", "a", "b", "a")))
        for channel in "ab":
            assert len({id(taken) for name, taken in requests.taken if name == channel}) == 1
        assert broker.tries == 2


async def test_a_request_waits_for_one_in_use_as_long_as_another_would_take(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        await requests.begin("commit")
        waits = requests.ask("append")
        await asyncio.sleep(MAKE_SECONDS / 2)
        requests.end("commit")
        async with asyncio.timeout(SOON):
            await waits
        await asyncio.sleep(3 * MAKE_SECONDS)
        assert broker.tries == 1


async def test_then_another_is_made_and_whichever_is_there_first_is_taken(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        commit = await requests.begin("commit")
        waits = requests.ask("append")
        await asyncio.sleep(1.5 * MAKE_SECONDS)
        assert broker.tries == 2
        requests.end("commit")
        async with asyncio.timeout(SOON):
            assert await waits is commit
        await asyncio.sleep(MAKE_SECONDS)
        assert await requests.begin("commit") is broker.made[1], "the other one is there for the next"
        assert broker.tries == 2


async def test_what_may_wait_has_more_patience(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        await requests.begin("commit")
        waits = requests.ask("report", 0.05)
        await asyncio.sleep(0.05 - SOON)
        assert broker.tries == 1
        await waits
        assert broker.tries == 2


async def test_what_waits_first_is_served_first(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        await requests.begin("commit")
        first, second = requests.ask("append"), requests.ask("heartbeat")
        await asyncio.sleep(SOON)
        requests.end("commit")
        async with asyncio.timeout(SOON):
            await first
        assert not second.done()
        requests.end("append")
        async with asyncio.timeout(SOON):
            await second


async def test_what_has_less_patience_is_served_before_what_waits_longer(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        await requests.begin("commit")
        report = requests.ask("report", 0.05)
        await asyncio.sleep(SOON)
        heartbeat = requests.ask("heartbeat")
        await asyncio.sleep(SOON)
        requests.end("commit")
        async with asyncio.timeout(SOON):
            await heartbeat
        assert not report.done()


async def test_another_is_made_when_a_request_that_came_later_takes_what_was_made(broker: Broker) -> None:
    """A JoinGroup took it that waits for the whole rebalance, and what had it made waited just as long."""
    async with pooled() as pool:
        requests = Requests(pool)
        await requests.begin("commit")
        report = requests.ask("report", 0.05)
        await asyncio.sleep(0.05 + MAKE_SECONDS / 2)
        join = requests.ask("join")
        await asyncio.sleep(MAKE_SECONDS)
        assert (join.done(), report.done()) == (True, False)
        async with asyncio.timeout(MAKE_SECONDS):
            await report


async def test_requests_that_wait_at_once_have_a_connection_each(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        await requests.begin("commit")
        asks = [requests.ask(channel) for channel in ("telemetry", "heartbeat", "append")]
        async with asyncio.timeout(3 * MAKE_SECONDS):
            await asyncio.gather(*asks)
        assert broker.tries == 4


async def test_a_connection_that_was_just_made_counts_no_longer_as_one_in_the_making(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        await requests.begin("commit")
        async with asyncio.timeout(3 * MAKE_SECONDS):
            await requests.begin("append")


async def test_what_user_code_raises_for_a_token_ends_the_request_that_waits(broker: Broker) -> None:
    broker.error = RuntimeError("no token")
    async with pooled() as pool:
        with pytest.raises(RuntimeError, match="no token"):
            async with asyncio.timeout(1.0):
                await pool.to(BROKER).take("a", 0.0)


async def test_a_try_that_user_code_cancels_ends_the_request_that_waits(broker: Broker) -> None:
    """A token is asked for in the user's loop, whose tasks may be cancelled."""
    broker.error = asyncio.CancelledError()
    async with pooled() as pool:
        with pytest.raises(KafkaConnectionError):
            async with asyncio.timeout(1.0):
                await pool.to(BROKER).take("a", 0.0)


async def test_a_request_that_is_given_up_leaves_its_turn_to_the_next(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        await requests.begin("commit")
        given_up, waits = requests.ask("append"), requests.ask("heartbeat")
        await asyncio.sleep(SOON)
        given_up.cancel()
        requests.end("commit")
        async with asyncio.timeout(SOON):
            await waits


async def test_a_connection_handed_to_a_request_that_is_given_up_at_that_moment_is_not_lost(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        await requests.begin("commit")
        given_up = requests.ask("append")
        await asyncio.sleep(SOON)
        requests.end("commit")
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert await requests.begin("append") is broker.made[0]
        assert broker.tries == 1


async def test_a_request_that_was_given_up_at_the_broker_closes_its_connection(broker: Broker) -> None:
    """Its answer would come before the next one's, whenever that is."""
    async with pooled() as pool:
        requests = Requests(pool)
        made = await requests.begin("commit")
        requests.end("commit", answered=False)
        assert not made.open
        assert await requests.begin("commit") is not made


async def test_a_connection_that_is_throttled_stays_with_its_channel(broker: Broker) -> None:
    """The broker reads nothing of it meanwhile (KIP-219): a heartbeat would wait there and the member be evicted."""
    async with pooled() as pool:
        requests = Requests(pool)
        fetching = await requests.begin("fetch")
        requests.end("fetch", throttle=5.0)
        assert await requests.begin("heartbeat") is not fetching
        assert await requests.begin("fetch") is fetching, "it is to wait, as it was told"
        requests.end("fetch", throttle=1.0)
        await asyncio.sleep(5.0 - 6 * MAKE_SECONDS)
        assert await requests.begin("commit") is not fetching, "the longer time counts"
        await asyncio.sleep(6 * MAKE_SECONDS)
        assert await requests.begin("append") is fetching


async def test_a_throttled_connection_that_is_asked_again_is_not_given_away_under_way(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        fetching = await requests.begin("fetch")
        requests.end("fetch", throttle=1.0)
        assert await requests.begin("fetch") is fetching
        await asyncio.sleep(2.0)
        assert await requests.begin("heartbeat") is not fetching


async def test_a_connection_that_was_throttled_twice_is_given_to_one_request_only(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        fetching = await requests.begin("fetch")
        requests.end("fetch", throttle=1.0)
        assert await requests.begin("fetch") is fetching
        requests.end("fetch")
        await asyncio.sleep(2.0)
        heartbeat, commit = await requests.begin("heartbeat"), await requests.begin("commit")
        assert heartbeat is fetching
        assert commit is not fetching
        assert fetching.open


async def test_no_answer_in_time_closes_what_is_idle_as_well(broker: Broker) -> None:
    """A JoinGroup that is sent again is to go over a new connection; what was silent may be so on all."""
    async with pooled() as pool:
        requests = Requests(pool)
        join, spare, poll = [await requests.begin(channel) for channel in ("join", "append", "poll")]
        requests.end("append")
        requests.to.cut("join")
        assert (join.open, spare.open, poll.open) == (False, False, True)
        fresh = await requests.begin("join")
        assert fresh not in (join, spare, poll)
        requests.end("join", answered=False)
        assert fresh.open, "the one that was cut is given back, not the one that came after it"


async def test_what_is_idle_for_a_while_is_closed_and_told_to_nobody(broker: Broker) -> None:
    told = Told()
    async with pooled() as pool:
        pool.observe(told)
        requests = Requests(pool)
        for channel in "abc":
            await requests.begin(channel)
        for channel in "abc":
            requests.end(channel)
        for _ in range(int(2 * IDLE_SECONDS)):
            await requests.begin("heartbeat")
            requests.end("heartbeat")
            await asyncio.sleep(1.0)
        assert [each.open for each in broker.made] == [False, False, True]
        assert {each.reason for each in broker.made[:2]} == {CloseReason.IDLE_DROP}
        await asyncio.sleep(2 * IDLE_SECONDS)
        assert broker.open == 0
        assert told.times == 0


async def test_one_stays_ready_as_long_as_a_long_poll_is_out(broker: Broker) -> None:
    """A partition that is taken over waits for no handshake."""
    async with pooled() as pool:
        requests = Requests(pool)
        for channel in ("poll", "append", "commit"):
            await requests.begin(channel)
        requests.end("commit")
        requests.end("append")
        await asyncio.sleep(3 * IDLE_SECONDS)
        assert broker.open == 2
        requests.end("poll")
        await asyncio.sleep(3 * IDLE_SECONDS)
        assert broker.open == 0


async def test_one_that_breaks_is_told_and_not_taken_again(broker: Broker) -> None:
    told = Told()
    async with pooled() as pool:
        pool.observe(told)
        requests = Requests(pool)
        broken = await requests.begin("a")
        requests.end("a")
        broken.close(CloseReason.CONNECTION_BROKEN)
        assert told.times == 1
        assert await requests.begin("a") is not broken


async def test_a_channel_whose_connection_broke_takes_another_while_the_old_request_ends(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        broken = await requests.begin("a")
        broken.close(CloseReason.CONNECTION_BROKEN)
        fresh = await requests.begin("a")
        assert fresh is not broken
        requests.end("a", answered=False)
        assert await requests.begin("b") is not fresh
        assert await requests.begin("a") is fresh


async def test_a_broker_that_refuses_is_left_alone_by_every_channel(broker: Broker) -> None:
    broker.error, broker.seconds = ConnectionRefusedError("no"), 0.0
    loop = asyncio.get_running_loop()
    async with pooled() as pool:
        requests, waits = Requests(pool), []
        for _ in range(6):
            begun, before = loop.time(), broker.tries
            while broker.tries == before:
                for channel in "abc":
                    with pytest.raises((NodeNotReadyError, ConnectionRefusedError)):
                        await requests.begin(channel)
                await asyncio.sleep(0.01)
            waits.append(loop.time() - begun)
        assert waits[1:] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0], abs=0.02)
        broker.error = None
        await asyncio.sleep(1.0)
        await requests.begin("a")


async def test_a_broker_that_is_slow_is_given_longer_each_time(broker: Broker) -> None:
    """On a machine without a core to spare no try would ever come to its end."""
    broker.seconds, loop, limits = 3600.0, asyncio.get_running_loop(), []
    async with pooled(connect_timeout=2.0) as pool:
        requests = Requests(pool)
        for _ in range(5):
            begun = loop.time()
            with pytest.raises(TimeoutError):
                await requests.begin("a")
            limits.append(loop.time() - begun)
            await asyncio.sleep(1.0)
        assert limits == pytest.approx([2.0, 4.0, 8.0, CONNECT_SECONDS, CONNECT_SECONDS])
        broker.seconds = 0.0
        await requests.begin("a")
        broker.seconds, begun = 3600.0, loop.time()
        with pytest.raises(TimeoutError):
            await requests.begin("b")
        assert loop.time() - begun == pytest.approx(2.0)


async def test_requests_that_are_given_up_do_not_pile_up_connections_in_the_making(broker: Broker) -> None:
    broker.seconds = 9.0
    async with pooled() as pool:
        requests = Requests(pool)
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await requests.begin("heartbeat")
        assert broker.tries == 1
        await asyncio.sleep(5.0)
        assert await requests.begin("heartbeat") is broker.made[0], "what came late is of use to the next"


async def test_the_end_of_the_pool_is_the_end_of_what_waits(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        waits = [requests.ask(channel) for channel in "aab"]
        await asyncio.sleep(SOON)
        await pool.close()
        async with asyncio.timeout(1.0):
            results = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(each) for each in results] == [KafkaConnectionError] * 3
        with pytest.raises(KafkaConnectionError):
            pool.to(BROKER)
        assert (broker.tries, broker.open) == (2, 0)


async def test_no_connection_is_made_for_a_request_that_another_overtakes_at_the_end(broker: Broker) -> None:
    async with pooled() as pool:
        requests, ends = Requests(pool), []
        await requests.begin("commit")
        report = requests.ask("report", 0.05)
        await asyncio.sleep(0.05 + MAKE_SECONDS / 2)
        join = requests.ask("join")
        broker.taking = lambda: ends.append(asyncio.create_task(pool.close()))
        await join
        with pytest.raises(KafkaConnectionError):
            await report
        await ends[0]
        await asyncio.sleep(2 * MAKE_SECONDS)
        assert (broker.tries, broker.open) == (2, 0)


async def test_a_connection_on_its_way_to_a_request_is_closed_at_the_end_as_well(broker: Broker) -> None:
    async with pooled() as pool:
        requests = Requests(pool)
        await requests.begin("commit")
        waits = requests.ask("append")
        await asyncio.sleep(SOON)
        requests.end("commit")
        await pool.close()
        await waits
        assert broker.open == 0


async def test_a_token_that_is_refused_is_a_connection_that_failed(
    broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka takes the refusal for success, and every request fails until the broker closes the connection."""

    async def refused(self: Made, request: object) -> SimpleNamespace:
        return SimpleNamespace(error_code=34)

    pool = ConnectionPool({"sasl_mechanism": "OAUTHBEARER"})
    requests = Requests(pool)
    assert (await requests.begin("a")).said_versions == 1
    monkeypatch.setattr(Made, "send", refused)
    with pytest.raises(KafkaConnectionError):
        await requests.begin("b")
    assert broker.open == 1
    assert "refused the OAUTHBEARER token" in caplog.text
    await pool.close()


async def test_a_token_that_goes_on_being_refused_is_told_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each channel tries again and again, and each try was an error in the log."""
    maker = module.ConnectionMaker({"sasl_mechanism": "OAUTHBEARER"}, 1.0)
    accepted = [False, False, True, False]

    async def is_accepted(*_: object) -> bool:
        return accepted.pop(0)

    monkeypatch.setattr(maker, "_is_accepted", is_accepted)
    with caplog.at_level(logging.DEBUG, "loadtrim"):
        for _ in range(4):
            with contextlib.suppress(KafkaConnectionError):
                await maker.make(BROKER, 1.0)
    assert [record.levelname for record in caplog.records] == ["ERROR", "DEBUG", "ERROR"]


class IdentityProviderDown(Exception):
    """As an HTTP library's errors: neither an OSError nor one of Kafka's."""


async def test_what_a_token_provider_raises_is_a_connection_that_failed(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """It reached the request that had waited longest, a heartbeat say, and ended the consumer for good."""
    broker.error = IdentityProviderDown("503")
    async with pooled() as pool:
        requests = Requests(pool)
        with pytest.raises(KafkaConnectionError, match="IdentityProviderDown") as raised:
            await requests.begin("heartbeat")
        assert raised.value.__cause__ is broker.error
        broker.error = None
        await asyncio.sleep(CONNECT_SECONDS)
        await requests.begin("heartbeat")
    assert "IdentityProviderDown" in caplog.text


async def test_what_goes_on_being_raised_is_told_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    maker = module.ConnectionMaker({}, 1.0)
    errors = [IdentityProviderDown("503"), IdentityProviderDown("503"), None, IdentityProviderDown("503")]
    with caplog.at_level(logging.DEBUG, "loadtrim"):
        for broker.error in errors:
            with contextlib.suppress(KafkaConnectionError):
                await maker.make(BROKER, 1.0)
    assert [record.levelname for record in caplog.records] == ["ERROR", "DEBUG", "ERROR"]


class SlowProvider(AbstractTokenProvider):  # type: ignore[misc]
    """The user's identity provider takes longer than a connection may."""

    async def token(self) -> str:
        await asyncio.sleep(12.0)
        return "token"

    def extensions(self) -> dict[str, str]:
        return {"traced": "yes"}


@pytest.mark.parametrize(("seconds", "made"), [(1.0, True), (3.0, False)])
async def test_what_a_token_takes_is_no_part_of_what_a_connection_may_take(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, seconds: float, *, made: bool
) -> None:
    """No consumer ever started where a token takes longer, and its identity provider was asked again and again."""

    async def create_conn(*where: Any, sasl_oauth_token_provider: Any, **given: Any) -> Made:
        assert await sasl_oauth_token_provider.token() == "token"
        assert sasl_oauth_token_provider.extensions() == {"traced": "yes"}
        return await broker.create_conn(*where, **given)

    broker.seconds = seconds
    monkeypatch.setattr(module, "create_conn", create_conn)
    maker = module.ConnectionMaker(
        {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": SlowProvider()}, request_timeout=40.0
    )
    with contextlib.nullcontext() if made else pytest.raises(TimeoutError):
        await maker.make(BROKER, 2.0)
    assert asyncio.get_running_loop().time() == pytest.approx(12.0 + min(seconds, 2.0))


class LateProvider(AbstractTokenProvider):  # type: ignore[misc]
    """The user's identity provider does not answer."""

    async def token(self) -> str:
        raise TimeoutError("no token for 40 s")


async def test_a_token_that_does_not_come_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It looked as if the broker did not answer, and nothing named the provider."""

    async def create_conn(*_: Any, sasl_oauth_token_provider: Any, **given: Any) -> None:
        await sasl_oauth_token_provider.token()

    monkeypatch.setattr(module, "create_conn", create_conn)
    maker = module.ConnectionMaker(
        {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": LateProvider()}, request_timeout=40.0
    )
    with caplog.at_level(logging.DEBUG, "loadtrim"):
        for _ in range(2):
            with pytest.raises(KafkaConnectionError, match="no token for 40 s"):
                await maker.make(BROKER, 2.0)
    assert [record.levelname for record in caplog.records] == ["ERROR", "DEBUG"]
    assert "sasl_oauth_token_provider" in caplog.text
    assert "no token for 40 s" in caplog.text


async def test_no_request_waits_for_a_connection_as_long_as_a_token_takes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one slow token, a request that found all connections taken waited so long before another was made."""
    tokens = iter([True, False])

    async def create_conn(*where: Any, sasl_oauth_token_provider: Any, **given: Any) -> Made:
        if next(tokens):
            await sasl_oauth_token_provider.token()
        return await broker.create_conn(*where, **given)

    monkeypatch.setattr(module, "create_conn", create_conn)
    settings = {"sasl_oauth_token_provider": SlowProvider()}
    pool = ConnectionPool(settings)
    requests = Requests(pool)
    await requests.begin("poll")
    begun = asyncio.get_running_loop().time()
    await requests.begin("heartbeat")
    assert asyncio.get_running_loop().time() - begun == pytest.approx(2 * MAKE_SECONDS)
    await pool.close()
