"""The controllers take the pod that was drained, whatever else would speak for another one."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from loadtrim_agent.leader.scaling.port import Answer

from .group import Group, deployed
from .shop import Shop, wait_until

pytestmark = pytest.mark.kubernetes
PODS = 6
ROUNDS = 20


@pytest.fixture
def group(shop: Shop) -> Iterator[Group]:
    with deployed(shop, PODS) as made:
        yield made


def cost(group: Group, pod: str, value: int | None) -> None:
    """Write the annotation by which others say which pod goes first; None: none."""
    path = f"{group.node.path}/{pod}"
    text = None if value is None else str(value)
    group.shop.plane.patch(path, {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": text}}})


@pytest.mark.parametrize("costs", ["absent", "equal", "victims are dear"])
def test_the_drained_pod_goes(group: Group, costs: str) -> None:
    """Twenty times each; the pod is drawn at random. Also where all others are said to be cheaper."""
    draw = random.Random(11)
    for _ in range(ROUNDS):
        pods = group.shop.pods()
        victim = draw.choice(pods)
        if costs != "absent":
            for pod in pods:
                cost(group, pod, 100 if costs == "victims are dear" and pod == victim else -100)
        group.drain(victim)
        outcome = group.request(PODS - 1, victim)
        assert outcome.answer is Answer.ACCEPTED, outcome.detail
        wait_until("the victim's end", lambda: len(group.shop.pods()) == PODS - 1)
        assert set(pods) - set(group.shop.pods()) == {victim}
        assert group.request(PODS).accepted
        group.wait_for(PODS)


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0.3, 1.0])
def test_the_drained_pod_goes_where_the_controllers_know_late(group: Group, lag: float) -> None:
    """Twenty times each: of pods, of their sets and of the workload they hear so much later. All others are cheaper."""
    draw = random.Random(11)
    with group.shop.plane.controllers_way.late_by(lag):
        for _ in range(ROUNDS):
            pods = group.shop.pods()
            victim = draw.choice(pods)
            for pod in pods:
                cost(group, pod, 100 if pod == victim else -100)
            group.drain(victim)
            began = time.monotonic()
            outcome = group.request(PODS - 1, victim)
            assert outcome.answer is Answer.ACCEPTED, outcome.detail
            assert time.monotonic() - began > lag, "they have seen the victim"
            wait_until("the victim's end", lambda: len(group.shop.pods()) == PODS - 1)
            assert set(pods) - set(group.shop.pods()) == {victim}
            assert group.request(PODS).accepted
            group.wait_for(PODS)


def test_nothing_goes_before_the_victim_is_drained(group: Group) -> None:
    victim = group.shop.pods()[0]
    outcome = group.request(PODS - 1, victim)
    assert outcome.answer is Answer.FAILED
    assert group.shop.replicas() == PODS
    group.drain(victim)
    wait_until("the victim not ready", lambda: group.shop.ready() == PODS - 1)
    # What has waited in vain takes one look at a time, and the workload's own count may come a moment later.
    wait_until("a smaller workload", lambda: group.request(PODS - 1, victim).accepted)
    wait_until("the victim's end", lambda: len(group.shop.pods()) == PODS - 1)
    assert victim not in group.shop.pods()


def test_a_pod_that_fails_one_probe_does_not_go_in_place_of_the_victim(group: Group) -> None:
    """The one that works is the cheaper one by its annotation, and has been ready for less long."""
    for _ in range(5):
        victim, other = group.shop.pods()[:2]
        cost(group, other, -100)
        group.drain(victim)
        group.drain(other)
        wait_until("two not ready", lambda: group.shop.ready() == PODS - 2)
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(group.request, PODS - 1, victim)
            wait([asked], timeout=1.0)
            assert not asked.done()
            group.switch(other, ready=True)
            assert asked.result().accepted
        wait_until("the victim's end", lambda: len(group.shop.pods()) == PODS - 1)
        assert victim not in group.shop.pods()
        assert other in group.shop.pods()
        assert group.request(PODS).accepted
        group.wait_for(PODS)
