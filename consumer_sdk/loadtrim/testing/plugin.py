"""The pytest fixture ``kafka``."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from loadtrim.testing.cluster import Cluster, ExternalKafka
from loadtrim.testing.local_kafka import LocalKafka

__all__ = ["kafka"]


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A Kafka for the whole test session: ``KAFKA_BOOTSTRAP``, else a :class:`LocalKafka` with one broker."""
    bootstrap = os.environ.get("KAFKA_BOOTSTRAP")
    if bootstrap:
        yield ExternalKafka(bootstrap)
        return
    local = LocalKafka(short_run=True)
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    if capture is None:
        local.start()
    else:
        # The one line that explains a first start of many seconds should be seen while it lasts.
        with capture.global_and_fixture_disabled():
            local.start()
    try:
        yield local
    finally:
        local.stop()
