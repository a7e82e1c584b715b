"""A start that fails tells in one sentence what is wrong and what to do, with aiokafka's types."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import traceback
from typing import Any

import pytest
from aiokafka.errors import AuthenticationFailedError, GroupAuthorizationFailedError, KafkaConnectionError
from prometheus_client import CollectorRegistry

from loadtrim import Consumer, Settings
from loadtrim.start_errors import ClientTrouble, explained

NOWHERE = "127.0.0.1:1"
WORDS = "It is down, the address is wrong, or it wants TLS or SASL in another way than"


async def failed(enabled: bool = True, **arguments: Any) -> KafkaConnectionError:
    settings = Settings(http="off", enabled=enabled)
    consumer = Consumer("t", group_id="g", settings=settings, registry=CollectorRegistry(), **arguments)
    with pytest.raises(KafkaConnectionError) as caught:
        await consumer.start()
    await consumer.stop()
    return caught.value


@pytest.mark.parametrize("enabled", [True, False])
async def test_no_broker_is_told_in_the_words_of_the_command_line(enabled: bool) -> None:
    """It was ``Unable to bootstrap from [('127.0.0.1', 1, <AddressFamily.AF_INET: 2>)]`` under 30 lines of trace."""
    error = await failed(enabled, bootstrap_servers=NOWHERE)
    told = str(error)
    assert f"No broker can be talked to at {NOWHERE} (Unable connect to" in told
    assert "Connect call failed" in told
    assert f"{WORDS} PLAINTEXT" in told
    assert "Check bootstrap_servers, security_protocol" in told
    lines = "".join(traceback.format_exception(error)).splitlines()
    assert len(lines) < 15, "\n".join(lines)
    assert not [line for line in lines if "loadtrim_agent" in line or "aiokafka/" in line]


async def test_tls_to_a_broker_without_it_is_told() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failed(
            bootstrap_servers=[f"127.0.0.1:{port}"],
            security_protocol="SSL",
            ssl_context=ssl.create_default_context(),
        )
    assert f"No broker can be talked to at 127.0.0.1:{port}" in str(error)
    assert f"{WORDS} SSL" in str(error)


def test_other_errors_keep_their_type_and_text() -> None:
    for error in (GroupAuthorizationFailedError("allow it READ"), KafkaConnectionError("no answer names a broker")):
        assert explained(error, {}, ClientTrouble()) is error


def test_what_other_threads_log_is_not_taken_for_the_trouble() -> None:
    trouble = ClientTrouble()
    with trouble.of_thread(-1):
        logging.getLogger("aiokafka.client").error("of another consumer")
    assert trouble.said == ""
    assert trouble not in logging.getLogger("aiokafka").handlers


def test_a_user_who_is_refused_is_told_so() -> None:
    """It began with "No broker can be talked to", which was there and had answered."""
    trouble = ClientTrouble()
    with trouble.of_thread(threading.get_ident()):
        logging.getLogger("aiokafka.client").error("Unable connect: %s", AuthenticationFailedError("no such user"))
    told = str(explained(KafkaConnectionError("Unable to bootstrap from a"), {"bootstrap_servers": "a:1"}, trouble))
    assert "The cluster at a:1 refused the user (Unable connect: AuthenticationFailedError: no such user)." in told
    assert "Check sasl_mechanism" in told
    with trouble.of_thread(threading.get_ident()):
        logging.getLogger("aiokafka.client").error("Unable connect: %s", OSError("nobody listens"))
    assert not trouble.refused, "the last trouble counts"


def test_a_user_who_may_be_refused_is_told_so_where_the_client_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong password was told as a broker that is down: a dictConfig disables the loggers that there are."""
    monkeypatch.setattr(logging.getLogger("aiokafka"), "disabled", True)
    trouble = ClientTrouble()
    with trouble.of_thread(threading.get_ident()):
        logging.getLogger("aiokafka").error("Unable connect: %s", AuthenticationFailedError("no such user"))
    settings = {"bootstrap_servers": "a:1", "security_protocol": "SASL_PLAINTEXT"}
    told = str(explained(KafkaConnectionError("Unable to bootstrap from a"), settings, trouble))
    assert "No broker at a:1 lets this user in" in told
    assert "it refuses the user or the password" in told
    assert "'disable_existing_loggers' to False" in told
