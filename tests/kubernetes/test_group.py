"""A group of the example's service on a real Kafka, whose leader changes the replicas of its own Deployment."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import sys
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from demo.checker import check
from demo.journal import SupervisorJournal, read_run
from demo.load import LoadOptions, LoadRates, play, shares_even
from loadtrim.testing import Cluster
from loadtrim.testing.ports import free_ports

from .cluster import ControlPlane
from .external_metrics import ExternalMetrics
from .node import Node, Process
from .shop import Shop, manifests, wait_until

pytestmark = [pytest.mark.kubernetes, pytest.mark.kafka]
SERVICE = Path(__file__).parents[2] / "examples" / "payments" / "service.py"
PARTITIONS = 8
BUSY_SECONDS = 0.02
SCALE_SECONDS = 60.0
PODS = 3
SETTLE_SECONDS = 15.0
STEADY_SECONDS = 60.0
REQUESTS_MAX = 0.2
"""Requests per second of a group that is as it wants. Source: the target."""


@dataclass
class Services:
    """Pods of the payments service."""

    kafka: Cluster
    shop: Shop
    directory: Path
    scaler: str = "kubernetes"
    says_pod: bool = False
    """Each says which pod it is in, so that others see when it has ended."""
    replicas_min: int = 1
    watches: bool = True
    """Pods that say so are watched."""
    relist_seconds: float = 0.0
    """As of the node."""
    lease: str = ""
    """Name of the Lease that the leader holds."""
    group: str = field(default_factory=lambda: f"payments-{uuid.uuid4().hex[:8]}")
    ports: dict[str, int] = field(default_factory=dict)
    """Pod -> the port of its HTTP server."""
    node: Node | None = None

    def __post_init__(self) -> None:
        self.topic = self.kafka.create_topic(partitions=PARTITIONS)
        self.journal = self.directory / "journal"
        self.journal.mkdir()
        self.supervisor = SupervisorJournal(self.journal)

    def start(self, pod: dict[str, Any]) -> Process:
        """Run a pod's container: the environment of its spec, but for what a machine without containers has not."""
        (port,) = free_ports(1)
        self.ports[pod["metadata"]["name"]] = port
        (container,) = pod["spec"]["containers"]
        environment = {
            **os.environ,
            **{entry["name"]: entry["value"] for entry in container["env"] if "value" in entry},
            "LOADTRIM_INSTANCE": pod["metadata"]["name"],
            "LOADTRIM_HTTP": f"127.0.0.1:{port}",
            "LOADTRIM_SCALER": self.scaler,
            "LOADTRIM_KUBERNETES_POD_UID": pod["metadata"]["uid"] if self.says_pod else "",
            "LOADTRIM_MIN_REPLICAS": str(self.replicas_min),
            "LOADTRIM_KUBERNETES_LEASE": self.lease,
            "LOADTRIM_KUBERNETES_POD_SELECTOR": "app=payments" if self.says_pod and self.watches else "",
            "KUBERNETES_SERVICE_HOST": self.shop.plane.host,
            "KUBERNETES_SERVICE_PORT": str(self.shop.plane.port),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
            "PAYMENTS_BOOTSTRAP": self.kafka.bootstrap,
            "PAYMENTS_TOPIC": self.topic,
            "PAYMENTS_GROUP": self.group,
            "PAYMENTS_BUSY_SECONDS": str(BUSY_SECONDS),
            "PAYMENTS_JOURNAL": str(self.journal),
        }
        command = [sys.executable, "-m", "kubernetes.pod", str(self.shop.account), str(SERVICE)]
        output = self.directory / f"{pod['metadata']['name']}.log"
        return Process(command, environment, f"http://127.0.0.1:{port}/readyz", output)

    def published(self) -> int | None:
        """Return what an adapter finds that asks all pods, as KEDA's with ``aggregationType: max``."""
        found = []
        for pod in self.shop.pods():
            with contextlib.suppress(OSError, KeyError):
                url = f"http://127.0.0.1:{self.ports[pod]}/replicas"
                answer = urllib.request.urlopen(url, timeout=1.0)
                with answer:
                    found.append(int(json.load(answer)["replicas"][self.group]))
        return max(found, default=None)

    def play(self, *levels: tuple[float, int]) -> int:
        """Send a load of (records/s, seconds), one level after the other; return the most replicas meanwhile."""
        rates = LoadRates(tuple(rate for rate, seconds in levels for _ in range(seconds)), "levels")
        options = LoadOptions(
            bootstrap=self.kafka.bootstrap,
            topic=self.topic,
            rates=rates,
            shares=shares_even(PARTITIONS),
            journal=self.journal,
            even=True,
        )
        most = 0
        with ThreadPoolExecutor() as pool:
            playing = pool.submit(asyncio.run, play(options))
            while not playing.done():
                most = max(most, self.shop.replicas())
                wait([playing], timeout=1.0)
        playing.result()
        return most


