"""A container that was killed: the API server tells the others, and they take its partitions over at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from demo.checker import check
from demo.journal import read_run
from loadtrim.testing import Cluster
from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.pod import Pod
from loadtrim_agent.leader.scaling.kubernetes.pod_reader import PodReader

from .group import start
from .node import Node
from .recovery import Recoveries, pods_that_say_where_they_are
from .shop import Shop, manifests, wait_until
from .test_group import Services

pytestmark = pytest.mark.kubernetes
KILLS = 6
SESSION_SECONDS = 10.0
"""The default session timeout, after which the group notices by itself."""
LOAD_SECONDS = 90


@pytest.fixture(params=[True, False], ids=["watched", "silent"])
def services(kafka: Cluster, shop: Shop, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Services]:
    """Three pods that say where they are; they are watched, or read when they have fallen silent."""
    made = Services(kafka, shop, tmp_path, scaler="none", says_pod=True, watches=request.param, relist_seconds=1.0)
    with pods_that_say_where_they_are(made):
        yield made


@pytest.mark.kafka
@pytest.mark.slow
def test_partitions_of_a_killed_container_are_owned_within_seconds(
    services: Services, record_property: pytest.RecordProperty
) -> None:
    """Six kills, the leader among them, of containers that are started again after two seconds. Nothing is lost."""
    with ThreadPoolExecutor() as pool, Recoveries(services) as recoveries:
        playing = pool.submit(services.play, (60.0, LOAD_SECONDS))
        time_of_the_load = time.monotonic() + 5.0
        wait_until("the load", lambda: time.monotonic() > time_of_the_load)
        for number in range(KILLS):
            # Every third one soon after its group has changed.
            recoveries.kill(leader=bool(number % 2), settle=(0.5, 1.5) if number % 3 == 2 else (6.0, 7.0))
        playing.result()
    record_property("seconds", [kill.seconds for kill in recoveries.kills])
    print(f"\n{recoveries.table()}")
    assert max(kill.seconds for kill in recoveries.kills) < SESSION_SECONDS / 2
    services.shop.scale(0)
    wait_until("the last pod's end", lambda: not services.shop.pods())
    verdict = check(read_run(services.journal))
    assert verdict.ok, str(verdict)
    assert verdict.done == 60 * LOAD_SECONDS


async def test_the_example_s_right_is_the_one_that_it_takes(shop: Shop) -> None:
    """Without it the refusal says which; with it a pod that is not there is another answer."""
    reader = PodReader(shop.account, "app=payments")
    with pytest.raises(ApiError, match='cannot watch resource "pods"'):
        await reader.watch(lambda kind, pod: None)
    with pytest.raises(ApiError, match='cannot get resource "pods"') as raised:
        await reader.pod("payments-0")
    assert raised.value.status == 403
    for item in manifests("ended/rbac.yaml"):
        await asyncio.to_thread(shop.create, item)
    while raised.value.status == 403:
        with pytest.raises(ApiError) as raised:
            await reader.pod("payments-0")
    assert (raised.value.status, str(raised.value)) == (404, 'pods "payments-0" not found')


async def test_a_watch_shows_the_selected_pods_as_they_are_and_as_they_change(shop: Shop) -> None:
    """`list` is no right that it takes. Another selector shows none; a wrong one is refused."""
    for item in manifests("ended/rbac.yaml"):
        await asyncio.to_thread(shop.create, item)
    await asyncio.to_thread(shop.deploy, 2)
    await asyncio.to_thread(wait_until, "two pods", lambda: len(shop.pods()) == 2)
    events: dict[str, list[tuple[str, Pod]]] = {"app=payments": [], "app=orders": []}

    def take(selector: str, kind: str, pod: Pod) -> None:
        events[selector].append((kind, pod))

    watches = [
        asyncio.create_task(PodReader(shop.account, selector).watch(partial(take, selector))) for selector in events
    ]
    seen = events["app=payments"]

    async def until(count: int) -> None:
        async with asyncio.timeout(10.0):
            while len(seen) < count:
                assert not any(watch.done() for watch in watches), watches
                await asyncio.sleep(0.01)

    await until(2)
    assert [kind for kind, _ in seen] == ["ADDED", "ADDED"]
    with Node(shop.plane, shop.namespace, start):
        await until(6)
    assert {kind for kind, _ in seen[2:]} == {"MODIFIED"}
    assert {pod.metadata.name for _, pod in seen} == set(await asyncio.to_thread(shop.pods))
    assert events["app=orders"] == []
    for watch in watches:
        watch.cancel()
    await asyncio.gather(*watches, return_exceptions=True)
    with pytest.raises(ApiError) as raised:
        await PodReader(shop.account, "app in in").watch(lambda kind, pod: None)
    assert raised.value.status == 400
