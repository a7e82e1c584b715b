"""Stands in for the ``conftest.py`` of aiokafka's own tests: a broker from ``loadtrim.testing`` instead of Docker's.

:mod:`tests.compat.run` copies it beside aiokafka's test modules. It reads from the environment ``COMPAT_BOOTSTRAP``
(the broker) and ``COMPAT_CLIENT`` (``loadtrim``: every consumer that a test makes is ours; ``aiokafka``: the baseline).
"""

from __future__ import annotations

import asyncio
import gc
import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

NEW_ENOUGH = "4.1.1"
"""What the tests' version markers are compared with."""


def consumer_of_loadtrim(*topics: str, **arguments: Any) -> Any:
    """``AIOKafkaConsumer(...)`` as the tests call it, made by loadtrim.

    The one thing added is a group: a test that gives none gets one of its own, as ``Consumer`` refuses to be without.
    """
    from loadtrim import Consumer

    if arguments.get("group_id") is None:
        arguments["group_id"] = f"compat-{uuid.uuid4()}"
    return Consumer(*topics, **arguments)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ["COMPAT_CLIENT"] != "loadtrim":
        return
    for module in {item.getparent(pytest.Module) for item in items}:
        assert module is not None
        module.obj.AIOKafkaConsumer = consumer_of_loadtrim


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The event loop that a test class runs its coroutines in."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(autouse=True)
def collect_garbage() -> Iterator[None]:
    """What a test leaves unclosed is warned about in that test."""
    yield
    gc.collect()


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    """What aiokafka's base class for integration tests expects to find on itself."""
    host, _, port = os.environ["COMPAT_BOOTSTRAP"].partition(":")
    of = request.cls
    of.loop, of.hosts, of.kafka_host, of.kafka_port = loop, [f"{host}:{port}"], host, int(port)
    of.kafka_version = NEW_ENOUGH
