"""A node that is drained evicts pods, and the budget of the example's component `operations` is asked for each."""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from .group import Group, deployed
from .shop import Shop, manifests, wait_until

pytestmark = pytest.mark.kubernetes
PODS = 6
SETTLED_SECONDS = 2.0
"""The controllers do all else here within a tenth of it."""


@pytest.fixture
def group(shop: Shop) -> Iterator[Group]:
    with deployed(shop, PODS) as made:
        yield made


@pytest.fixture
def budget(group: Group) -> Group:
    shop = group.shop
    (item,) = manifests("operations/disruption.yaml")
    shop.create(item)
    path = shop.path("PodDisruptionBudget")
    wait_until("the budget", lambda: shop.plane.call("GET", path).get("status", {}).get("disruptionsAllowed") == 1)
    return group


def evicts(group: Group, pod: str) -> bool:
    """Ask for an eviction as `kubectl drain` does, and return whether it is permitted now."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    try:
        group.shop.plane.call("POST", f"{group.node.path}/{pod}/eviction", body)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.TOO_MANY_REQUESTS:
            raise
        return False
    return True


def test_a_drained_node_takes_one_member_at_a_time(budget: Group) -> None:
    """The next one when the first one's replacement is ready: it has joined the group then."""
    first, second, *others = budget.shop.pods()
    assert evicts(budget, first)
    assert not evicts(budget, second)
    wait_until("its turn", lambda: evicts(budget, second))
    budget.wait_for(PODS)
    assert set(others) <= set(budget.shop.pods())
    assert budget.request(PODS).accepted
    assert budget.shop.replicas() == PODS


def test_a_drained_victim_may_be_evicted_itself_and_counts_as_the_one(budget: Group) -> None:
    victim, other, *_ = budget.shop.pods()
    budget.drain(victim)
    wait_until("it is not ready", lambda: budget.shop.ready() == PODS - 1)
    status = budget.shop.path("PodDisruptionBudget")
    wait_until("the budget", lambda: budget.shop.plane.call("GET", status)["status"]["disruptionsAllowed"] == 0)
    assert not evicts(budget, other)
    assert evicts(budget, victim)


def test_a_scale_down_is_held_up_by_no_budget(budget: Group) -> None:
    drained = budget.shop.pods()[:3]
    for pod in drained:
        budget.drain(pod)
    assert budget.request(PODS - 3, *drained).accepted
    wait_until("the victims' end", lambda: len(budget.shop.pods()) == PODS - 3)
    assert set(drained).isdisjoint(budget.shop.pods())


def test_two_members_that_are_evicted_at_once_beside_a_victim_are_replaced(group: Group) -> None:
    """Without a budget. The victim goes or a pod that starts, and no other: both are not ready, and one is too many."""
    victim, first, second, *others = group.shop.pods()
    group.drain(victim)
    wait_until("it is not ready", lambda: group.shop.ready() == PODS - 1)
    assert evicts(group, first)
    assert evicts(group, second)
    assert group.request(PODS - 1, victim).accepted
    ends = time.monotonic() + SETTLED_SECONDS
    wait_until("a while", lambda: time.monotonic() >= ends)
    wait_until("one pod less", lambda: len(group.shop.pods()) == PODS - 1)
    assert set(others) <= set(group.shop.pods())
    assert {first, second}.isdisjoint(group.shop.pods())
