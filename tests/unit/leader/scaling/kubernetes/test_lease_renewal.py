"""A leader's hold on its Lease: taken, renewed, lost in between, and what it costs the API server; in virtual time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.lease import Claim
from loadtrim_agent.leader.scaling.kubernetes.lease_renewal import HOLD_SECONDS, RENEW_SECONDS, LeaseRenewal

from .fake_cluster import FakeCluster

pytestmark = [pytest.mark.looptime, pytest.mark.asyncio]


class Member:
    """Leads until told otherwise."""

    def __init__(self, holder: str = "loadtrim-g@k", member: str = "m1", generation: int = 1) -> None:
        self.claimed: Claim | None = Claim(holder=holder, member=member, generation=generation)

    def claim(self) -> Claim | None:
        return self.claimed


def renewal(cluster: FakeCluster, member: Member) -> LeaseRenewal:
    return LeaseRenewal("payments", member, cluster, clock=lambda: asyncio.get_running_loop().time())


async def take(kept: LeaseRenewal, cluster: FakeCluster) -> str:
    async with cluster.conversation() as conversation:
        return await kept.take(conversation)


async def test_it_is_taken_with_two_requests_and_renewed_with_one() -> None:
    cluster, member = FakeCluster(), Member()
    kept = renewal(cluster, member)
    assert not kept.holds()
    assert await take(kept, cluster) == ""
    assert kept.holds()
    assert cluster.lease_requests == ["get", "put"]
    running = asyncio.create_task(kept.run())
    await asyncio.sleep(600.0)
    running.cancel()
    assert kept.holds()
    assert set(cluster.lease_requests[2:]) == {"put"}
    assert len(cluster.lease_requests) / 600.0 <= 0.2 / 1.5, "with room for what else the leader asks"


async def test_it_does_not_hold_for_longer_than_it_was_renewed() -> None:
    cluster = FakeCluster()
    kept = renewal(cluster, Member())
    assert await take(kept, cluster) == ""
    await asyncio.sleep(HOLD_SECONDS - 0.1)
    assert kept.holds()
    await asyncio.sleep(0.2)
    assert not kept.holds()


async def test_a_renewal_that_is_answered_late_holds_from_when_it_was_asked_for() -> None:
    cluster = FakeCluster()
    cluster.lease_seconds = HOLD_SECONDS - 1.0
    kept = renewal(cluster, Member())
    assert await take(kept, cluster) == ""
    assert kept.holds()
    await asyncio.sleep(1.5)
    assert not kept.holds()


async def test_one_that_was_frozen_reads_that_another_leads_and_holds() -> None:
    """It woke up, and believes that it leads still; the next leader of its group has the Lease."""
    cluster, frozen, next_one = FakeCluster(), Member(), Member(member="m2", generation=2)
    kept, other = renewal(cluster, frozen), renewal(cluster, next_one)
    assert await take(kept, cluster) == ""
    assert await take(other, cluster) == "", "the next leader need not wait"
    assert "generation 2" in await take(kept, cluster)
    assert not kept.holds()
    assert cluster.lease_document["metadata"]["annotations"]["loadtrim/member"] == "m2"


async def test_of_two_groups_the_one_that_came_first_holds_it_and_the_other_when_it_has_gone() -> None:
    cluster = FakeCluster()
    first, second = renewal(cluster, Member()), renewal(cluster, Member("loadtrim-g@elsewhere", "m9", 9))
    assert await take(first, cluster) == ""
    running = asyncio.create_task(first.run())
    for _ in range(30):
        assert "held by 'loadtrim-g@k'" in await take(second, cluster)
        await asyncio.sleep(10.0)
    running.cancel()
    refused = 0
    while await take(second, cluster):
        refused += 1
        await asyncio.sleep(10.0)
    assert 2 <= refused <= 4, "30 s after its last renewal"
    assert "held by" in await take(first, cluster)


async def test_the_next_generation_of_the_same_leader_takes_it_anew_before_it_writes() -> None:
    cluster, member = FakeCluster(), Member()
    kept = renewal(cluster, member)
    assert await take(kept, cluster) == ""
    member.claimed = Claim(holder="loadtrim-g@k", member="m1", generation=2)
    assert not kept.holds()
    assert await take(kept, cluster) == ""
    assert kept.holds()


async def test_one_that_leads_no_more_renews_no_more() -> None:
    cluster, member = FakeCluster(), Member()
    kept = renewal(cluster, member)
    assert await take(kept, cluster) == ""
    running = asyncio.create_task(kept.run())
    member.claimed = None
    assert not kept.holds()
    await asyncio.sleep(60.0)
    running.cancel()
    assert cluster.lease_requests == ["get", "put"]
    assert "leads its group no more" in await take(kept, cluster)


@pytest.mark.parametrize(("seconds", "generation"), [(0.05, 2), (0.05, 1), (3.5 * RENEW_SECONDS, 2)])
async def test_one_that_leads_again_after_a_rebalance_or_an_outage_renews_again(
    seconds: float, generation: int
) -> None:
    """Nothing renewed from then on, where nothing was to be scaled: another group had the Lease 30 s later."""
    cluster, member = FakeCluster(), Member()
    kept, other = renewal(cluster, member), renewal(cluster, Member("loadtrim-g@elsewhere", "m9", 9))
    assert await take(kept, cluster) == ""
    running = asyncio.create_task(kept.run())
    await asyncio.sleep(RENEW_SECONDS - 0.02)
    member.claimed = None
    await asyncio.sleep(seconds)
    assert cluster.lease_requests == ["get", "put"], "it does not lead at this tick"
    member.claimed = Claim(holder="loadtrim-g@k", member="m1", generation=generation)
    await asyncio.sleep(RENEW_SECONDS)
    for _ in range(10):
        assert kept.holds()
        assert "held by 'loadtrim-g@k'" in await take(other, cluster)
        await asyncio.sleep(RENEW_SECONDS)
    running.cancel()


async def test_one_that_leads_again_leaves_a_lease_that_another_group_has_taken_meanwhile() -> None:
    cluster, member = FakeCluster(), Member()
    kept, other = renewal(cluster, member), renewal(cluster, Member("loadtrim-g@elsewhere", "m9", 9))
    assert await take(kept, cluster) == ""
    member.claimed = None
    running = asyncio.create_task(kept.run())
    await take(other, cluster)
    await asyncio.sleep(4 * RENEW_SECONDS)
    assert await take(other, cluster) == ""
    member.claimed = Claim(holder="loadtrim-g@k", member="m1", generation=2)
    await asyncio.sleep(1.5 * RENEW_SECONDS)
    assert not kept.holds()
    assert cluster.lease_document["spec"]["holderIdentity"] == "loadtrim-g@elsewhere"
    cluster.lease_requests.clear()
    await asyncio.sleep(20 * RENEW_SECONDS)
    assert cluster.lease_requests == [], "it asks again when it has something to scale"
    running.cancel()


async def test_a_lease_lost_in_between_is_read_again() -> None:
    """Another version is there: somebody has labelled it, or it was deleted and made again."""
    cluster = FakeCluster()
    kept = renewal(cluster, Member())
    assert await take(kept, cluster) == ""
    cluster.touch_lease()
    assert await take(kept, cluster) == ""
    assert cluster.lease_requests == ["get", "put", "put", "get", "put"]
    cluster.lease_document = None
    assert await take(kept, cluster) == ""
    assert kept.holds()


async def test_an_api_server_that_is_away_ends_the_hold_and_one_that_is_back_begins_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "loadtrim")
    cluster = FakeCluster()
    kept = renewal(cluster, Member())
    assert await take(kept, cluster) == ""
    running = asyncio.create_task(kept.run())
    await asyncio.sleep(RENEW_SECONDS / 2)
    cluster.lease_fails = ApiError(0, "the API server cannot be talked to: refused")
    await asyncio.sleep(HOLD_SECONDS)
    assert not kept.holds(), "blind: nothing is written"
    await asyncio.sleep(60.0)
    assert [record.getMessage().count("refused") for record in caplog.records] == [1], "told once"
    cluster.lease_fails = None
    assert await take(kept, cluster) == ""
    await asyncio.sleep(60.0)
    assert kept.holds()
    running.cancel()


async def test_one_renewal_that_fails_gives_nothing_away() -> None:
    """Nothing renewed from then on, where nothing was to be scaled: another group had the Lease 30 s later."""
    cluster = FakeCluster()
    kept, other = renewal(cluster, Member()), renewal(cluster, Member("loadtrim-g@elsewhere", "m9", 9))
    assert await take(kept, cluster) == ""
    running = asyncio.create_task(kept.run())
    await asyncio.sleep(RENEW_SECONDS / 2)
    cluster.lease_fails = ApiError(0, "the API server cannot be talked to: refused")
    await asyncio.sleep(RENEW_SECONDS)
    cluster.lease_fails = None
    assert not kept.holds(), "it is not known"
    for _ in range(10):
        await asyncio.sleep(RENEW_SECONDS)
        assert kept.holds()
        assert "held by" in await take(other, cluster)
    running.cancel()


async def test_one_whose_lease_went_to_another_group_renews_no_more() -> None:
    cluster = FakeCluster()
    kept, other = renewal(cluster, Member()), renewal(cluster, Member("loadtrim-g@elsewhere", "m9", 9))
    assert await take(kept, cluster) == ""
    await take(other, cluster)
    await asyncio.sleep(4 * RENEW_SECONDS)
    assert await take(other, cluster) == ""
    running = asyncio.create_task(kept.run())
    await asyncio.sleep(1.5 * RENEW_SECONDS)
    cluster.lease_requests.clear()
    await asyncio.sleep(20 * RENEW_SECONDS)
    assert cluster.lease_requests == [], "it asks again when it has something to scale"
    running.cancel()


async def test_a_write_whose_answer_is_lost_is_no_hold() -> None:
    cluster = FakeCluster()
    kept = renewal(cluster, Member())
    cluster.lease_loses_answer = True
    with pytest.raises(ApiError):
        await take(kept, cluster)
    assert not kept.holds()
    assert await take(kept, cluster) == ""
    assert kept.holds()


async def test_a_lease_that_is_not_there_is_made_where_that_is_permitted_and_else_named() -> None:
    cluster = FakeCluster()
    cluster.lease_document = None
    assert await take(renewal(cluster, Member()), cluster) == ""
    assert cluster.lease_document is not None
    cluster.lease_document, cluster.lease_create = None, False
    with pytest.raises(ApiError, match="There is no Lease payments") as raised:
        await take(renewal(cluster, Member()), cluster)
    assert raised.value.status == 404


async def test_a_missing_right_is_told(caplog: pytest.LogCaptureFixture) -> None:
    cluster: Any = FakeCluster()
    cluster.lease_fails = ApiError(403, "leases is forbidden")
    with pytest.raises(ApiError) as raised:
        await take(renewal(cluster, Member()), cluster)
    assert raised.value.status == 403


async def test_a_renewal_that_breaks_is_told_and_the_next_one_comes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was off from then on: the Lease lapsed, and another group could take it."""
    cluster = FakeCluster()
    kept = renewal(cluster, Member())
    assert await take(kept, cluster) == ""
    whole = cluster.conversation

    def broken() -> Any:
        monkeypatch.setattr(cluster, "conversation", whole)
        raise LookupError("of a library")

    monkeypatch.setattr(cluster, "conversation", broken)
    running = asyncio.create_task(kept.run())
    await asyncio.sleep(2.5 * RENEW_SECONDS)
    assert kept.holds()
    assert not running.done()
    running.cancel()
    assert "LookupError: of a library" in caplog.text
