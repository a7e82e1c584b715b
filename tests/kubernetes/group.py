"""A group without processes: pods that are ready as a test says, and the scaler of its leader."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.scaler import KubernetesScaler
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target
from loadtrim_agent.leader.scaling.port import ScaleOutcome, ScaleRequest
from unit.leader.scaling.kubernetes.fake_cluster import OpenFence

from .node import Node, Running, Switched
from .shop import Shop, wait_until

__all__ = ["Group", "deployed", "start"]


def start(pod: dict[str, Any]) -> Switched:
    """Start a pod's container, which is ready at once."""
    return Switched()


class Group:
    """A workload whose pods are ready as a test says.

    Args:
        shop: where it runs.
        node: of its pods.
        kind: of the workload ``payments``.
    """

    def __init__(self, shop: Shop, node: Node, kind: str = "Deployment") -> None:
        self.shop, self.node, self.kind = shop, node, kind
        target = parse_target(f"{kind.lower()}/payments")
        self.scaler = KubernetesScaler(target, ClusterApi(account=shop.account), OpenFence())
        self.sequence = 0

    def request(self, replicas: int, *victims: str, members: Collection[str] | None = None) -> ScaleOutcome:
        """Ask as the leader does.

        Args:
            replicas: wanted.
            victims: drained pods that are to go.
            members: pods in the group; None: all that are there now.
        """
        self.sequence += 1
        there = self.shop.pods() if members is None else sorted(members)
        staying = tuple(pod for pod in there if pod not in victims)
        wanted = ScaleRequest(
            group="payments",
            replicas=replicas,
            victims=victims,
            staying=staying,
            generation=1,
            sequence=self.sequence,
        )
        return asyncio.run(self.scaler.request(wanted))

    def drain(self, pod: str) -> None:
        """The pod's readiness probe answers 503 from now on."""
        self.switch(pod, ready=False)

    def switch(self, pod: str, *, ready: bool) -> None:
        """The pod's readiness probe answers so from now on."""
        running = self.node.running(pod)
        assert isinstance(running, Switched)
        running.ready = ready

    def wait_for(self, pods: int) -> None:
        """Wait until so many pods run, and the controllers know that all are ready."""
        wait_until(f"{pods} pods", lambda: len(self.shop.pods()) == pods and self.shop.ready(self.kind) == pods)


@contextlib.contextmanager
def deployed(shop: Shop, pods: int, start: Callable[[dict[str, Any]], Running | None] = start) -> Iterator[Group]:
    """Make the example's Deployment with so many pods, and wait until the controllers know that all are ready."""
    with Node(shop.plane, shop.namespace, start, probe_seconds=0.1) as node:
        shop.deploy(pods)
        made = Group(shop, node)
        made.wait_for(pods)
        yield made
