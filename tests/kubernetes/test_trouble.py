"""Pods that do not start, crash, end slowly or are taken by somebody else: beside a scale-down the drained one goes."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import pytest

from loadtrim.testing.ports import free_ports
from loadtrim_agent.leader.scaling.kubernetes.client import REQUEST_SECONDS, ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.scaler import KubernetesScaler
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target
from loadtrim_agent.leader.scaling.port import Answer, ScaleRequest

from .group import Group, deployed
from .lag import LaggingWay
from .node import Node, Running, Slow, Switched
from .shop import Shop, manifests, wait_until

pytestmark = pytest.mark.kubernetes
PODS = 6
CRASH_SECONDS = 0.2


class Crashing(Switched):
    """A container that ends by itself before it is ever ready."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = False
        self._ends_at = time.monotonic() + CRASH_SECONDS

    def has_ended(self) -> bool:
        return self.terminated or time.monotonic() >= self._ends_at


def pending() -> None:
    """The container cannot be started: no room for it, or no image."""


class Starts:
    """The containers of new pods are of the kinds that a test has queued, and well when none is left."""

    def __init__(self) -> None:
        self.next: deque[Callable[[], Running | None]] = deque()
        self.kinds: dict[str, Callable[[], Running | None]] = {}

    def __call__(self, pod: dict[str, Any]) -> Running | None:
        name = pod["metadata"]["name"]
        if name not in self.kinds:
            self.kinds[name] = self.next.popleft() if self.next else Switched
        return self.kinds[name]()

    def named(self, kind: Callable[[], Running | None]) -> str:
        """Return the one pod of a kind."""
        (name,) = (name for name, each in self.kinds.items() if each is kind)
        return name


@pytest.fixture
def starts() -> Starts:
    return Starts()


@pytest.fixture
def group(shop: Shop, starts: Starts) -> Iterator[Group]:
    with deployed(shop, PODS, starts) as made:
        yield made


@contextmanager
def go(group: Group, *pods: str) -> Iterator[None]:
    """Wait at the end of the block until these pods are gone, and look that no other one is."""
    before = set(group.shop.pods())
    yield
    wait_until("the end of some", lambda: before - set(group.shop.pods()) >= set(pods))
    assert before - set(group.shop.pods()) == set(pods)


# -- pods that do not start, or crash --------------------------------------------------------------------------------


def test_a_pending_and_a_crashing_pod_go_with_the_victim_and_no_pod_that_works(group: Group, starts: Starts) -> None:
    members = group.shop.pods()
    starts.next.extend([pending, Crashing])
    assert group.request(PODS + 2, members=members).accepted
    wait_until("both", lambda: {pending, Crashing} <= set(starts.kinds.values()))
    victim = members[2]
    group.drain(victim)
    with go(group, victim, starts.named(pending), starts.named(Crashing)):
        assert group.request(PODS - 1, victim, members=members).accepted


def test_a_member_that_crashes_again_and_again_goes_and_the_victim_is_taken_back(group: Group) -> None:
    """One of both is to go. The plan has as many members as it wants then, and the drained one works again."""
    victim, other = group.shop.pods()[:2]
    group.drain(victim)
    group.node.pods[other].running = Crashing()
    group.node.start = lambda pod: Crashing() if pod["metadata"]["name"] == other else Switched()
    wait_until("two not ready", lambda: group.shop.ready() == PODS - 2)
    wait_until("a restart", lambda: bool(group.node.pods[other].last_state))
    began = time.monotonic()
    with go(group, other):
        assert group.request(PODS - 1, victim).accepted
    assert time.monotonic() - began > 1.0, "it might have failed one probe"
    assert group.request(PODS - 1).accepted
    group.switch(victim, ready=True)
    group.wait_for(PODS - 1)
    assert victim in group.shop.pods()


