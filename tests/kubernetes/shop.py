"""A namespace with the manifests of ``examples/kubernetes``, and what a pod of them is given."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from .cluster import ControlPlane

__all__ = ["EXAMPLE", "Shop", "wait_until"]

EXAMPLE = Path(__file__).parents[2] / "examples" / "kubernetes"
WAIT_SECONDS = 30.0
LOOK_SECONDS = 0.05
_PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Service": "/api/v1/namespaces/{}/services",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers",
}


def wait_until(what: str, there: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    """Wait for a state.

    Raises:
        TimeoutError: it did not come.
    """
    ends = time.monotonic() + seconds
    while not there():
        if time.monotonic() >= ends:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(LOOK_SECONDS)


def manifests(file: str) -> list[dict[str, Any]]:
    """Return the objects of a file of the example."""
    return [item for item in yaml.safe_load_all((EXAMPLE / file).read_text()) if item]


class Shop:
    """A new namespace.

    Args:
        plane: the control plane.
        namespace: its name.
        directory: the ServiceAccount's files are made below it.
    """

    def __init__(self, plane: ControlPlane, namespace: str, directory: Path) -> None:
        self.plane = plane
        self.namespace = namespace
        self.account = directory / "serviceaccount"
        plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        for item in manifests("rbac.yaml"):
            self.create(item)
        self.mount("payments")

    def mount(self, account: str) -> None:
        """Write the files that a pod of this ServiceAccount has."""
        self.account.mkdir(exist_ok=True)
        (self.account / "namespace").write_text(self.namespace)
        (self.account / "token").write_text(self.plane.token(self.namespace, account))
        (self.account / "ca.crt").write_bytes(self.plane.authorities.read_bytes())

    def create(self, item: dict[str, Any]) -> Any:
        """Create an object in the namespace."""
        return self.plane.call("POST", _PATHS[item["kind"]].format(self.namespace), item)

    def path(self, kind: str = "Deployment", name: str = "payments") -> str:
        """Return the path of an object."""
        return f"{_PATHS[kind].format(self.namespace)}/{name}"

    def deploy(self, replicas: int) -> None:
        """Create the example's Deployment with so many replicas."""
        (item,) = manifests("deployment.yaml")
        item["spec"]["replicas"] = replicas
        self.create(item)

    def deploy_numbered(self, replicas: int, policy: str, first: int = 0) -> None:
        """Create a StatefulSet of the example's pods, and the Role that the page says for it.

        Args:
            replicas: wanted at first.
            policy: its ``podManagementPolicy``.
            first: number of its first pod.
        """
        (item,) = manifests("deployment.yaml")
        item["kind"] = "StatefulSet"
        item["spec"] |= {
            "serviceName": "payments",
            "podManagementPolicy": policy,
            "replicas": replicas,
            "ordinals": {"start": first},
        }
        self.create(item)
        role = self.plane.call("GET", self.path("Role", "payments-replicas"))
        for rule in role["rules"]:
            rule["resources"] = [name.replace("deployments", "statefulsets") for name in rule["resources"]]
        self.plane.call("PUT", self.path("Role", "payments-replicas"), role)

    def workload(self, kind: str = "Deployment") -> dict[str, Any]:
        """Return the workload as the API server has it."""
        got: dict[str, Any] = self.plane.call("GET", self.path(kind))
        return got

    def replicas(self, kind: str = "Deployment") -> int:
        """Return the replicas that are wanted of the controllers."""
        return int(self.workload(kind)["spec"]["replicas"])

    def ready(self, kind: str = "Deployment") -> int:
        """Return how many pods the controllers know to be ready."""
        return int(self.workload(kind)["status"].get("readyReplicas", 0))

    def scale(self, replicas: int, kind: str = "Deployment") -> None:
        """Change the replicas as an administrator does."""
        self.plane.patch(f"{self.path(kind)}/scale", {"spec": {"replicas": replicas}})

    def pods(self) -> list[str]:
        """Return the names of the pods that are there and do not end."""
        items = self.plane.call("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return sorted(item["metadata"]["name"] for item in items if "deletionTimestamp" not in item["metadata"])
