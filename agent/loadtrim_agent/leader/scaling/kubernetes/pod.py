"""A pod as the API server has it, and whether a process of it has ended for certain. Pure.

Theory of operation. A process that is only believed to be gone keeps its membership, because it may hold its lease and
work. A kubelet that writes a container's ``terminated`` state has it from the runtime that ran it. The kernel ends all
processes of a PID namespace with the first one of it. So a record that a member wrote during a run of the container
which has terminated is of a process that is gone::

    startedAt        a record of the member        finishedAt         startedAt of the next run
    |------------------------x---------------------------|                     |------------->

Nothing else is taken for an end:

* a pod that is missing: its node may be cut off, and the pod forced away while it runs;
* a phase or a condition: controllers write them for nodes that they do not reach;
* a container that the kubelet could not find (``ContainerStatusUnknown``), or whose end containerd did not see
  (``Unknown``, after a restart of its own);
* a container that shares its PID namespace with others;
* one of two containers, for a record does not tell which of them wrote it;
* an init container that goes on beside it (``restartPolicy: Always``), for the same reason.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import msgspec

__all__ = ["Pod", "ended_before", "has_ended"]

NOT_SEEN: Final = frozenset({"ContainerStatusUnknown", "Unknown"})
"""Reasons of a run whose end nobody saw. Source: ``kubelet_pods.go`` of Kubernetes, ``restart.go`` of containerd."""
WHOLE_SECONDS: Final = 1.0
"""Times of a container's runs are cut to seconds. Source: ``metav1.Time``."""


class _Run(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A run of a container, as far as it is known."""

    container_id: str = msgspec.field(name="containerID", default="")
    reason: str = ""
    exit_code: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None


class _State(msgspec.Struct, frozen=True, kw_only=True):
    running: _Run | None = None
    terminated: _Run | None = None


class _Container(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    state: _State = _State()
    last_state: _State = _State()


class _Named(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    restart_policy: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    uid: str


class _Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    containers: tuple[_Named, ...] = ()
    init_containers: tuple[_Named, ...] = ()
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    share_process_namespace: bool = False


class _Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    container_statuses: tuple[_Container, ...] = ()


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod. Fields that the API server leaves out are None or empty."""

    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def has_terminated_run(self) -> bool:
        """A container has ended, and may run again."""
        return any(each.state.terminated or each.last_state.terminated for each in self.status.container_statuses)


def has_ended(pod: Pod, uid: str, said_at: float) -> str:
    """Return how the process ended that said something at a time, in words; empty: that is not certain.

    Args:
        pod: as it is now.
        uid: of the process's pod: a StatefulSet gives a name again, and another cluster has it, too.
        said_at: time of any record of the process, by the clock of its machine, seconds since the epoch.
    """
    run = _last_run(pod, uid)
    if run is None or run.started_at is None or run.finished_at is None:
        return ""
    if not run.started_at.timestamp() <= said_at < run.finished_at.timestamp() + WHOLE_SECONDS:
        return ""
    if (now := pod.status.container_statuses[0].state.running) is not None and not (
        # In the second of its start the record may be of the new process.
        now.started_at is not None and said_at < now.started_at.timestamp()
    ):
        return ""
    return f"{run.reason or 'ended'}, exit code {run.exit_code}"


def ended_before(pod: Pod, uid: str, first_said_at: float, last_said_at: float) -> str:
    """Return the same for a process that nobody has missed yet: more has to be certain, for it may be talking.

    A status that tells of an end may be old, and the container may run again. The process of the next run has said
    nothing before the end of this one, in whatever second that was. One that said something later has not ended.

    Args:
        pod: as it was when its status was written.
        uid: as in :func:`has_ended`.
        first_said_at: time of the earliest record of the process that is known.
        last_said_at: time of the latest one.
    """
    run = _last_run(pod, uid)
    if run is None or run.finished_at is None or first_said_at >= run.finished_at.timestamp():
        return ""
    return has_ended(pod, uid, first_said_at) and has_ended(pod, uid, last_said_at)


def _last_run(pod: Pod, uid: str) -> _Run | None:
    """Return the last run of the pod's one container that has terminated, where the runtime saw that."""
    if pod.metadata.uid != uid or len(pod.spec.containers) != 1 or len(pod.status.container_statuses) != 1:
        return None
    if pod.spec.host_pid or pod.spec.share_process_namespace:
        return None
    if any(each.restart_policy == "Always" for each in pod.spec.init_containers):
        return None
    (container,) = pod.status.container_statuses
    run = container.state.terminated or container.last_state.terminated
    if run is None or not run.container_id or run.reason in NOT_SEEN:
        return None
    return run
