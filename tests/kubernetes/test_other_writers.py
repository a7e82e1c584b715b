"""Replicas that somebody else has written, with what a real API server says of writers. No pod is ready here."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.foreign import FOREIGN_MAX, FOREIGN_SECONDS
from loadtrim_agent.leader.scaling.kubernetes.scaler import Foreign, KubernetesScaler
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target
from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, ScaleRequest
from unit.leader.scaling.kubernetes.fake_cluster import OpenFence

from .shop import Shop, manifests, wait_until

pytestmark = pytest.mark.kubernetes
WANTED = 4
ARGO_SECONDS = 180.0
"""Between two looks of Argo CD at what Git says."""


class Leader:
    """A leader that wants some replicas, with a clock of its own."""

    def __init__(self, shop: Shop, foreign: Foreign = "correct") -> None:
        self.now = 1000.0
        self.group = "g"
        api = ClusterApi(account=shop.account)
        target = parse_target("deployment/payments")
        self.scaler = KubernetesScaler(target, api, OpenFence(), foreign, clock=lambda: self.now)

    def ask(self, replicas: int = WANTED) -> ScaleOutcome:
        wanted = ScaleRequest(group=self.group, replicas=replicas, generation=1, sequence=1)
        return asyncio.run(self.scaler.request(wanted))


@pytest.fixture
def leader(shop: Shop) -> Leader:
    """Of the example's Deployment, whose replicas it has written once."""
    shop.deploy(2)
    made = Leader(shop)
    assert made.ask().accepted
    return made


def write(shop: Shop, manager: str, body: dict[str, Any]) -> None:
    """Change the Deployment as a client does that sends what has changed: kubectl, Helm."""
    shop.plane.call("PATCH", f"{shop.path()}?fieldManager={manager}", body, "application/merge-patch+json")


def apply(shop: Shop, manager: str, replicas: int | None) -> None:
    """Apply the example's manifest, with a number or without one, as a client does whose fields the server keeps."""
    (item,) = manifests("deployment.yaml")
    item["spec"].pop("replicas", None)
    if replicas is not None:
        item["spec"]["replicas"] = replicas
    path = f"{shop.path()}?fieldManager={manager}&force=true"
    shop.plane.call("PATCH", path, item, "application/apply-patch+yaml")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "changed the replicas" in record.getMessage()]


# -- autoscalers -----------------------------------------------------------------------------------------------------


def test_an_autoscaler_that_comes_later_is_named_and_left_alone(
    shop: Shop, leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    """Of Kubernetes itself: KEDA makes one, too. It looks each second here, and raises to its minimum."""
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "by-hand"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "payments"},
            "minReplicas": 7,
            "maxReplicas": 9,
        },
    }
    shop.create(autoscaler)
    outcomes = []
    for _ in range(FOREIGN_MAX):
        wait_until("the autoscaler", lambda: shop.replicas() == 7)
        leader.now += 15.0
        outcomes.append(leader.ask())
    assert [outcome.accepted for outcome in outcomes] == [True, True, False]
    assert outcomes[-1].answer is Answer.REFUSED
    assert "changed by another writer 3 times within 600 s" in outcomes[-1].detail
    line = "deployments/payments: kube-controller-manager changed the replicas from 4 to 7."
    assert told(caplog) == [line] * FOREIGN_MAX
    leader.now += FOREIGN_SECONDS - 1.0
    assert not leader.ask().accepted
    assert shop.replicas() == 7
    shop.plane.call("DELETE", shop.path("HorizontalPodAutoscaler", "by-hand"))
    leader.now += 2.0
    assert leader.ask().accepted, "it was taken away"
    assert shop.replicas() == WANTED


def test_an_autoscaler_that_was_there_before_is_found_by_what_it_writes(shop: Shop) -> None:
    (autoscaler,) = manifests("metric-hpa/hpa.yaml")
    autoscaler["spec"] |= {"minReplicas": 7, "maxReplicas": 9}
    shop.deploy(7)
    shop.create(autoscaler)
    leader, refused = Leader(shop), None
    for _ in range(FOREIGN_MAX + 1):
        wait_until("the autoscaler", lambda: shop.replicas() == 7)
        leader.now += 15.0
        refused = leader.ask()
    assert refused is not None
    assert refused.answer is Answer.REFUSED
    assert shop.replicas() == 7


