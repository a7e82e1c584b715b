"""What every test can use: a Kafka for the session (``kafka``), and one with short session timeouts."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from loadtrim.testing import Cluster

pytest_plugins = ["loadtrim.testing"]

COLLECT_AFTER = 50_000, 20, 50
"""Allocations of the youngest generation, and collections of the others, as for many seeds (``tests/seeds.py``): with
Python's own an eighth of the time goes into looking through worlds that are still in use."""
FAST_EXAMPLES_MIN = 3
"""Chosen: enough to see that a property is checked at all; `make test` takes all that a test asks for."""

# The Spark pipeline's extra is no part of `dev`: `make test-spark` installs it.
collect_ignore = [] if importlib.util.find_spec("pyspark") else ["spark"]

# A shared machine stalls now and then: how long one example takes says nothing here. The same examples in every run, so
# that a change is judged by what it changed; HYPOTHESIS_PROFILE=explore looks for others. A failed one prints how to
# play it again.
settings.register_profile("loadtrim", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.register_profile("fast", settings.get_profile("loadtrim"), max_examples=FAST_EXAMPLES_MIN)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "loadtrim")
settings.load_profile(PROFILE)


def pytest_configure() -> None:
    """Have the collector of garbage look seldom: collecting tests makes what stays, an eighth faster so.

    A shell's background job ignores Ctrl-C, and so would the programs that tests start and end by it.
    """
    gc.set_threshold(*COLLECT_AFTER)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests a tenth of their examples under the profile ``fast``.

    `make test-unit` takes that profile.
    """
    if PROFILE != "fast":
        return
    for given in {_settings_holder(item) for item in items}:
        name = "settings" if isinstance(given, type) else "_hypothesis_internal_use_settings"
        asked = getattr(given, name, None)
        if isinstance(asked, settings):
            fewer = max(FAST_EXAMPLES_MIN, asked.max_examples // 10)
            setattr(given, name, settings(asked, max_examples=min(asked.max_examples, fewer)))


def pytest_collection_finish() -> None:
    """Have the collector of garbage look at what tests make only: modules and tests stay."""
    gc.collect()
    gc.freeze()


def _settings_holder(item: pytest.Item) -> Any:
    """Return what keeps the item's settings: the class of a state machine's test, else its function."""
    if isinstance(item, pytest.Function):
        stateful = isinstance(getattr(item.cls, "settings", None), settings)
        return item.cls if stateful else getattr(item.obj, "__func__", item.obj)
    return item


@pytest.fixture(scope="session")
def quick_kafka() -> Iterator[Cluster]:
    """A Kafka that takes sessions of half a second and up, so that a death is noticed while a test waits."""
    from loadtrim.testing import LocalKafka, any_kafka

    properties = {"group.min.session.timeout.ms": "500"}
    with any_kafka(lambda: LocalKafka(properties=properties, short_run=True)) as kafka:
        yield kafka