@pytest.mark.parametrize("victims", [2, 3])
def test_several_victims_go_at_once(group: Group, victims: int) -> None:
    for _ in range(5):
        drained = group.shop.pods()[::2][:victims]
        for pod in drained:
            group.drain(pod)
        with go(group, *drained):
            assert group.request(PODS - victims, *drained).accepted
        assert group.request(PODS).accepted
        group.wait_for(PODS)


def test_a_member_that_dies_beside_two_victims_is_waited_for(group: Group) -> None:
    """Its container is started again. Lowered before, it could go in place of one of them."""
    first, second, other = group.shop.pods()[:3]
    group.drain(first)
    group.drain(second)
    group.node.running(other).kill()
    wait_until("three not ready", lambda: group.shop.ready() == PODS - 3)
    with go(group, first, second):
        assert group.request(PODS - 2, first, second).accepted
    group.wait_for(PODS - 2)


def test_pods_that_never_start_are_told_and_asked_for_once(group: Group, starts: Starts) -> None:
    starts.next.extend([pending, pending])
    assert group.request(PODS + 2).accepted
    wait_until("both", lambda: list(starts.kinds.values()).count(pending) == 2)
    before = group.shop.workload()["metadata"]["generation"]
    for _ in range(3):
        outcome = group.request(PODS + 2)
        assert outcome.answer is Answer.ACCEPTED
        assert outcome.detail == "deployments/payments has 8 replicas; 2 of 8 pods are not ready"
    assert group.shop.workload()["metadata"]["generation"] == before, "nothing is written again"
    with go(group, *(name for name, kind in starts.kinds.items() if kind is pending)):
        assert group.request(PODS).accepted


def test_what_the_controllers_say_of_pods_that_never_start_is_told(shop: Shop) -> None:
    """Of a first rollout they have a deadline."""
    with Node(shop.plane, shop.namespace, lambda pod: None) as node:
        (item,) = manifests("deployment.yaml")
        item["spec"] |= {"replicas": 2, "progressDeadlineSeconds": 1}
        shop.create(item)
        group = Group(shop, node)
        wait_until("the deadline", lambda: "ProgressDeadlineExceeded" in group.request(2).detail)
        assert group.request(2).accepted


def test_a_quota_of_the_namespace_is_told_and_costs_no_pod_that_works(group: Group) -> None:
    members = group.shop.pods()
    group.shop.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "few"},
            "spec": {"hard": {"pods": str(PODS + 1)}},
        }
    )
    quota = group.shop.path("ResourceQuota", "few")
    wait_until("the quota", lambda: "used" in group.shop.plane.call("GET", quota).get("status", {}))
    assert group.request(PODS + 3).accepted
    group_is_full = f"{PODS + 1} pods"
    wait_until(group_is_full, lambda: len(group.shop.pods()) == group.shop.ready() == PODS + 1)
    wait_until("the refusal", lambda: "exceeded quota: few" in group.request(PODS + 3).detail)
    outcome = group.request(PODS + 3)
    assert outcome.accepted
    assert outcome.detail.startswith("deployments/payments has 9 replicas; 2 of 9 pods are not ready (FailedCreate: ")
    assert group.request(PODS + 1).accepted, "it is given up, and no pod goes"
    assert set(members) <= set(group.shop.pods())
    group.wait_for(PODS + 1)


# -- pods that end slowly, or are taken by somebody else -------------------------------------------------------------


def test_more_are_wanted_while_victims_still_end(group: Group, starts: Starts) -> None:
    """A pod that ends is none any more: the new one comes beside it, and the next victim goes as any does."""
    victim, other = group.shop.pods()[:2]
    for pod in (victim, other):
        group.node.pods[pod].running = Slow()
        running = group.node.running(pod)
        assert isinstance(running, Switched)
        running.ready = False
    with go(group, victim, other):
        assert group.request(PODS - 2, victim, other).accepted
    assert group.request(PODS).accepted
    group.wait_for(PODS)
    assert {victim, other} <= group.node.pods.keys(), "they still end"
    third = group.shop.pods()[3]
    group.drain(third)
    with go(group, third):
        assert group.request(PODS - 1, third).accepted
    wait_until("their end", lambda: group.node.pods.keys() == set(group.shop.pods()))
    group.wait_for(PODS - 1)


