"""What every test can use: a Kafka for the session (``kafka``), and one with short session timeouts."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from loadtrim.testing import Cluster

pytest_plugins = ["loadtrim.testing"]

# The Spark pipeline's extra is no part of `dev`: `make test-spark` installs it.
collect_ignore = [] if importlib.util.find_spec("pyspark") else ["spark"]

# A shared machine stalls now and then: how long one example takes says nothing here. The same examples in every run, so
# that a change is judged by what it changed; HYPOTHESIS_PROFILE=explore looks for others. A failed one prints how to
# play it again.
settings.register_profile("loadtrim", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "loadtrim"))


@pytest.fixture(scope="session")
def quick_kafka() -> Iterator[Cluster]:
    """A Kafka that takes sessions of half a second and up, so that a death is noticed while a test waits."""
    from loadtrim.testing import LocalKafka, any_kafka

    properties = {"group.min.session.timeout.ms": "500"}
    with any_kafka(lambda: LocalKafka(properties=properties, short_run=True)) as kafka:
        yield kafka
