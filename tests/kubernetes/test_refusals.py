"""What a real API server refuses, and what the leader is told then. Nothing is changed in any of them."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from loadtrim.testing.ports import free_ports
from loadtrim_agent.leader.scaling.kubernetes.api import ApiError
from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.scaler import KubernetesScaler
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target
from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, ScaleRequest
from unit.leader.scaling.kubernetes.fake_cluster import OpenFence

from .shop import Shop, wait_until

pytestmark = pytest.mark.kubernetes


@pytest.fixture(autouse=True)
def deployment(shop: Shop) -> None:
    shop.deploy(2)


def ask(shop: Shop, replicas: int = 3, target: str = "deployment/payments", group: str = "g") -> ScaleOutcome:
    scaler = KubernetesScaler(parse_target(target), ClusterApi(account=shop.account), OpenFence())
    return asyncio.run(scaler.request(ScaleRequest(group=group, replicas=replicas, generation=1, sequence=1)))


def test_the_example_s_rights_are_enough(shop: Shop) -> None:
    outcome = ask(shop)
    assert outcome.accepted, outcome.detail
    assert shop.replicas() == 3
    assert any(
        entry["manager"] == "loadtrim-g" and entry.get("subresource") == "scale"
        for entry in shop.workload()["metadata"]["managedFields"]
    )


def test_without_the_role_the_rule_is_named(shop: Shop) -> None:
    wait_until("the account", lambda: bool(shop.plane.token(shop.namespace, "default")))
    shop.mount("default")
    outcome = ask(shop)
    assert outcome.answer is Answer.REFUSED
    assert outcome.detail.startswith("403 ")
    assert shop.replicas() == 2


def test_the_rights_reach_no_other_workload_and_no_pod(shop: Shop) -> None:
    """Also not by another way: the account can neither read a pod nor change a template."""
    assert ask(shop, target="deployment/other").detail.startswith("403 ")
    token = (shop.account / "token").read_text()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    user = shop.plane.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]["user"]

    def may(verb: str, resource: str, name: str = "", subresource: str = "", group: str = "") -> bool:
        attributes = {
            "namespace": shop.namespace,
            "verb": verb,
            "resource": resource,
            "subresource": subresource,
            "group": group,
            "name": name,
        }
        spec = {"user": user["username"], "groups": user["groups"], "resourceAttributes": attributes}
        asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = shop.plane.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", asked)
        return bool(answer["status"]["allowed"])

    assert may("get", "deployments", "payments", group="apps")
    assert may("patch", "deployments", "payments", "scale", "apps")
    assert not any(may(verb, "pods") for verb in ("get", "list", "watch", "create", "patch", "delete"))
    assert not may("patch", "deployments", "payments", group="apps")
    assert not may("update", "deployments", "payments", "scale", "apps")


@pytest.mark.parametrize("other", ["orders", "größe " + "o" * 200], ids=["plain", "hashed"])
def test_of_two_groups_on_one_workload_the_second_holds_until_somebody_scales_by_hand(shop: Shop, other: str) -> None:
    """The API server takes the names of both, and keeps them apart."""
    assert ask(shop, 3, group=other).accepted
    for _ in range(3):
        outcome = ask(shop, 5)
        assert outcome.answer is Answer.REFUSED
        assert ask(shop, 3, group=other).accepted
    assert "Two groups scale deployments/payments" in outcome.detail
    assert shop.replicas() == 3
    command = outcome.detail.rpartition("kubectl ")[2].split()
    assert command[:2] == ["scale", "deployments/payments"]
    shop.scale(int(command[2].removeprefix("--replicas=")))
    assert ask(shop, 6).accepted
    assert ask(shop, 4, group=other).answer is Answer.REFUSED
    assert shop.replicas() == 6


def test_a_workload_that_is_not_there(shop: Shop) -> None:
    role = shop.plane.call("GET", shop.path("Role", "payments-replicas"))
    for rule in role["rules"]:
        rule["resourceNames"] = ["payment"]
    shop.plane.call("PUT", shop.path("Role", "payments-replicas"), role)
    wait_until("the role", lambda: ask(shop, target="deployment/payment").detail.startswith("404 "))
    outcome = ask(shop, target="deployment/payment")
    assert outcome.answer is Answer.REFUSED
    assert "set LOADTRIM_KUBERNETES_TARGET" in outcome.detail


def test_a_token_that_has_run_out_is_read_anew(shop: Shop) -> None:
    good = (shop.account / "token").read_text()
    (shop.account / "token").write_text("expired")
    outcome = ask(shop)
    assert outcome.answer is Answer.FAILED
    assert outcome.detail.startswith("401 ")
    (shop.account / "token").write_text(good)
    assert ask(shop).accepted


def test_a_policy_that_denies(shop: Shop) -> None:
    """A ValidatingAdmissionPolicy, as a platform team has it: its message reaches the leader."""
    name = f"few-{shop.namespace}"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["apps"],
                        "apiVersions": ["v1"],
                        "operations": ["UPDATE"],
                        "resources": ["deployments/scale"],
                    }
                ]
            },
            "validations": [{"expression": "object.spec.replicas <= 4", "message": "this team has four pods"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": shop.namespace}}},
        },
    }
    base = "/apis/admissionregistration.k8s.io/v1"
    shop.plane.call("POST", f"{base}/validatingadmissionpolicies", policy)
    shop.plane.call("POST", f"{base}/validatingadmissionpolicybindings", binding)
    numbers = itertools.count(5)
    wait_until("the policy", lambda: not ask(shop, next(numbers)).accepted)
    outcome = ask(shop, next(numbers))
    assert outcome.answer is Answer.REFUSED
    assert outcome.detail.startswith("422 ")
    assert "this team has four pods" in outcome.detail
    assert ask(shop, 4).accepted


def test_an_api_server_that_is_away(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
    outcome = ask(shop)
    assert outcome.answer is Answer.FAILED
    assert "cannot be talked to" in outcome.detail


def test_the_environment_s_proxy_is_not_asked(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    (port,) = free_ports(1)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    assert ask(shop).accepted


def test_certificates_of_somebody_else(shop: Shop, tmp_path: Path) -> None:
    """Also after a rotation: the file is read anew for each request."""
    good = (shop.account / "ca.crt").read_bytes()
    other = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (shop.account / "ca.crt").write_text(other)
    outcome = ask(shop)
    assert outcome.answer is Answer.FAILED
    (shop.account / "ca.crt").write_bytes(good)
    assert ask(shop).accepted


async def test_a_change_of_an_older_version_is_refused(shop: Shop) -> None:
    """What the fake of the unit tests does too: a version that is not the newest is a conflict."""
    target = parse_target("deployment/payments")
    async with ClusterApi(account=shop.account).conversation() as api:
        before = await api.workload(target)
        await asyncio.to_thread(shop.scale, 4)
        with pytest.raises(ApiError) as raised:
            await api.set_replicas(target, 9, before.version, "loadtrim-g")
    assert raised.value.status == 409
    assert await asyncio.to_thread(shop.replicas) == 4