def test_a_victim_that_is_gone_before_it_is_let_go_costs_no_other_pod(group: Group) -> None:
    """Somebody deleted it, and the controllers have made another one, which works by now."""
    victim = group.shop.pods()[0]
    members = group.shop.pods()
    group.drain(victim)
    wait_until("it is not ready", lambda: group.shop.ready() == PODS - 1)
    group.shop.plane.call("DELETE", f"{group.node.path}/{victim}")
    wait_until("its replacement", lambda: victim not in group.shop.pods() and group.shop.ready() == PODS)
    outcome = group.request(PODS - 1, victim, members=members)
    assert outcome.answer is Answer.FAILED
    assert "a ready one would go" in outcome.detail
    assert group.shop.replicas() == PODS
    (new,) = set(group.shop.pods()) - set(members)
    group.drain(new)
    with go(group, new):
        assert group.request(PODS - 1, new).accepted, "the next plan names another one"


def test_a_victim_that_is_gone_is_not_waited_for_where_its_replacement_does_not_start(
    group: Group, starts: Starts
) -> None:
    members = group.shop.pods()
    victim = members[0]
    starts.next.append(pending)
    group.shop.plane.call("DELETE", f"{group.node.path}/{victim}")
    wait_until("its replacement", lambda: pending in starts.kinds.values())
    wait_until("its end", lambda: group.shop.ready() == PODS - 1)
    with go(group, starts.named(pending)):
        assert group.request(PODS - 1, victim, members=members).accepted


def test_nothing_goes_while_the_readiness_probe_is_slower_than_the_drain(group: Group) -> None:
    """The victim is drained, and asked next in three seconds."""
    victim = group.shop.pods()[0]
    group.node.probe_seconds = 3.0
    group.node.pods[victim].probed_at = time.monotonic()
    group.drain(victim)
    with ThreadPoolExecutor() as pool, go(group, victim):
        asked = pool.submit(group.request, PODS - 1, victim)
        wait([asked], timeout=2.0)
        assert group.shop.replicas() == PODS
        assert asked.result().accepted


# -- leaders that die ------------------------------------------------------------------------------------------------


class LateAnswers:
    """A fence that holds, and from its first look on answers of the API server arrive too late."""

    def __init__(self, way: LaggingWay) -> None:
        self.way = way
        self.late: Any = None

    def holds(self) -> bool:
        self.late = self.late or self.way.late_by(2 * REQUEST_SECONDS)
        self.late.__enter__()
        return True


def test_a_scale_down_whose_answer_is_lost_is_not_carried_out_twice(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader dies, say. What it has asked for was done, and the next leader asks for the same."""
    victim, *staying = group.shop.pods()
    group.drain(victim)
    (port,) = free_ports(1)
    wanted = ScaleRequest(
        group="payments", replicas=PODS - 1, victims=(victim,), staying=tuple(staying), generation=1, sequence=1
    )
    with go(group, victim), LaggingWay(group.shop.plane.port, port) as way, monkeypatch.context() as environment:
        environment.setenv("KUBERNETES_SERVICE_PORT", str(port))
        api = ClusterApi(account=group.shop.account)
        scaler = KubernetesScaler(parse_target("deployment/payments"), api, LateAnswers(way))
        outcome = asyncio.run(scaler.request(wanted))
        assert outcome.answer is Answer.FAILED
        assert "no answer within" in outcome.detail
    group.wait_for(PODS - 1)
    outcome = group.request(PODS - 1, victim, members=[*staying, victim])
    assert outcome.accepted
    assert outcome.detail == "deployments/payments has 5 replicas"
    assert set(group.shop.pods()) == set(staying)
