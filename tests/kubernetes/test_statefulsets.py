"""A StatefulSet removes its highest numbers, and these are the victims that the planner names."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from loadtrim_agent.leader.scaling.port import Answer
from loadtrim_agent.planning.placement.problem import Bin
from loadtrim_agent.planning.placement.victims import going
from unit.planning.virtual_group import item, problem

from .group import Group, start
from .node import Node, Slow
from .shop import Shop, wait_until

pytestmark = pytest.mark.kubernetes
PODS = 6
ROUNDS = 20
HELD_UP_SECONDS = 3.0
"""The controllers do all else here within a tenth of it."""


@contextmanager
def group_of(shop: Shop, policy: str, first: int = 0) -> Iterator[Group]:
    with Node(shop.plane, shop.namespace, start, probe_seconds=0.1) as node:
        shop.deploy_numbered(PODS, policy, first)
        made = Group(shop, node, "StatefulSet")
        made.wait_for(PODS)
        wait_until("the role", lambda: made.request(PODS).accepted)
        yield made


def named(pods: list[str], stay: int, draw: random.Random) -> tuple[str, ...]:
    """Return the pods that the planner would have go. What they own is drawn at random."""
    bins = [Bin(member=pod, unit=pod, capacity=1.0) for pod in pods]
    items = [item(at, draw.choice(pods), draw.random() / 8) for at in range(12)]
    return going(problem(items, bins, replicas=stay, numbered="payments"))


@pytest.mark.parametrize(("policy", "first"), [("OrderedReady", 0), ("Parallel", 7)])
def test_the_pods_go_that_the_planner_names(shop: Shop, policy: str, first: int) -> None:
    """Twenty times each, one to three at once. A drained pod of a StatefulSet stays ready."""
    draw = random.Random(11)
    with group_of(shop, policy, first) as group:
        assert group.request(PODS - 1).answer is Answer.FAILED, "all of them work"
        for _ in range(ROUNDS):
            pods = shop.pods()
            stay = PODS - draw.randint(1, 3)
            victims = named(pods, stay, draw)
            outcome = group.request(stay, *victims)
            assert outcome.answer is Answer.ACCEPTED, outcome.detail
            wait_until("the victims' end", lambda stay=stay: len(shop.pods()) == stay)  # type: ignore[misc]
            assert set(pods) - set(shop.pods()) == set(victims)
            assert group.request(PODS).accepted
            group.wait_for(PODS)


def test_drained_pods_that_are_not_ready_would_hold_each_other_up(shop: Shop) -> None:
    """Why they stay ready: the controller waits for the higher of the two to be ready before it removes it."""
    with group_of(shop, "OrderedReady") as group:
        pods = shop.pods()
        for pod in pods[-2:]:
            group.drain(pod)
        wait_until("both not ready", lambda: shop.ready("StatefulSet") == PODS - 2)
        assert group.request(PODS - 2, *pods[-2:]).accepted
        ends = time.monotonic() + HELD_UP_SECONDS
        wait_until("a while", lambda: time.monotonic() >= ends)
        assert shop.pods() == pods
        for pod in pods[-2:]:
            group.switch(pod, ready=True)
        wait_until("the victims' end", lambda: shop.pods() == pods[:-2])


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_lower_pod_that_is_not_ready_holds_the_victims_up_only_where_it_is_ordered(shop: Shop, policy: str) -> None:
    """Nothing is lost by it: the victims own nothing. The leader is told, and all goes on when the pod is well."""
    with group_of(shop, policy) as group:
        pods = shop.pods()
        group.drain(pods[1])
        wait_until("it is not ready", lambda: shop.ready("StatefulSet") == PODS - 1)
        assert group.request(PODS - 2, *pods[-2:]).accepted
        if policy == "OrderedReady":
            ends = time.monotonic() + HELD_UP_SECONDS
            wait_until("a while", lambda: time.monotonic() >= ends)
            assert shop.pods() == pods
            outcome = group.request(PODS - 2, *pods[-2:])
            assert outcome.accepted
            assert outcome.detail == "statefulsets/payments has 4 replicas; 6 pods are there, and 5 of them are ready"
            group.switch(pods[1], ready=True)
        wait_until("the victims' end", lambda: shop.pods() == pods[:-2])


def test_a_lower_pod_that_is_not_ready_holds_new_pods_up_and_is_told(shop: Shop) -> None:
    with group_of(shop, "OrderedReady") as group:
        pods = shop.pods()
        group.drain(pods[0])
        wait_until("it is not ready", lambda: shop.ready("StatefulSet") == PODS - 1)
        assert group.request(PODS + 2).accepted
        detail = "statefulsets/payments has 8 replicas; 3 of 8 pods are not ready"
        wait_until("the word", lambda: group.request(PODS + 2).detail == detail)
        assert shop.pods() == pods
        group.switch(pods[0], ready=True)
        group.wait_for(PODS + 2)


def test_a_pod_that_is_wanted_again_while_it_ends_comes_after_its_end(shop: Shop) -> None:
    """Of the same name, as another pod. The ones below it are not touched."""
    with group_of(shop, "Parallel") as group:
        pods = shop.pods()
        victim = pods[-1]
        ends = group.node.pods[victim].running = Slow()
        before = {name: pod.uid for name, pod in group.node.pods.items()}
        assert group.request(PODS - 1, victim).accepted
        wait_until("its end begins", lambda: shop.pods() == pods[:-1])
        assert group.request(PODS).accepted
        group.wait_for(PODS)
        assert ends.has_ended()
        after = {name: pod.uid for name, pod in group.node.pods.items()}
        assert {name for name in before if before[name] != after[name]} == {victim}
