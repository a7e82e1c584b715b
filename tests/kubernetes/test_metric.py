"""The autoscaler of a real control plane makes so what a leader publishes, and takes the drained pod."""

from __future__ import annotations

import asyncio
import random
import threading
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from loadtrim_agent.leader.scaling.metric import MetricScaler
from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, ScaleRequest

from .cluster import ControlPlane
from .external_metrics import ExternalMetrics
from .group import start
from .node import Node, Switched
from .shop import Shop, manifests, wait_until

pytestmark = pytest.mark.kubernetes
PODS = 6
MOST = 12
ROUNDS = 20


class Published:
    """A group whose leader publishes. Its pods are ready as a test says, and say themselves that they are not."""

    def __init__(self, shop: Shop, node: Node) -> None:
        self.shop, self.node = shop, node
        self.led: int | None = 1
        self.scaler = MetricScaler(self, self)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="leader", daemon=True).start()

    def generation(self) -> int | None:
        return self.led

    def is_unready(self, instance: str) -> bool:
        """As in reports: the probe was answered 503, and the node has seen that some time ago."""
        pod = self.node.pods.get(instance)
        return pod is not None and isinstance(pod.running, Switched) and not pod.running.ready and not pod.ready

    def request(self, replicas: int, *victims: str) -> ScaleOutcome:
        return self.begin(replicas, *victims).result()

    def begin(self, replicas: int, *victims: str) -> Future[ScaleOutcome]:
        staying = tuple(pod for pod in self.shop.pods() if pod not in victims)
        wanted = ScaleRequest(
            group="payments-service", replicas=replicas, victims=victims, staying=staying, generation=1, sequence=1
        )
        return asyncio.run_coroutine_threadsafe(self.scaler.request(wanted), self._loop)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def switch(self, pod: str, *, ready: bool) -> None:
        running = self.node.running(pod)
        assert isinstance(running, Switched)
        running.ready = ready

    def wait_for(self, pods: int) -> None:
        wait_until(f"{pods} pods", lambda: len(self.shop.pods()) == pods and self.shop.ready() == pods)


@pytest.fixture(scope="module")
def metrics(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalMetrics]:
    with ExternalMetrics(plane, tmp_path_factory.mktemp("metrics")) as made:
        yield made


@pytest.fixture
def group(shop: Shop, metrics: ExternalMetrics) -> Iterator[Published]:
    """Of the example's Deployment and autoscaler; the number comes as an adapter would bring it."""
    with Node(shop.plane, shop.namespace, start, probe_seconds=0.1) as node:
        made = Published(shop, node)
        metrics.read[shop.namespace] = made.scaler.published
        shop.deploy(PODS)
        made.wait_for(PODS)
        assert made.request(PODS).accepted
        for item in manifests("metric-hpa/hpa.yaml"):
            shop.create(item)
        yield made
        made.close()


def looks(group: Published, metrics: ExternalMetrics, times: int) -> None:
    """Wait until the autoscaler has looked so many times more."""
    asked = metrics.asked.setdefault(group.shop.namespace, [])
    before = len(asked)
    wait_until(f"{times} looks of the autoscaler", lambda: len(asked) >= before + times)


def condition_of(group: Published, kind: str) -> str:
    """Return the reason of a condition of the autoscaler; empty: it has none yet."""
    status = group.shop.plane.call("GET", group.shop.path("HorizontalPodAutoscaler")).get("status", {})
    return next((str(each["reason"]) for each in status.get("conditions", ()) if each["type"] == kind), "")


def test_the_drained_pod_goes_and_pods_come(group: Published, metrics: ExternalMetrics) -> None:
    """Twenty times each; the pod is drawn at random."""
    draw = random.Random(11)
    for _ in range(ROUNDS):
        pods = group.shop.pods()
        victim = draw.choice(pods)
        asked = group.begin(PODS - 1, victim)
        group.switch(victim, ready=False)
        assert asked.result().accepted
        wait_until("the victim's end", lambda: len(group.shop.pods()) == PODS - 1)
        assert set(pods) - set(group.shop.pods()) == {victim}
        assert group.request(PODS).accepted
        group.wait_for(PODS)
    queries = metrics.asked[group.shop.namespace]
    assert {urllib.parse.unquote(query) for query in queries} == {"labelSelector=group=payments-service"}


def test_nothing_goes_before_the_victim_is_seen_not_ready(group: Published, metrics: ExternalMetrics) -> None:
    victim = group.shop.pods()[0]
    asked = group.begin(PODS - 1, victim)
    looks(group, metrics, 3)
    assert group.shop.replicas() == PODS
    assert asked.result().answer is Answer.FAILED
    assert group.shop.replicas() == PODS
    group.switch(victim, ready=False)
    assert group.request(PODS - 1, victim).accepted
    wait_until("the victim's end", lambda: len(group.shop.pods()) == PODS - 1)
    assert victim not in group.shop.pods()


def test_steps_of_one_are_made_in_a_larger_group(group: Published) -> None:
    """Ten percent are no difference without ``tolerance``: from 11 to 12 and back would never happen."""
    for replicas in (11, 12):
        assert group.request(replicas).accepted
        group.wait_for(replicas)
    victim = group.shop.pods()[3]
    group.switch(victim, ready=False)
    wait_until("the node's look", lambda: group.is_unready(victim))
    assert group.request(11, victim).accepted
    wait_until("the victim's end", lambda: len(group.shop.pods()) == 11)
    assert victim not in group.shop.pods()


def test_nothing_changes_where_nothing_is_published(group: Published, metrics: ExternalMetrics) -> None:
    """A leader that died, was frozen or leads no longer: a victim that is drained stays until another one speaks."""
    victim = group.shop.pods()[0]
    group.switch(victim, ready=False)
    wait_until("the node's look", lambda: group.is_unready(victim))
    group.led = None
    assert group.request(PODS - 1, victim).answer is Answer.FAILED
    assert group.scaler.published() is None
    looks(group, metrics, 3)
    assert group.shop.replicas() == PODS
    wait_until("the autoscaler's trouble", lambda: condition_of(group, "ScalingActive") == "FailedGetExternalMetric")
    group.led = 1
    assert group.request(PODS - 1, victim).accepted
    wait_until("the victim's end", lambda: len(group.shop.pods()) == PODS - 1)


def test_the_autoscaler_s_bounds_hold(group: Published) -> None:
    """With other ones than the group's, it waits for what never comes; its log says so."""
    assert group.request(MOST + 3).accepted
    group.wait_for(MOST)
    assert group.shop.replicas() == MOST
