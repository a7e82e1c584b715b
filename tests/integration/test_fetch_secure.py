"""TLS and SASL over a real broker: what AIOKafkaConsumer connects with, every connection of the agent does too."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError, KafkaError
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from integration.harness import WAIT_SECONDS, eventually
from integration.harness_consumers import drain, make, new_group, send
from loadtrim import Consumer
from loadtrim.testing import LocalKafka
from loadtrim_agent.kafka.connections import Connections
from loadtrim_agent.kafka.pool import ConnectionPool

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command makes the certificates"),
]

USER, PASSWORD = "alice", "a secret"
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
LOGIN = "org.apache.kafka.common.security"
MECHANISMS = {
    "PLAIN": f'{LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    **dict.fromkeys(SCRAM, f"{LOGIN}.scram.ScramLoginModule required;"),
    "OAUTHBEARER": f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
}


# -- certificates and users --------------------------------------------------------------------------------------


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


def make_certificates(directory: Path) -> None:
    """An authority of our own (``ca.pem``), a broker's and a client's certificate with their keys."""
    key = ("-newkey", "rsa:2048", "-nodes")
    openssl(directory, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test")
    directory.joinpath("names").write_text("subjectAltName=IP:127.0.0.1")
    for who in ("broker", "client"):
        openssl(directory, "req", *key, "-keyout", f"{who}.key", "-out", f"{who}.csr", "-subj", f"/CN={who}")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl(directory, "x509", "-req", "-in", f"{who}.csr", *signed, "-out", f"{who}.pem")
        both = directory.joinpath(f"{who}.key").read_text() + directory.joinpath(f"{who}.pem").read_text()
        directory.joinpath(f"{who}-both.pem").write_text(both)


def broker_settings(directory: Path) -> dict[str, str]:
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker-both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "group.min.session.timeout.ms": "500",
    }
    for listener in ("tls", "plain"):
        settings[f"listener.name.{listener}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        for mechanism, login in MECHANISMS.items():
            settings[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = login
    return settings


@dataclass(frozen=True)
class Secured:
    kafka: LocalKafka
    directory: Path

    def trusting(self, *, client: bool) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.directory / "ca.pem"))
        if client:
            context.load_cert_chain(self.directory / "client.pem", self.directory / "client.key")
        return context

    def arguments(self, protocol: str, mechanism: str) -> dict[str, Any]:
        """What a consumer's constructor is given."""
        listener = {"SSL": "MUTUAL", "SASL_SSL": "TLS", "SASL_PLAINTEXT": "PLAIN"}[protocol]
        given: dict[str, Any] = {
            "bootstrap_servers": self.kafka.bootstrap_at(listener),
            "security_protocol": protocol,
        }
        if protocol != "SASL_PLAINTEXT":
            given["ssl_context"] = self.trusting(client=protocol == "SSL")
        if mechanism == "OAUTHBEARER":
            given |= {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": Tokens()}
        elif mechanism:
            given |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        return given


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Unsecured tokens, as the broker's default accepts them; made in the loop that the user made it in.

    Args:
        refused_every: the first of so many is one that the broker refuses; 0: none is.
    """

    def __init__(self, refused_every: int = 0) -> None:
        self.loop = asyncio.get_running_loop()
        self.made = 0
        self._refused_every = refused_every

    async def token(self) -> str:
        # As an HTTP client would, whose session belongs to a loop.
        assert asyncio.get_running_loop() is self.loop
        refused = self._refused_every and self.made % self._refused_every == 0
        self.made += 1
        # Whole seconds, as everywhere: the broker compares in milliseconds, rounded down, and refuses the future.
        now = int(time.time()) - (1000 if refused else 0)
        parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + 600})
        return ".".join([*(base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts), ""])


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    make_certificates(directory)
    listeners = {"MUTUAL": "SSL", "TLS": "SASL_SSL", "PLAIN": "SASL_PLAINTEXT"}
    with LocalKafka(properties=broker_settings(directory), listeners=listeners, short_run=True) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for mechanism in SCRAM.values():
            password = ScramCredentialInfo(mechanism, 4096)
            made = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, password, PASSWORD.encode())])
            made[USER].result(WAIT_SECONDS)
        yield Secured(kafka, directory)


WAYS = [
    ("SSL", ""),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ("SASL_PLAINTEXT", "OAUTHBEARER"),
]


# -- tests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
async def test_a_group_over(secured: Secured, protocol: str, mechanism: str) -> None:
    """Everything that needs a connection: start, membership, control topic, fetching, a handoff, commits, the end."""
    kafka = secured.kafka
    topic, group = kafka.create_topic(partitions=4), new_group()
    given = secured.arguments(protocol, mechanism)
    await send(kafka, topic, [f"{n}" for n in range(40)], partition=None)
    bare = AIOKafkaConsumer(topic, group_id=new_group(), auto_offset_reset="earliest", **given)
    async with bare:
        assert (await asyncio.wait_for(bare.getone(), WAIT_SECONDS)).topic == topic
    one, two = (make(kafka, topic, group=group, **given) for _ in range(2))
    async with one, two, drain(one, two) as counts:
        await eventually(lambda: len(counts) == 40, "what was there is read")
        await eventually(lambda: len(one.assignment()) == len(two.assignment()) == 2, "both take part")
        await two.stop()
        await eventually(lambda: len(one.assignment()) == 4, "its partitions are handed over")
        await send(kafka, topic, [f"{n}" for n in range(40, 80)], partition=None)
        await eventually(lambda: len(counts) == 80, "the rest is read")
    assert set(counts.values()) == {1}, "nothing was repeated: commits and handoffs went through"


async def test_a_group_whose_tokens_are_refused_at_times(secured: Secured) -> None:
    """aiokafka takes the refusal for success: a member hung for ever, with no broker to ask or with useless answers."""
    kafka = secured.kafka
    topic, group = kafka.create_topic(partitions=4), new_group()
    await send(kafka, topic, [f"{n}" for n in range(40)], partition=None)
    given = secured.arguments("SASL_PLAINTEXT", "OAUTHBEARER")
    one, two = (
        make(kafka, topic, group=group, **{**given, "sasl_oauth_token_provider": Tokens(refused_every=every)})
        for every in (2, 3)
    )
    async with one, two, drain(one, two) as counts:
        await eventually(lambda: len(counts) == 40, "what was there is read")
        await eventually(lambda: len(one.assignment()) == len(two.assignment()) == 2, "both take part")
    assert set(counts.values()) == {1}, "nothing was repeated"


class Failing(Tokens):
    """Its identity provider fails at times, by an error that is neither the operating system's nor Kafka's."""

    failing = False
    raised = 0

    async def token(self) -> str:
        if self.failing:
            self.raised += 1
            raise LookupError("503 from the identity provider")
        return await super().token()


async def test_a_group_whose_token_provider_raises_for_a_while(secured: Secured) -> None:
    """One exception ended the consumer for good: it reached whichever request waited for the connection."""
    kafka = secured.kafka
    topic, group = kafka.create_topic(partitions=4), new_group()
    given = secured.arguments("SASL_PLAINTEXT", "OAUTHBEARER")
    tokens = Failing()
    one = make(kafka, topic, group=group, **{**given, "sasl_oauth_token_provider": tokens})
    two = make(kafka, topic, group=group, **given)
    async with one, two, drain(one, two) as counts:
        await eventually(lambda: len(one.assignment()) == len(two.assignment()) == 2, "both take part")
        tokens.failing = True
        link = one._client.link
        await link.run(closed(link.need_agent().connections.pool))
        await eventually(lambda: tokens.raised > 2, "new connections are tried")
        tokens.failing = False
        await send(kafka, topic, [f"{n}" for n in range(40)], partition=None)
        await eventually(lambda: len(counts) == 40, "all is read")
        await eventually(lambda: len(one.assignment()) == len(two.assignment()) == 2, "both take part again")
        assert link.need_agent().condition.failure is None
    assert set(counts.values()) == {1}, "nothing was repeated"


async def closed(pool: ConnectionPool) -> None:
    """Close every connection of a member, as a broker does that authenticates anew (``connections.max.reauth.ms``)."""
    for broker in pool._brokers.values():
        for each in [*broker._held.values(), *broker._idle]:
            each.connection.close()


async def test_a_client_that_was_told_of_no_broker_asks_again(secured: Secured) -> None:
    given = secured.arguments("SASL_PLAINTEXT", "OAUTHBEARER")
    connections = Connections({**given, "sasl_oauth_token_provider": Tokens(refused_every=2)})
    await connections.start()
    try:
        assert connections.client.cluster.brokers()
    finally:
        await connections.close()


async def test_who_is_never_accepted_is_told_so(secured: Secured) -> None:
    given = secured.arguments("SASL_PLAINTEXT", "OAUTHBEARER")
    consumer = make(
        secured.kafka, "topic", group=new_group(), **{**given, "sasl_oauth_token_provider": Tokens(refused_every=1)}
    )
    with pytest.raises(KafkaConnectionError, match="Does the broker accept this user's credentials"):
        await asyncio.wait_for(consumer.start(), WAIT_SECONDS)
    await consumer.stop()


NOBODY, REFUSED = "No broker can be talked to at", "refused the user"


async def raised_at_start(consumer: Consumer | AIOKafkaConsumer) -> BaseException:
    with pytest.raises((KafkaError, OSError)) as raised:
        await asyncio.wait_for(consumer.start(), WAIT_SECONDS)
    await consumer.stop()
    return raised.value


@pytest.mark.parametrize(
    ("protocol", "mechanism", "wrong", "said", "means"),
    [
        ("SASL_SSL", "PLAIN", {"sasl_plain_password": "wrong"}, "Invalid username or password", REFUSED),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512", {"sasl_plain_password": "wrong"}, "invalid credentials", REFUSED),
        ("SASL_SSL", "PLAIN", {"ssl_context": ssl.create_default_context()}, "certificate verify failed", NOBODY),
    ],
)
async def test_who_is_refused_is_told_as_aiokafka_tells(
    secured: Secured, protocol: str, mechanism: str, wrong: dict[str, Any], said: str, means: str
) -> None:
    """Of the same type, and in the command line's words."""
    kafka = secured.kafka
    topic = kafka.create_topic()
    given = {**secured.arguments(protocol, mechanism), **wrong}
    bare = AIOKafkaConsumer(topic, group_id=new_group(), **given)
    ours = make(kafka, topic, group=new_group(), **given)
    told, theirs = await raised_at_start(ours), await raised_at_start(bare)
    assert type(told) is type(theirs)
    assert means in str(told)
    assert said in str(told), "it names the reason, which aiokafka only logs"
    assert (f"in another way than {protocol}" in str(told)) == (means == NOBODY)


async def test_what_cannot_connect_at_all_is_refused_by_the_constructor(secured: Secured) -> None:
    kafka = secured.kafka
    for arguments in (
        {"security_protocol": "SSL"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "KEY"},
    ):
        with pytest.raises(ValueError):
            AIOKafkaConsumer("topic", bootstrap_servers=kafka.bootstrap, **arguments)
        with pytest.raises(ValueError):
            make(kafka, "topic", group=new_group(), **arguments)