@pytest.fixture
def services(kafka: Cluster, shop: Shop, tmp_path: Path) -> Iterator[Services]:
    with running(Services(kafka, shop, tmp_path)) as made:
        yield made


@contextlib.contextmanager
def running(made: Services, pods: int = 1) -> Iterator[Services]:
    shop = made.shop
    with Node(shop.plane, shop.namespace, made.start, relist_seconds=made.relist_seconds) as node:
        made.node = node
        shop.deploy(pods)
        wait_until("the first pods", lambda: shop.ready() == pods)
        yield made
        shop.scale(0)
        wait_until("the end of all", lambda: not node.pods, SCALE_SECONDS)


def goes_down_and_ends(services: Services, records: int) -> None:
    """Wait for one replica, end the last pod, and look that each of so many records was done once."""
    shop = services.shop
    wait_until("one replica", lambda: shop.replicas() == 1, SCALE_SECONDS)
    wait_until("one pod", lambda: len(shop.pods()) == 1)
    shop.scale(0)
    wait_until("the last pod's end", lambda: not shop.pods())
    verdict = check(read_run(services.journal))
    assert verdict.spotless, str(verdict)
    assert verdict.done == records


@pytest.mark.slow
def test_the_leader_scales_its_own_deployment_up_and_down(services: Services) -> None:
    """2.4 busy seconds a second want three pods, 0.04 want one. Nothing is lost or repeated."""
    assert services.play((120.0, 25), (2.0, 25)) >= 3
    goes_down_and_ends(services, 120 * 25 + 2 * 25)


@pytest.mark.slow
def test_a_group_that_is_as_it_wants_asks_next_to_nothing(
    kafka: Cluster, shop: Shop, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    """Three pods with all that asks: scaler, Lease, and pods that are watched. By what the API server wrote down."""
    for file in ("ended/rbac.yaml", "lease/lease.yaml", "lease/rbac.yaml"):
        for item in manifests(file):
            shop.create(item)
    made = Services(kafka, shop, tmp_path, says_pod=True, lease="payments-replicas", replicas_min=PODS)
    with running(made, PODS), ThreadPoolExecutor() as pool:
        # A leader that has measured nothing yet wants nothing.
        playing = pool.submit(made.play, (2.0, int(2 * SETTLE_SECONDS + STEADY_SECONDS)))
        lease = shop.path("Lease", "payments-replicas")
        wait_until("the Lease", lambda: bool(shop.plane.call("GET", lease).get("spec", {}).get("holderIdentity")))
        holder = shop.plane.call("GET", lease)["spec"]["holderIdentity"]
        assert re.fullmatch(rf"loadtrim-{made.group}@[-_A-Za-z0-9]{{22}}", holder), "the group, and its Kafka cluster"
        time.sleep(SETTLE_SECONDS)
        began = time.time()
        time.sleep(STEADY_SECONDS)
        asked = Counter(what for at, what in shop.plane.requests_of(shop.namespace) if began <= at)
        before = Counter(what for at, what in shop.plane.requests_of(shop.namespace) if at < began)
        playing.result()
    record_property("asked", dict(asked))
    print(f"\nin {STEADY_SECONDS:g} s: {dict(asked)}")
    assert asked.total() / STEADY_SECONDS <= REQUESTS_MAX
    assert set(asked) <= {"update leases", "watch pods"}
    assert asked["update leases"] >= STEADY_SECONDS / 10.0 - 1.0
    assert before["watch pods"] >= 2, "the leader's and another's"


@pytest.mark.slow
def test_an_autoscaler_scales_it_by_what_the_leader_publishes(
    kafka: Cluster, plane: ControlPlane, shop: Shop, tmp_path: Path
) -> None:
    """As above, without a right or a token. The pods that go are the drained ones: no record is repeated."""
    (shop.account / "token").write_text("of no account")
    with (
        running(Services(kafka, shop, tmp_path, scaler="metric")) as services,
        ExternalMetrics(plane, tmp_path) as metrics,
    ):
        metrics.read[shop.namespace] = services.published
        for item in manifests("metric-hpa/hpa.yaml"):
            shop.create(item)
        assert services.play((120.0, 30), (2.0, 40)) >= 3
        goes_down_and_ends(services, 120 * 30 + 2 * 40)
