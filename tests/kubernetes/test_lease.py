"""The Lease of a real API server: taken with the example's rights, by one leader at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.lease import LEASE_SECONDS, Claim
from loadtrim_agent.leader.scaling.kubernetes.lease_renewal import HOLD_SECONDS, LeaseRenewal
from loadtrim_agent.leader.scaling.kubernetes.scaler import KubernetesScaler
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target
from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, ScaleRequest
from unit.leader.scaling.kubernetes.fake_cluster import OpenFence

from .shop import Shop, manifests, wait_until

pytestmark = pytest.mark.kubernetes
NAME = "payments-replicas"


class Leader:
    """A leader of a group, with a clock of its own."""

    def __init__(
        self, shop: Shop, group: str = "g@k", member: str = "m", generation: int = 1, name: str = NAME
    ) -> None:
        self.shop = shop
        self.claimed = Claim(holder=f"loadtrim-{group}", member=member, generation=generation)
        self.now = 1000.0
        api = ClusterApi(account=shop.account)
        self.lease = LeaseRenewal(name, self, api, clock=lambda: self.now)
        self.scaler = KubernetesScaler(parse_target("deployment/payments"), api, OpenFence(), lease=self.lease)
        self.group = group.partition("@")[0]

    def claim(self) -> Claim:
        return self.claimed

    def ask(self, replicas: int) -> ScaleOutcome:
        wanted = ScaleRequest(group=self.group, replicas=replicas, generation=1, sequence=1)
        return asyncio.run(self.scaler.request(wanted))


@pytest.fixture
def leased(shop: Shop) -> Shop:
    """The example with its component ``lease``, whose rights have arrived."""
    shop.deploy(2)
    for item in (*manifests("lease/lease.yaml"), *manifests("lease/rbac.yaml")):
        shop.create(item)
    wait_until("the right", lambda: Leader(shop).ask(2).accepted)
    free = object_of(shop)
    free["spec"] = {}
    shop.plane.call("PUT", shop.path("Lease", NAME), free)
    return shop


def object_of(shop: Shop) -> dict[str, Any]:
    return dict(shop.plane.call("GET", shop.path("Lease", NAME)))


def test_the_example_s_rights_are_enough_and_the_api_server_keeps_what_is_written(leased: Shop) -> None:
    outcome = Leader(leased).ask(3)
    assert outcome.accepted, outcome.detail
    assert leased.replicas() == 3
    spec = object_of(leased)["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("loadtrim-g@k", LEASE_SECONDS)
    assert spec["renewTime"] >= spec["acquireTime"]


def test_a_manifest_that_is_applied_again_changes_no_holder(leased: Shop) -> None:
    assert Leader(leased).ask(3).accepted
    (manifest,) = manifests("lease/lease.yaml")
    leased.plane.patch(leased.path("Lease", NAME), manifest)
    assert object_of(leased)["spec"]["holderIdentity"] == "loadtrim-g@k"


def test_of_two_groups_the_one_that_holds_it_scales_until_it_renews_no_more(leased: Shop) -> None:
    """Also of one name, on two clusters: each has the same field manager."""
    first, second = Leader(leased), Leader(leased, "g@elsewhere", "m9", 9)
    assert first.ask(3).accepted
    refused = second.ask(6)
    assert refused.answer is Answer.REFUSED
    assert "held by 'loadtrim-g@k'" in refused.detail
    first.now += HOLD_SECONDS
    assert first.ask(4).accepted, "it is renewed"
    second.now += LEASE_SECONDS
    assert not second.ask(6).accepted
    second.now += LEASE_SECONDS
    assert second.ask(6).accepted
    first.now += HOLD_SECONDS
    assert "held by 'loadtrim-g@elsewhere'" in first.ask(3).detail
    assert leased.replicas() == 6
    assert object_of(leased)["spec"]["leaseTransitions"] == 1


def test_a_leader_that_wakes_up_changes_nothing(leased: Shop) -> None:
    frozen, next_one = Leader(leased), Leader(leased, member="m2", generation=2)
    assert frozen.ask(3).accepted
    assert next_one.ask(4).accepted, "it need not wait"
    frozen.now += HOLD_SECONDS
    outcome = frozen.ask(9)
    assert outcome.answer is Answer.REFUSED
    assert "generation 2" in outcome.detail
    assert leased.replicas() == 4


def test_leaders_that_ask_at_once_do_not_both_write(leased: Shop) -> None:
    leaders = [Leader(leased, f"g{number}@k") for number in range(4)]

    async def all_ask() -> list[ScaleOutcome]:
        wanted = [ScaleRequest(group=each.group, replicas=3, generation=1, sequence=1) for each in leaders]
        return await asyncio.gather(*(each.scaler.request(one) for each, one in zip(leaders, wanted, strict=True)))

    outcomes = asyncio.run(all_ask())
    assert [outcome.accepted for outcome in outcomes].count(True) == 1, outcomes
    (holder,) = (each for each, outcome in zip(leaders, outcomes, strict=True) if outcome.accepted)
    assert object_of(leased)["spec"]["holderIdentity"] == holder.claimed.holder


def test_a_lease_that_is_not_there_is_named_and_made_where_create_is_permitted(leased: Shop) -> None:
    """With `resourceNames`: a PUT is asked about by its name, unlike a POST."""
    leased.plane.call("DELETE", leased.path("Lease", NAME))
    outcome = Leader(leased).ask(3)
    assert outcome.answer is Answer.REFUSED
    assert "There is no Lease payments-replicas" in outcome.detail
    assert leased.replicas() == 2
    role = leased.plane.call("GET", leased.path("Role", "payments-lease"))
    role["rules"][0]["verbs"].append("create")
    leased.plane.call("PUT", leased.path("Role", "payments-lease"), role)
    wait_until("the right", lambda: Leader(leased).ask(3).accepted)
    assert object_of(leased)["spec"]["holderIdentity"] == "loadtrim-g@k"
    assert "403 Forbidden" in Leader(leased, name="another").ask(5).detail
    assert leased.replicas() == 3


def test_a_lease_that_is_deleted_under_its_holder_is_missed(leased: Shop) -> None:
    leader = Leader(leased)
    assert leader.ask(3).accepted
    leased.plane.call("DELETE", leased.path("Lease", NAME))
    leader.now += HOLD_SECONDS
    assert "There is no Lease" in leader.ask(4).detail
    for item in manifests("lease/lease.yaml"):
        leased.create(item)
    assert leader.ask(4).accepted
    assert leased.replicas() == 4


async def test_without_the_role_the_rule_is_named(shop: Shop) -> None:
    await asyncio.to_thread(shop.deploy, 2)
    leader = Leader(shop)
    outcome = await leader.scaler.request(ScaleRequest(group="g", replicas=3, generation=1, sequence=1))
    assert outcome.answer is Answer.REFUSED
    assert "permit get and update on leases" in outcome.detail
    with pytest.raises(ApiError) as raised:
        async with ClusterApi(account=shop.account).conversation() as conversation:
            await leader.lease.take(conversation)
    assert raised.value.status == 403
