"""The example's manifests as kustomize builds them, taken by a real API server that refuses unknown fields."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.scaler import KubernetesScaler
from loadtrim_agent.leader.scaling.kubernetes.target import parse_target
from loadtrim_agent.leader.scaling.port import ScaleOutcome, ScaleRequest
from unit.leader.scaling.kubernetes.fake_cluster import OpenFence

from .binaries import kustomize
from .cluster import ControlPlane
from .shop import EXAMPLE, Shop, wait_until

pytestmark = pytest.mark.kubernetes
DEFINITIONS = {
    "keda": ("github.com/kedacore/keda/v2@v2.20.1", "config/crd/bases/keda.sh_scaledobjects.yaml"),
    "prometheus": (
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
    ),
}
"""Custom resources that the example has, where their definition is published as part of a Go module."""
CASES = [
    (),
    ("metric-hpa",),
    ("metric-keda",),
    ("ended",),
    ("operations",),
    ("lease", "ended", "operations"),
    ("metric-hpa", "ended", "operations"),
]


@pytest.fixture(scope="module")
def defined(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The custom resources are known to the API server."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = []
    for module, file in DEFINITIONS.values():
        command = ["go", "mod", "download", "-json", module]
        environment = os.environ | {"GOFLAGS": "-mod=mod"}
        directory = tmp_path_factory.mktemp("module")
        done = subprocess.run(command, cwd=directory, env=environment, check=True, capture_output=True)
        definition = yaml.safe_load((Path(json.loads(done.stdout)["Dir"]) / file).read_text())
        plane.call("POST", path, definition)
        names.append(definition["metadata"]["name"])
    for name in names:
        wait_until(f"{name}", lambda name=name: _is_established(plane, f"{path}/{name}"))  # type: ignore[misc]
    yield
    for name in names:
        plane.call("DELETE", f"{path}/{name}")


def _is_established(plane: ControlPlane, path: str) -> bool:
    conditions = plane.call("GET", path).get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def built(directory: Path, *components: str) -> list[dict[str, Any]]:
    """Return the objects of the example with these components, as a user's own kustomization has them."""
    example = os.path.relpath(EXAMPLE, directory)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [example],
        "components": [f"{example}/{component}" for component in components],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    done = subprocess.run([str(kustomize()), "build", str(directory)], check=True, capture_output=True, text=True)
    return list(yaml.safe_load_all(done.stdout))


def try_out(shop: Shop, item: dict[str, Any]) -> None:
    """Have the API server check an object, as strictly as it can, without keeping it."""
    group = item["apiVersion"] if "/" in item["apiVersion"] else ""
    base = f"/apis/{group}" if group else f"/api/{item['apiVersion']}"
    resources = shop.plane.call("GET", base)["resources"]
    (found,) = (each for each in resources if each["kind"] == item["kind"] and "/" not in each["name"])
    place = f"{base}/namespaces/{shop.namespace}" if found["namespaced"] else base
    name = item["metadata"]["name"]
    exists = found["namespaced"] and item["kind"] in ("ServiceAccount", "Role", "RoleBinding")
    path = f"{place}/{found['name']}"
    options = "dryRun=All&fieldValidation=Strict"
    try:
        shop.plane.call("POST", f"{path}?{options}", item)
    except urllib.error.HTTPError as error:
        if error.code == 409 and exists:  # the fixture has made it
            item = item | {"metadata": item["metadata"] | {"namespace": shop.namespace}}
            shop.plane.call("PUT", f"{path}/{name}?{options}", item)
            return
        raise AssertionError(f"{item['kind']} {name}: {error.read().decode()}") from error


