"""What ``loadtrim doctor`` says of a pod's rights, with the reviews of a real API server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from loadtrim.cli import main
from loadtrim.observer.checkup import Finding
from loadtrim.observer.cluster_checkup import look_at_cluster
from loadtrim_agent.leader.scaling.kubernetes import client
from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target

from .cluster import kubeconfig_of
from .shop import Shop, wait_until

pytestmark = pytest.mark.kubernetes
HPA = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "by-hand"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "payments"},
        "maxReplicas": 3,
    },
}


def look(shop: Shop) -> list[Finding]:
    return asyncio.run(look_at_cluster(ClusterApi(account=shop.account), parse_target("deployment/payments"), "g"))


def verdicts(shop: Shop) -> list[str]:
    return [finding.verdict.value for finding in look(shop)]


def test_the_rules_that_are_printed_are_enough(shop: Shop) -> None:
    shop.deploy(2)
    assert verdicts(shop) == ["ok", "ok", "ok", "unknown"], "the example's Role"
    role = shop.plane.call("GET", shop.path("Role", "payments-replicas"))
    shop.plane.call("PUT", shop.path("Role", "payments-replicas"), role | {"rules": []})
    wait_until("no rights", lambda: verdicts(shop) == ["missing", "missing", "unknown"])
    role = shop.plane.call("GET", shop.path("Role", "payments-replicas"))
    rules = yaml.safe_load("\n".join(finding.remedy for finding in look(shop) if finding.remedy))
    shop.plane.call("PUT", shop.path("Role", "payments-replicas"), role | {"rules": rules})
    wait_until("the rules", lambda: verdicts(shop) == ["ok", "ok", "ok", "unknown"])


def test_an_autoscaler_of_the_same_workload_is_named_where_it_may_be_seen(shop: Shop) -> None:
    shop.deploy(2)
    path = f"/apis/autoscaling/v2/namespaces/{shop.namespace}/horizontalpodautoscalers"
    other = HPA["spec"] | {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "orders"}}  # type: ignore[operator]
    shop.plane.call("POST", path, HPA | {"metadata": {"name": "of-another"}, "spec": other})
    role = shop.plane.call("GET", shop.path("Role", "payments-replicas"))
    role["rules"].append({"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["list"]})
    shop.plane.call("PUT", shop.path("Role", "payments-replicas"), role)
    wait_until("the rule", lambda: verdicts(shop) == ["ok"] * 4)
    shop.plane.call("POST", path, HPA)
    found = look(shop)[3]
    assert found.detail.startswith("by-hand would write against the leader")


def test_in_a_pod_the_command_looks_at_both(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The workload is found by the pod's name, as the leader finds it. No broker answers here."""
    shop.deploy(2)
    monkeypatch.setattr(client, "ACCOUNT", shop.account)
    monkeypatch.setenv("LOADTRIM_SCALER", "kubernetes")
    monkeypatch.setenv("LOADTRIM_INSTANCE", "payments-6d5f8c9b7d-x2x9k")
    assert main(["doctor", "g", "--json", "--bootstrap", "127.0.0.1:1"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [finding["verdict"] for finding in found] == ["missing", "ok", "ok", "ok", "unknown"]


def test_from_elsewhere_the_rights_are_those_of_the_pods(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The administrator of the kubeconfig may do everything; the account of the pods only what its Role says."""
    shop.deploy(2)
    file = tmp_path / "config"
    file.write_text(json.dumps(kubeconfig_of(shop.plane.url)))
    monkeypatch.setenv("LOADTRIM_KUBERNETES_POD_UID", "some-uid")
    words = ["--json", "--bootstrap", "127.0.0.1:1", "--kubeconfig", str(file), "--namespace", shop.namespace]

    def found(*more: str) -> list[str]:
        assert main(["doctor", "g", *words, "--workload", "deployment/payments", *more]) == 1
        return [finding["verdict"] for finding in json.loads(capsys.readouterr().out)]

    # Brokers, get and patch, the workload, autoscalers (the administrator may list them), pods.
    assert found("--service-account", "payments") == ["missing", "ok", "ok", "ok", "ok", "missing"]
    assert found() == ["missing", "missing", "missing", "ok", "missing"], "the account `default` may do nothing"
