"""A node of one machine: it runs each pod of a namespace as a process, probes it, and ends it as a kubelet does.

It binds pods (there is no scheduler), writes their conditions from their readiness probes, sends SIGTERM when they
are deleted and SIGKILL after the grace period, and only then lets the API server forget them. That is all that the
controllers see.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, Self

from .cluster import ControlPlane

__all__ = ["Node", "Process", "Running", "Slow", "Switched"]

NODE = "loadtrim-test-node"
LOOK_SECONDS = 0.05
PROBE_SECONDS = 1.0
RESTART_SECONDS = 2.0
END_SECONDS = 4.0
"""A container that ends slowly takes so long. The controllers do all else here within a tenth of it."""


class Running(Protocol):
    """One container."""

    def is_ready(self) -> bool:
        """Ask its readiness probe."""

    def terminate(self) -> None:
        """Ask it to end."""

    def kill(self) -> None:
        """End it now."""

    def has_ended(self) -> bool:
        """Whether it has."""


class Switched:
    """A container without a process: ready as a test says. It ends when it is asked to."""

    def __init__(self) -> None:
        self.ready = True
        self.terminated = False

    def is_ready(self) -> bool:
        return self.ready

    def terminate(self) -> None:
        self.terminated = True

    def kill(self) -> None:
        self.terminated = True

    def has_ended(self) -> bool:
        return self.terminated


class Slow(Switched):
    """A container that takes its time from SIGTERM on."""

    def __init__(self) -> None:
        super().__init__()
        self._ends_at = float("inf")

    def terminate(self) -> None:
        self._ends_at = time.monotonic() + END_SECONDS

    def has_ended(self) -> bool:
        return self.terminated or time.monotonic() >= self._ends_at


class Process:
    """A container that is a process of this machine.

    Args:
        command: what runs.
        environment: of the process.
        probe: URL of its readiness probe.
        output: where what it prints is appended.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str], probe: str, output: Path) -> None:
        self._request = urllib.request.Request(probe, headers={"User-Agent": "kube-probe/1.34"})
        with output.open("ab") as file:
            self.process = subprocess.Popen(
                command, env=dict(environment), stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self._request, timeout=PROBE_SECONDS) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@dataclass
class _Pod:
    name: str
    uid: str
    running: Running
    ready: bool = False
    probed_at: float = 0.0
    terminates_until: float | None = None
    container: str = ""
    started_at: str = ""
    last_state: dict[str, Any] = field(default_factory=dict)
    """Of the run before this one."""
    ended_at: str = ""
    """When it was seen that the container has ended by itself; empty: it has not."""
    runs_again_at: float | None = None
    """Set while the container has ended by itself, and is to be started again."""