@pytest.mark.parametrize("components", CASES, ids=lambda components: "+".join(components) or "alone")
def test_the_api_server_takes_all_of_it(shop: Shop, defined: None, tmp_path: Path, components: tuple[str, ...]) -> None:
    items = built(tmp_path, *components)
    for item in items:
        try_out(shop, item)
    kinds = [item["kind"] for item in items]
    (deployment,) = (item for item in items if item["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    environment = {entry["name"]: entry for entry in pod["containers"][0]["env"]}
    publishes = any(component.startswith("metric") for component in components)
    assert "replicas" not in deployment["spec"]
    assert environment["LOADTRIM_SCALER"]["value"] == ("metric" if publishes else "kubernetes")
    assert kinds.count("Role") == (not publishes) + ("ended" in components) + ("lease" in components)
    names = {item["metadata"]["name"] for item in items if item["kind"] == "Lease"}
    assert names == {e["value"] for name, e in environment.items() if name == "LOADTRIM_KUBERNETES_LEASE"}
    assert pod.get("automountServiceAccountToken", True) is (not publishes or "ended" in components)


def test_a_pod_may_take_minutes_until_its_first_consumer_starts() -> None:
    """Nobody listens at the port until then: after 60 s the liveness probe killed it, each time again."""
    deployment = yaml.safe_load((EXAMPLE / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    assert startup["httpGet"] == liveness["httpGet"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 600
    assert startup["periodSeconds"] == container["readinessProbe"]["periodSeconds"], "no pod is ready the later for it"


def test_bounds_of_group_and_autoscaler_are_the_same(tmp_path: Path) -> None:
    for component, least, most in (
        ("metric-hpa", "minReplicas", "maxReplicas"),
        ("metric-keda", "minReplicaCount", "maxReplicaCount"),
    ):
        items = built(tmp_path, component)
        (autoscaler,) = (item["spec"] for item in items if item["kind"] in ("HorizontalPodAutoscaler", "ScaledObject"))
        (deployment,) = (item for item in items if item["kind"] == "Deployment")
        environment = {
            e["name"]: e.get("value") for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        }
        assert environment["LOADTRIM_MIN_REPLICAS"] == str(autoscaler[least])
        assert environment["LOADTRIM_MAX_REPLICAS"] == str(autoscaler[most])


def test_the_pods_can_ask_for_no_more_than_the_policy_allows(shop: Shop, defined: None, tmp_path: Path) -> None:
    """A token of a pod is bounded, an administrator is not."""
    shop.deploy(2)
    base = "/apis/admissionregistration.k8s.io/v1"
    paths = {
        "ValidatingAdmissionPolicy": f"{base}/validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding": f"{base}/validatingadmissionpolicybindings",
    }
    made = [item for item in built(tmp_path, "operations") if item["kind"] in paths]
    (binding,) = (item for item in made if item["kind"] == "ValidatingAdmissionPolicyBinding")
    selector = binding["spec"]["matchResources"]["namespaceSelector"]
    assert selector == {"matchLabels": {"kubernetes.io/metadata.name": "default"}}, "a name of the example"
    selector["matchLabels"] = {"kubernetes.io/metadata.name": shop.namespace}
    for item in made:
        shop.plane.call("POST", paths[item["kind"]], item)
    try:
        numbers = iter(range(13, 1000))
        wait_until("the policy", lambda: not ask(shop, next(numbers)).accepted)
        outcome = ask(shop, next(numbers))
        assert outcome.detail.startswith("422 ")
        assert "payments has 1 to 12 replicas" in outcome.detail
        assert ask(shop, 12).accepted
        shop.scale(13)
        assert shop.replicas() == 13
    finally:
        for item in made:
            shop.plane.call("DELETE", f"{paths[item['kind']]}/{item['metadata']['name']}")


def ask(shop: Shop, replicas: int) -> ScaleOutcome:
    scaler = KubernetesScaler(parse_target("deployment/payments"), ClusterApi(account=shop.account), OpenFence())
    return asyncio.run(scaler.request(ScaleRequest(group="g", replicas=replicas, generation=1, sequence=1)))


def test_the_user_of_strimzi_has_the_rights_that_the_page_names() -> None:
    """No more: each line of the page's table for members, and each in the manifest, is in the other."""
    page = (EXAMPLE.parents[1] / "docs" / "security.md").read_text()
    user = yaml.safe_load((EXAMPLE / "strimzi" / "user.yaml").read_text())
    for acl in user["spec"]["authorization"]["acls"]:
        operations = " ".join(f"--operation {operation.upper()}" for operation in acl["operations"])
        kind, name = acl["resource"]["type"], acl["resource"]["name"]
        assert f"`{operations} --{kind} {name}`" in page, "the ACLs of docs/security.md"
    assert len(user["spec"]["authorization"]["acls"]) == 4


def test_the_control_topic_of_strimzi_is_the_one_that_the_agent_would_make() -> None:
    from loadtrim_agent.kafka.control_topic import topic_configs

    _, control = yaml.safe_load_all((EXAMPLE / "strimzi" / "topics.yaml").read_text())
    assert control["spec"]["topicName"] == "__loadtrim.payments-service"
    assert control["spec"]["partitions"] == 2
    assert {name: str(value) for name, value in control["spec"]["config"].items()} == topic_configs()