# -- people and their tools ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("foreign", "stays"), [("correct", WANTED), ("respect", 6)])
def test_a_number_by_hand_is_told_and_corrected_or_left(
    shop: Shop, foreign: Foreign, stays: int, caplog: pytest.LogCaptureFixture
) -> None:
    """`kubectl scale`; one of the same number is no news."""
    shop.deploy(2)
    leader = Leader(shop, foreign)
    assert leader.ask().accepted
    for replicas in (WANTED, 6):
        body = {"spec": {"replicas": replicas}}
        path = f"{shop.path()}/scale?fieldManager=kubectl"
        shop.plane.call("PATCH", path, body, "application/merge-patch+json")
        assert leader.ask().accepted is (shop.replicas() == WANTED)
    assert shop.replicas() == stays
    assert told(caplog) == ["deployments/payments: kubectl changed the replicas from 4 to 6."]
    assert leader.ask(5).accepted
    assert shop.replicas() == 5


def test_a_sync_every_three_minutes_is_corrected_twice_and_left_alone_then(
    shop: Shop, leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    """Argo CD whose Git has a number. In an hour the two write against each other for a third of the time at most."""
    written = 0
    for _ in range(20):
        leader.now += ARGO_SECONDS
        apply(shop, "argocd-controller", 2)
        written += leader.ask().accepted
    assert written <= 20 // 2
    assert "argocd-controller changed the replicas from 4 to 2" in told(caplog)[0]
    assert "take away the other autoscaler" in caplog.text


def test_an_upgrade_whose_chart_has_a_number_is_corrected_once(
    shop: Shop, leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    write(shop, "helm", {"spec": {"replicas": 1, "template": {"metadata": {"annotations": {"chart": "2"}}}}})
    for _ in range(3):
        assert leader.ask().accepted
    assert shop.replicas() == WANTED
    assert told(caplog) == ["deployments/payments: helm changed the replicas from 4 to 1."]


# -- a manifest that has no replicas any more ------------------------------------------------------------------------


def test_a_number_that_is_taken_out_of_a_manifest_becomes_one_and_is_corrected(
    shop: Shop, leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    """`kubectl apply` sends null where the manifest that was applied last had a number."""
    write(shop, "kubectl-client-side-apply", {"spec": {"replicas": None}})
    assert shop.replicas() == 1
    assert leader.ask().accepted
    assert shop.replicas() == WANTED
    assert told(caplog) == ["deployments/payments: kubectl-client-side-apply changed the replicas from 4 to 1."]


def test_a_manifest_that_lets_go_of_the_number_leaves_the_one_of_the_leader(shop: Shop) -> None:
    """Where the server keeps the fields of each writer: only a number that nobody else wrote becomes one."""
    shop.deploy(2)
    apply(shop, "argocd-controller", 3)
    leader = Leader(shop)
    assert leader.ask().accepted
    apply(shop, "argocd-controller", None)
    assert shop.replicas() == WANTED
    apply(shop, "argocd-controller", WANTED)
    apply(shop, "argocd-controller", None)
    assert shop.replicas() == WANTED


def test_a_leader_that_has_written_nothing_yet_brings_a_lost_number_back(shop: Shop) -> None:
    (item,) = manifests("deployment.yaml")
    item["spec"]["replicas"] = WANTED
    path = f"{shop.path()}?fieldManager=argocd-controller"
    shop.plane.call("PATCH", path, item, "application/apply-patch+yaml")
    leader = Leader(shop)
    assert leader.ask().accepted
    apply(shop, "argocd-controller", None)
    assert shop.replicas() == 1
    assert leader.ask().accepted
    assert shop.replicas() == WANTED


# -- another group ---------------------------------------------------------------------------------------------------


def test_a_number_of_another_group_that_somebody_applies_as_well_is_still_that_group_s(shop: Shop) -> None:
    """The server has both as writers then, and the later one is no group."""
    shop.deploy(2)
    leader, other = Leader(shop), Leader(shop)
    other.group = "orders"
    assert other.ask(WANTED).accepted
    time.sleep(1.1)  # The server tells times of writers in whole seconds.
    apply(shop, "argocd-controller", WANTED)
    outcome = leader.ask(6)
    assert outcome.answer is Answer.REFUSED
    assert "Two groups scale deployments/payments: 'orders' set its 4 replicas" in outcome.detail
    assert other.ask(5).accepted
    assert shop.replicas() == 5