@dataclass
class Node:
    """The pods of one namespace. Use it in ``with``: its thread looks at the API server twenty times a second.

    Args:
        plane: the control plane.
        namespace: whose pods run here.
        start: makes the container of a pod, given the pod as JSON; None: it cannot be started, and stays pending.
        probe_seconds: between two readiness probes.
        restart_seconds: from the end of a container by itself until it is started again.
        relist_seconds: between two looks at which the end of a container by itself is noticed. A kubelet asks its
            runtime once a second.
    """

    plane: ControlPlane
    namespace: str
    start: Callable[[dict[str, Any]], Running | None]
    probe_seconds: float = PROBE_SECONDS
    restart_seconds: float = RESTART_SECONDS
    relist_seconds: float = 0.0
    pods: dict[str, _Pod] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    """Pods in the order in which their deletion was seen."""
    told_at: dict[str, float] = field(default_factory=dict)
    """Pod -> when the API server had taken the end of its container, seconds since the epoch."""

    def __post_init__(self) -> None:
        self._relists_at = 0.0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="test-node", daemon=True)
        self.problem: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()
        for pod in self.pods.values():
            pod.running.kill()
        if self.problem is not None:
            raise self.problem

    def running(self, name: str) -> Running:
        """Return the container of a pod."""
        return self.pods[name].running

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def _run(self) -> None:
        try:
            while not self._ends.wait(LOOK_SECONDS):
                self._look()
        except Exception as error:
            self.problem = error

    def _look(self) -> None:
        there = {item["metadata"]["name"]: item for item in self.plane.call("GET", self.path)["items"]}
        if relists := time.monotonic() >= self._relists_at:
            self._relists_at = time.monotonic() + self.relist_seconds
        for name in self.pods.keys() - there.keys():
            self.pods.pop(name).running.kill()
        for name, item in there.items():
            if name in self.pods and self.pods[name].uid != item["metadata"]["uid"]:
                # A StatefulSet gives the name of a pod that has gone to the next one.
                self.pods.pop(name).running.kill()
            if name not in self.pods:
                self._bind(name, item)
            elif "deletionTimestamp" in item["metadata"]:
                self._end(self.pods[name], item)
            elif self.pods[name].running.has_ended():
                self.pods[name].ended_at = self.pods[name].ended_at or _now()
                if relists or self.pods[name].runs_again_at is not None:
                    self._start_again(self.pods[name], item)
            else:
                self._probe(self.pods[name])

    def _bind(self, name: str, item: dict[str, Any]) -> None:
        if "deletionTimestamp" in item["metadata"]:
            self._forget(name)
            return
        running = self.start(item)
        if running is None:
            return
        if "nodeName" not in item["spec"]:
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
            try:
                self.plane.call("POST", f"{self.path}/{name}/binding", binding)
            except urllib.error.HTTPError as error:
                running.kill()
                if error.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    raise
                # A pod that is on no node yet is gone as soon as it is deleted, and another may have its name by now.
                return
        container = item["spec"]["containers"][0]["name"]
        self.pods[name] = _Pod(name, item["metadata"]["uid"], running, container=container, started_at=_now())
        self._probe(self.pods[name])

    def _probe(self, pod: _Pod) -> None:
        now = time.monotonic()
        if now - pod.probed_at < self.probe_seconds:
            return
        first, pod.probed_at = not pod.probed_at, now
        ready = pod.running.is_ready()
        if ready != pod.ready or first:
            pod.ready = ready
            self._write(pod)

    def _start_again(self, pod: _Pod, item: dict[str, Any]) -> None:
        """Write that the container has ended, as a kubelet does, and start it again after a while."""
        if pod.runs_again_at is None:
            pod.runs_again_at = time.monotonic() + self.restart_seconds
            pod.ready = False
            run = {"exitCode": 137, "reason": "Error", "containerID": f"test://{pod.started_at}/{pod.uid}"}
            pod.last_state = {"terminated": run | {"startedAt": pod.started_at, "finishedAt": pod.ended_at}}
            self._write(pod)
            self.told_at[pod.name] = time.time()
        elif time.monotonic() >= pod.runs_again_at and (running := self.start(item)) is not None:
            pod.running, pod.started_at, pod.runs_again_at, pod.probed_at = running, _now(), None, 0.0
            pod.ended_at = ""

    def _container(self, pod: _Pod) -> dict[str, Any]:
        runs = pod.runs_again_at is None
        return {
            "name": pod.container,
            "ready": pod.ready,
            "restartCount": int(bool(pod.last_state)),
            "image": "payments",
            "imageID": "",
            "state": {"running": {"startedAt": pod.started_at}} if runs else pod.last_state,
            "lastState": pod.last_state if runs else {},
        }

    def _write(self, pod: _Pod) -> None:
        changed = _now()
        conditions = [
            {"type": kind, "status": str(pod.ready), "lastTransitionTime": changed}
            for kind in ("Ready", "ContainersReady")
        ]
        status = {
            "phase": "Running",
            "startTime": changed,
            "conditions": conditions,
            "containerStatuses": [self._container(pod)],
        }
        with contextlib.suppress(urllib.error.HTTPError):  # It has been deleted meanwhile: the next look shows it.
            self.plane.patch(f"{self.path}/{pod.name}/status", {"status": status})

    def _end(self, pod: _Pod, item: dict[str, Any]) -> None:
        if pod.terminates_until is None:
            self.deleted.append(pod.name)
            pod.terminates_until = time.monotonic() + item["metadata"].get("deletionGracePeriodSeconds", 30)
            pod.running.terminate()
        if pod.running.has_ended():
            self._forget(pod.name)
        elif time.monotonic() >= pod.terminates_until:
            pod.running.kill()

    def _forget(self, name: str) -> None:
        with contextlib.suppress(urllib.error.HTTPError):
            self.plane.call("DELETE", f"{self.path}/{name}", {"gracePeriodSeconds": 0})


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
