"""An API server with one workload, in memory: versions, readiness, and failures as told.

What it does with versions is what a real one does (``tests/kubernetes``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any

from loadtrim_agent.leader.scaling.kubernetes.api import ApiError, Conversation
from loadtrim_agent.leader.scaling.kubernetes.lease import WorkloadLease
from loadtrim_agent.leader.scaling.kubernetes.target import Target
from loadtrim_agent.leader.scaling.kubernetes.workload import Workload

__all__ = ["FakeCluster", "OpenFence"]


class OpenFence:
    """A lease that holds until told otherwise."""

    def __init__(self) -> None:
        self.open = True

    def holds(self) -> bool:
        return self.open


class FakeCluster:
    """One workload.

    Args:
        replicas: wanted at first.
        ready: pods that are ready; None: all.
    """

    namespace = "shop"

    def __init__(self, replicas: int = 1, ready: int | None = None) -> None:
        self.replicas = replicas
        self.ready = replicas if ready is None else ready
        self.version = 1
        self.generation = self.observed = 1
        self.old_pods = 0
        """Pods of an older template."""
        self.conditions: list[dict[str, str]] = []
        self.writer = "kubectl-client-side-apply"
        self.applied_by = ""
        """A tool that has applied the same replicas after the writer; empty: none has."""
        self.deleted = False
        self.writes: list[int] = []
        """Replicas that were written by conversations, in order."""
        self.reads = 0
        self.fails: deque[ApiError | None] = deque()
        """How the next requests end; None: well."""
        self.before_write: Callable[[], None] = lambda: None
        """Called when a write arrives, before its version is compared."""
        self.hangs_next = False
        self.loses_answer = False
        """The next write is carried out, and its answer does not arrive."""
        self.permitted = {("get", "deployments"), ("patch", "deployments/scale")}
        self.autoscaled_by: tuple[str, ...] = ()
        self.ordinals: dict[str, int] = {}
        """Of a StatefulSet."""
        self.lease_document: Any = {"metadata": {"name": "payments", "resourceVersion": "1"}}
        """The Lease; None: there is none."""
        self.lease_requests: list[str] = []
        self.lease_fails: ApiError | None = None
        """How requests for the Lease end; None: well."""
        self.lease_loses_answer = False
        """The next write of the Lease is carried out, and its answer does not arrive."""
        self.lease_seconds = 0.0
        """A write of the Lease takes so long to be answered."""
        self.lease_create = True
        """A Lease may be made."""

    def change(self, replicas: int, writer: str = "kubectl") -> None:
        """Somebody else changes the replicas."""
        self.replicas, self.writer, self.applied_by = replicas, writer, ""
        self.version += 1

    def set_ready(self, ready: int) -> None:
        """The controllers count anew."""
        self.ready = ready
        self.version += 1

    @contextlib.asynccontextmanager
    async def conversation(self) -> AsyncIterator[Conversation]:
        yield self

    async def workload(self, target: Target) -> Workload:
        await self._arrives()
        self.reads += 1
        return Workload.read(self.document(target))

    async def set_replicas(self, target: Target, replicas: int, version: str, manager: str) -> None:
        await self._arrives()
        self.before_write()
        if version != str(self.version):
            raise ApiError(409, f"Operation cannot be fulfilled on {target}: the object has been modified")
        self.change(replicas, manager)
        self.writes.append(replicas)
        if self.loses_answer:
            self.loses_answer = False
            raise ApiError(0, "the API server gave no answer within 5 s")

    def touch_lease(self) -> None:
        """Another version of the Lease is there."""
        metadata = self.lease_document["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)

    async def lease(self, name: str) -> WorkloadLease:
        self._asks_for_lease("get")
        if self.lease_document is None:
            raise ApiError(404, f'leases.coordination.k8s.io "{name}" not found')
        return WorkloadLease.read(deepcopy(self.lease_document))

    async def put_lease(self, name: str, document: Mapping[str, Any]) -> WorkloadLease:
        self._asks_for_lease("put")
        named = document["metadata"].get("resourceVersion")
        if self.lease_document is None:
            if named:
                raise ApiError(409, "the object has been deleted")
            if not self.lease_create:
                raise ApiError(403, 'cannot create resource "leases"')
        elif named != self.lease_document["metadata"]["resourceVersion"]:
            raise ApiError(409, "the object has been modified")
        self.lease_document = deepcopy(dict(document))
        self.lease_document["metadata"].setdefault("resourceVersion", "0")
        self.touch_lease()
        await asyncio.sleep(self.lease_seconds)
        if self.lease_loses_answer:
            self.lease_loses_answer = False
            raise ApiError(0, "the API server gave no answer within 5 s")
        return WorkloadLease.read(deepcopy(self.lease_document))

    def _asks_for_lease(self, verb: str) -> None:
        self.lease_requests.append(verb)
        if self.lease_fails is not None:
            raise self.lease_fails

    async def permits(self, target: Target, verb: str, part: str = "") -> bool:
        await self._arrives()
        return (verb, f"{target.resource}/{part}" if part else target.resource) in self.permitted

    async def autoscalers(self, target: Target) -> tuple[str, ...]:
        await self._arrives()
        return self.autoscaled_by

    def document(self, target: Target) -> dict[str, Any]:
        """Return the workload as JSON has it: what is 0 or empty is left out."""
        status = {
            "observedGeneration": self.observed,
            "replicas": self.replicas + self.old_pods,
            "updatedReplicas": self.replicas,
            "readyReplicas": self.ready,
            "conditions": self.conditions,
        }
        metadata: dict[str, Any] = {
            "name": target.name,
            "resourceVersion": str(self.version),
            "generation": self.generation,
            "managedFields": list(self._managed()),
        }
        if self.deleted:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return {
            "apiVersion": f"{target.group}/{target.version}",
            "metadata": metadata,
            "spec": {"replicas": self.replicas, "template": {}, "ordinals": self.ordinals},
            "status": {name: value for name, value in status.items() if value},
        }

    def _managed(self) -> Iterator[dict[str, Any]]:
        yield {"manager": "kube-controller-manager", "time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:status": {}}}
        for second, name in enumerate(filter(None, ("helm", self.writer, self.applied_by))):
            yield {
                "manager": name,
                "time": f"2026-01-02T00:00:0{second}Z",
                "fieldsV1": {"f:spec": {"f:replicas": {}}},
            }

    async def _arrives(self) -> None:
        hangs, self.hangs_next = self.hangs_next, False
        await asyncio.sleep(3600.0 if hangs else 0.0)
        if self.fails and (failure := self.fails.popleft()) is not None:
            raise failure
