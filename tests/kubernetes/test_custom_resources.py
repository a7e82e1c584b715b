"""A custom resource with a `scale` subresource, as Rollouts of Argo and CloneSets are. Its controller is the test."""

from __future__ import annotations

import asyncio
import urllib.error
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

import pytest

from loadtrim_agent.leader.scaling.kubernetes.client import ClusterApi
from loadtrim_agent.leader.scaling.kubernetes.scaler import KubernetesScaler
from loadtrim_agent.leader.scaling.kubernetes.target import KINDS, parse_target
from loadtrim_agent.leader.scaling.port import Answer, ScaleOutcome, ScaleRequest
from unit.leader.scaling.kubernetes.fake_cluster import OpenFence

from .cluster import ControlPlane
from .shop import Shop, wait_until

pytestmark = pytest.mark.kubernetes
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TARGETS = {
    "rollout/payments": KINDS["rollout"],
    "cloneset/payments": KINDS["cloneset"],
    "example.com/v2/workers/payments": ("example.com", "v2", "workers"),
}


def definition(group: str, version: str, resource: str) -> dict[str, Any]:
    """Return a definition that keeps whatever is in an object, with the parts of it that scaling takes."""
    kind = resource.removesuffix("s").capitalize()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": resource, "kind": kind},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "properties": {"replicas": {"type": "integer"}},
                                    "x-kubernetes-preserve-unknown-fields": True,
                                },
                                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            },
                        }
                    },
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                    },
                }
            ],
        },
    }


@pytest.fixture(params=TARGETS)
def target(plane: ControlPlane, shop: Shop, request: pytest.FixtureRequest) -> Iterator[str]:
    """A workload of three pods that are ready, and the Role that the page says for it."""
    group, version, resource = TARGETS[request.param]
    made = definition(group, version, resource)
    plane.call("POST", DEFINITIONS, made)
    path = path_of(shop, request.param)
    try:
        wait_until("the definition", lambda: is_served(plane, path))
        kind = made["spec"]["names"]["kind"]
        item = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": "payments"}}
        plane.call("POST", path.rpartition("/")[0], item | {"spec": {"replicas": 3}})
        role = plane.call("GET", shop.path("Role", "payments-replicas"))
        for rule in role["rules"]:
            rule["apiGroups"] = [group]
            rule["resources"] = [name.replace("deployments", resource) for name in rule["resources"]]
        plane.call("PUT", shop.path("Role", "payments-replicas"), role)
        count(shop, request.param, 3)
        wait_until("the right", lambda: ask(shop, request.param, 3).accepted)
        yield request.param
    finally:
        plane.call("DELETE", f"{DEFINITIONS}/{resource}.{group}")


def is_served(plane: ControlPlane, path: str) -> bool:
    try:
        plane.call("GET", path.rpartition("/")[0])
    except urllib.error.HTTPError:
        return False
    return True


def path_of(shop: Shop, target: str) -> str:
    group, version, resource = TARGETS[target]
    return f"/apis/{group}/{version}/namespaces/{shop.namespace}/{resource}/payments"


def count(shop: Shop, target: str, ready: int) -> None:
    """Write the status as its controller does. Argo says its generation as text."""
    path = path_of(shop, target)
    generation = shop.plane.call("GET", path)["metadata"]["generation"]
    seen = str(generation) if target.startswith("rollout") else generation
    status = {"observedGeneration": seen, "replicas": 3, "updatedReplicas": 3, "readyReplicas": ready}
    shop.plane.patch(f"{path}/status", {"status": status})


def replicas(shop: Shop, target: str) -> int:
    return int(shop.plane.call("GET", path_of(shop, target))["spec"]["replicas"])


def ask(shop: Shop, target: str, wanted: int) -> ScaleOutcome:
    scaler = KubernetesScaler(parse_target(target), ClusterApi(account=shop.account), OpenFence())
    return asyncio.run(scaler.request(ScaleRequest(group="g", replicas=wanted, generation=1, sequence=1)))


def test_it_is_raised_and_lowered_when_no_ready_pod_would_go(shop: Shop, target: str) -> None:
    assert ask(shop, target, 2).answer is Answer.FAILED
    assert replicas(shop, target) == 3
    count(shop, target, 2)
    outcome = ask(shop, target, 2)
    assert outcome.accepted, outcome.detail
    assert replicas(shop, target) == 2
    assert ask(shop, target, 5).accepted
    assert replicas(shop, target) == 5


def test_the_patch_that_deployments_would_take_is_refused_for_it(shop: Shop, target: str) -> None:
    """Why it is a merge patch: the library sends a strategic one unless it is told."""
    path, body = f"{path_of(shop, target)}/scale", {"spec": {"replicas": 4}}
    with pytest.raises(urllib.error.HTTPError) as raised:
        shop.plane.call("PATCH", path, body, "application/strategic-merge-patch+json")
    assert raised.value.code == HTTPStatus.UNSUPPORTED_MEDIA_TYPE
