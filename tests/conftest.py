"""What every test can use: a Kafka for the session (``kafka``), and one with short session timeouts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from loadtrim.testing import Cluster

pytest_plugins = ["loadtrim.testing"]


@pytest.fixture(scope="session")
def quick_kafka() -> Iterator[Cluster]:
    """A Kafka that takes sessions of half a second and up, so that a death is noticed while a test waits."""
    from loadtrim.testing import ExternalKafka, LocalKafka

    bootstrap = os.environ.get("KAFKA_BOOTSTRAP")
    if bootstrap:
        yield ExternalKafka(bootstrap)
        return
    with LocalKafka(properties={"group.min.session.timeout.ms": "500"}, short_run=True) as kafka:
        yield kafka
