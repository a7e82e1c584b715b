"""A container that was killed: the API server tells the others, and they take its partitions over at once."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from demo.checker import check
from demo.journal import read_run
from loadtrim.testing import Cluster
from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.pod_reader import PodReader

from .node import Process
from .shop import Shop, manifests, wait_until
from .test_group import PARTITIONS, Services, running

pytestmark = pytest.mark.kubernetes
PODS = 3
KILLS = 6
SESSION_SECONDS = 10.0
"""The default session timeout, after which the group notices by itself."""


@pytest.fixture
def services(kafka: Cluster, shop: Shop, tmp_path: Path) -> Iterator[Services]:
    """Three pods that say where they are, and may read pods."""
    for item in manifests("ended/rbac.yaml"):
        shop.create(item)
    with running(Services(kafka, shop, tmp_path, scaler="none", says_pod=True), PODS) as made:
        wait_until("all partitions", lambda: sum(owned(made).values()) == PARTITIONS)
        yield made


def owned(services: Services) -> dict[str, int]:
    """Return pod -> partitions that it says it owns, of those that answer."""
    found = {}
    for pod in services.shop.pods():
        with suppress(OSError, KeyError):
            with urllib.request.urlopen(f"http://127.0.0.1:{services.ports[pod]}/status", timeout=1.0) as answer:
                (agent,) = json.load(answer)["agents"]
            found[pod] = len(agent["partitions"]) if agent["state"] == "stable" else 0
    return found


def leads(services: Services, pod: str) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{services.ports[pod]}/status", timeout=1.0) as answer:
        (agent,) = json.load(answer)["agents"]
    return bool(agent["leads"])


@pytest.mark.kafka
@pytest.mark.slow
def test_partitions_of_a_killed_container_are_owned_within_seconds(
    services: Services, record_property: pytest.RecordProperty
) -> None:
    """Six kills, the leader among them, of containers that are started again after two seconds. Nothing is lost."""
    draw = random.Random(11)
    took: list[float] = []
    with ThreadPoolExecutor() as pool:
        playing = pool.submit(services.play, (60.0, 75))
        time_of_the_load = time.monotonic() + 10.0
        wait_until("the load", lambda: time.monotonic() > time_of_the_load)
        for number in range(KILLS):
            wait_until("all pods", lambda: len(owned(services)) == PODS and min(owned(services).values()) > 0)
            pods = services.shop.pods()
            pod = next(each for each in pods if leads(services, each)) if number % 2 else draw.choice(pods)
            took.append(kill(services, pod))
        playing.result()
    record_property("seconds", took)
    print(f"\nowned again after {', '.join(f'{seconds:.2f}' for seconds in took)} s")
    assert max(took) < SESSION_SECONDS / 2
    services.shop.scale(0)
    wait_until("the last pod's end", lambda: not services.shop.pods())
    verdict = check(read_run(services.journal))
    assert verdict.ok, str(verdict)
    assert verdict.done == 60 * 75


def kill(services: Services, pod: str) -> float:
    """Kill a pod's process, and return the seconds until processes that live own all partitions."""
    node = services.node
    assert node is not None
    process = node.running(pod)
    assert isinstance(process, Process)
    had = owned(services)[pod]
    assert had
    process.kill()
    began = time.monotonic()
    process.process.wait()
    services.supervisor.exited(process.process.pid)
    # The container that is started again may own some of them by then: it is another process, and another member.
    wait_until("owners", lambda: sum(owned(services).values()) == PARTITIONS, 30.0)
    return time.monotonic() - began


async def test_the_example_s_right_is_the_one_that_it_takes(shop: Shop) -> None:
    """Without it the refusal says which; with it a pod that is not there is another answer."""
    reader = PodReader(shop.account)
    with pytest.raises(ApiError, match='cannot get resource "pods"') as raised:
        await reader.pod("payments-0")
    assert raised.value.status == 403
    for item in manifests("ended/rbac.yaml"):
        await asyncio.to_thread(shop.create, item)
    while raised.value.status == 403:
        with pytest.raises(ApiError) as raised:
            await reader.pod("payments-0")
    assert (raised.value.status, str(raised.value)) == (404, 'pods "payments-0" not found')
