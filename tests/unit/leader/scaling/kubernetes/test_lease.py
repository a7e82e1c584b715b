"""Who may take a Lease, and what is written then."""

from __future__ import annotations

from typing import Any

import pytest

from loadtrim_agent.leader.scaling.kubernetes.lease import LEASE_SECONDS, Claim, LeaseObserver, WorkloadLease

OURS = Claim(holder="loadtrim-payments@k1", member="m1", generation=7)


def lease(claim: Claim | None = None, renewed: str = "2026-01-01T00:00:00.000000Z", **spec: Any) -> WorkloadLease:
    metadata: dict[str, Any] = {"name": "payments", "resourceVersion": "5", "labels": {"team": "a"}}
    if claim is not None:
        metadata["annotations"] = {"loadtrim/generation": str(claim.generation), "loadtrim/member": claim.member}
        spec = {"holderIdentity": claim.holder, "leaseDurationSeconds": 30, "renewTime": renewed} | spec
    return WorkloadLease.read({"metadata": metadata, "spec": spec})


def other(**changes: Any) -> Claim:
    return Claim(**({"holder": OURS.holder, "member": OURS.member, "generation": OURS.generation} | changes))


ELSEWHERE = other(holder="loadtrim-payments@k2", member="m9", generation=900)


def test_one_that_nobody_holds_is_taken() -> None:
    assert LeaseObserver().refuses(lease(), OURS, 0.0) == ""
    assert LeaseObserver().refuses(lease(holderIdentity=""), OURS, 0.0) == ""
    assert LeaseObserver().refuses(WorkloadLease.missing("payments"), OURS, 0.0) == ""


def test_the_next_leader_of_the_group_takes_it_at_once_and_an_earlier_one_does_not() -> None:
    assert LeaseObserver().refuses(lease(other(generation=6, member="m0")), OURS, 0.0) == ""
    assert LeaseObserver().refuses(lease(OURS), OURS, 0.0) == ""
    assert "held in generation 8" in LeaseObserver().refuses(lease(other(generation=8, member="m2")), OURS, 0.0)


def test_two_members_that_lead_one_generation_are_of_two_groups() -> None:
    assert "held by" in LeaseObserver().refuses(lease(other(member="m2")), OURS, 0.0)


@pytest.mark.parametrize("holder", [ELSEWHERE, other(generation=8), other(holder="kube-scheduler", generation=-1)])
def test_one_of_another_is_taken_when_it_was_not_renewed_for_as_long_as_it_says(holder: Claim) -> None:
    observer = LeaseObserver()
    assert observer.refuses(lease(holder), OURS, 1000.0)
    assert observer.refuses(lease(holder), OURS, 1029.9)
    assert observer.refuses(lease(holder), OURS, 1030.0) == ""


def test_a_renewal_begins_the_wait_anew_whatever_its_clock_says() -> None:
    observer = LeaseObserver()
    for now, renewed in ((1000.0, "2031-01-01T00:00:00.000000Z"), (1029.0, "1999-01-01T00:00:00.000000Z")):
        assert observer.refuses(lease(ELSEWHERE, renewed), OURS, now)
    assert observer.refuses(lease(ELSEWHERE, "1999-01-01T00:00:00.000000Z"), OURS, 1058.0)
    assert observer.refuses(lease(ELSEWHERE, "1999-01-01T00:00:00.000000Z"), OURS, 1059.0) == ""


def test_another_change_of_the_object_is_no_renewal() -> None:
    observer = LeaseObserver()
    assert observer.refuses(lease(ELSEWHERE), OURS, 1000.0)
    labelled = lease(ELSEWHERE)
    labelled.document["metadata"]["labels"] = {"team": "b"}
    changed = WorkloadLease.read(
        labelled.document | {"metadata": labelled.document["metadata"] | {"resourceVersion": "6"}}
    )
    assert observer.refuses(changed, OURS, 1030.0) == ""


def test_what_the_holder_says_of_its_time_counts() -> None:
    observer = LeaseObserver()
    assert observer.refuses(lease(ELSEWHERE, leaseDurationSeconds=60), OURS, 0.0)
    assert observer.refuses(lease(ELSEWHERE, leaseDurationSeconds=60), OURS, 59.0)
    assert observer.refuses(lease(ELSEWHERE, leaseDurationSeconds=60), OURS, 60.0) == ""


def test_what_is_written_keeps_the_rest_of_the_object_and_names_its_version() -> None:
    written = lease(ELSEWHERE, strategy="x", leaseTransitions=3).taken(OURS, 1767225600.25)
    assert written["metadata"]["resourceVersion"] == "5"
    assert written["metadata"]["labels"] == {"team": "a"}
    assert written["spec"] == {
        "holderIdentity": "loadtrim-payments@k1",
        "leaseDurationSeconds": int(LEASE_SECONDS),
        "acquireTime": "2026-01-01T00:00:00.250000Z",
        "renewTime": "2026-01-01T00:00:00.250000Z",
        "leaseTransitions": 4,
        "strategy": "x",
    }
    assert WorkloadLease.read(written).claimed_by(OURS)


def test_a_renewal_keeps_the_time_of_the_first_one() -> None:
    first = WorkloadLease.read(lease().taken(OURS, 1767225600.0))
    again = WorkloadLease.read(first.taken(other(generation=8), 1767225610.0))
    assert (again.spec.acquire_time, again.spec.lease_transitions) == ("2026-01-01T00:00:00.000000Z", 0)
    assert again.spec.renew_time == "2026-01-01T00:00:10.000000Z"
    assert again.generation == 8


@pytest.mark.parametrize("told", ["", "seven", "-1", "٧"])
def test_a_generation_that_is_none_is_nobody_s(told: str) -> None:
    assert WorkloadLease.read({"metadata": {"annotations": {"loadtrim/generation": told}}}).generation == -1
