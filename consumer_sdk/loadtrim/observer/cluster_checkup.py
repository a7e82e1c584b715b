"""A checkup of a cluster tells what the pods' ServiceAccount may not do and has to, with the rule for its Role."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from loadtrim_agent.leader.scaling.kubernetes.api import ApiError, Conversation, WorkloadApi
from loadtrim_agent.leader.scaling.kubernetes.foreign import other_group_of
from loadtrim_agent.leader.scaling.kubernetes.manager import field_manager
from loadtrim_agent.leader.scaling.kubernetes.target import Target

from .checkup import Finding, Verdict

__all__ = [
    "NAMED_ELSEWHERE",
    "NAMED_IN_POD",
    "look_at_cluster",
    "look_at_executor",
    "look_at_lease",
    "look_at_pods",
    "published_where",
]

NAMED_IN_POD = "LOADTRIM_KUBERNETES_TARGET=deployment/NAME"
NAMED_ELSEWHERE = "--workload deployment/NAME"
"""The line that names the workload, in a pod and with a kubeconfig."""
_AUTOSCALERS = Target("autoscaling", "v2", "horizontalpodautoscalers", "")
"""KEDA's ScaledObject makes one of these, too."""
_PODS = Target("", "v1", "pods", "")
_AUTOSCALERS_WHAT = "other autoscalers"
_EXECUTOR = "autoscaler"
_LOOPBACK = ("127.", "localhost", "[::1]", "::1")


async def look_at_cluster(
    api: WorkloadApi, target: Target | None, group: str, *, named_by: str = NAMED_IN_POD
) -> list[Finding]:
    """Return what a leader needs that scales the workload itself, in the order in which it does. Changes nothing.

    Args:
        api: the API server.
        target: the workload; None: it is not known.
        group: that the leader leads.
        named_by: what makes the workload known, where it is not.
    """
    if target is None:
        return [_no_workload(named_by)]
    try:
        async with api.conversation() as conversation:
            reads = await conversation.permits(target, "get")
            found = [
                _right(api, target, "get", "", allowed=reads),
                _right(api, target, "patch", "scale", allowed=await conversation.permits(target, "patch", "scale")),
            ]
            if reads:
                found.append(await _workload(api, conversation, target, group))
            found.append(await _autoscalers(conversation, target))
            return found
    except ApiError as error:
        return [_away(error)]


async def look_at_lease(api: WorkloadApi, name: str, group: str) -> list[Finding]:
    """Return whether a leader may hold the Lease that is named, and whether another group holds it.

    Args:
        api: the API server.
        name: of the Lease.
        group: that the leader leads; its Kafka cluster is not known here.
    """
    lease = Target("coordination.k8s.io", "v1", "leases", name)
    try:
        async with api.conversation() as conversation:
            found = [
                _right(api, lease, verb, "", allowed=await conversation.permits(lease, verb))
                for verb in ("get", "update")
            ]
            return [*found, await _lease(conversation, name, group)]
    except ApiError as error:
        return [_away(error)]


async def _lease(conversation: Conversation, name: str, group: str) -> Finding:
    what = f"Lease {name}"
    try:
        lease = await conversation.lease(name)
    except ApiError as error:
        if error.status == HTTPStatus.FORBIDDEN:
            return Finding(what=what, verdict=Verdict.UNKNOWN, detail="it may not be read")
        remedy = "kubectl apply -f examples/kubernetes/lease/lease.yaml" if error.status == HTTPStatus.NOT_FOUND else ""
        detail = f"{error.status} {error.message}"
        return Finding(what=what, verdict=Verdict.MISSING, detail=detail, remedy=remedy)
    if lease.holder and lease.holder.rpartition("@")[0] != field_manager(group):
        detail = f"held by {lease.holder!r}, renewed {lease.spec.renew_time}: one workload, one group"
        return Finding(what=what, verdict=Verdict.MISSING, detail=detail)
    held = f"held by {lease.holder}, renewed {lease.spec.renew_time}" if lease.holder else "nobody holds it"
    return Finding(what=what, verdict=Verdict.OK, detail=held)


async def look_at_pods(api: WorkloadApi, *, watched: bool) -> list[Finding]:
    """Return whether a member may read the pods of those that have fallen silent.

    Args:
        api: the API server.
        watched: ``LOADTRIM_KUBERNETES_POD_SELECTOR`` is set, so that two members watch them, too.
    """
    verbs = ("get", "watch") if watched else ("get",)
    try:
        async with api.conversation() as conversation:
            return [_right(api, _PODS, verb, "", allowed=await conversation.permits(_PODS, verb)) for verb in verbs]
    except ApiError as error:
        return [_away(error)]


async def look_at_executor(api: WorkloadApi, target: Target | None, *, named_by: str = NAMED_IN_POD) -> list[Finding]:
    """Return whether one autoscaler executes what the leader publishes (``LOADTRIM_SCALER=metric``)."""
    if target is None:
        detail = "the workload is not known, so neither is what scales it; name the one that has the group's pods:"
        return [Finding(what=_EXECUTOR, verdict=Verdict.UNKNOWN, detail=detail, remedy=named_by)]
    try:
        async with api.conversation() as conversation:
            if not await conversation.permits(_AUTOSCALERS, "list"):
                detail = f"they may not be listed from here, and need not; see kubectl get hpa for {target}"
                return [Finding(what=_EXECUTOR, verdict=Verdict.UNKNOWN, detail=detail)]
            return [_executor(target, await conversation.autoscalers(target))]
    except ApiError as error:
        told = f"{error.message}: whether one scales {target} is not seen from here"
        return [Finding(what=_EXECUTOR, verdict=Verdict.UNKNOWN, detail=told)]


def published_where(http: str) -> Finding:
    """Return whether an autoscaler can read what the leader publishes.

    Args:
        http: as of ``LOADTRIM_HTTP``.
    """
    what = "wanted replicas"
    remedy = "LOADTRIM_HTTP=0.0.0.0:9095"
    if http == "off":
        detail = "LOADTRIM_HTTP=off, so nobody can read how many replicas the leader wants"
        return Finding(what=what, verdict=Verdict.MISSING, detail=detail, remedy=remedy)
    if http.startswith(_LOOPBACK) or http.endswith(":0"):
        detail = f"LOADTRIM_HTTP={http} answers nobody outside of the pod, or at a port that nobody knows"
        return Finding(what=what, verdict=Verdict.MISSING, detail=detail, remedy=remedy)
    return Finding(what=what, verdict=Verdict.OK, detail=f"the leader answers at {http}, paths /replicas and /metrics")


def _no_workload(named_by: str) -> Finding:
    untold = "neither LOADTRIM_KUBERNETES_TARGET nor the pod's name tells it"
    if named_by == NAMED_ELSEWHERE:
        untold = "nothing tells it from elsewhere than a pod, so no right was asked for"
    detail = f"{untold}; name the one that has the group's pods:"
    return Finding(what="workload", verdict=Verdict.MISSING, detail=detail, remedy=named_by)


def _away(error: ApiError) -> Finding:
    told = f"{error.status} {error.message}" if error.status else error.message
    return Finding(what="API server", verdict=Verdict.MISSING, detail=told)


def _right(api: WorkloadApi, target: Target, verb: str, part: str, *, allowed: bool) -> Finding:
    resource = f"{target.resource}/{part}" if part else target.resource
    what = f"{verb} {resource} {target.name}".rstrip()
    if allowed:
        return Finding(what=what, verdict=Verdict.OK, detail=f"allowed in namespace {api.namespace}")
    named = f", resourceNames: [{target.name}]" if target.name else ""
    group = target.group or '""'
    rule = f"- {{apiGroups: [{group}], resources: [{resource}]{named}, verbs: [{verb}]}}"
    detail = f"not allowed in namespace {api.namespace}; the rule for the Role of the pods' ServiceAccount:"
    return Finding(what=what, verdict=Verdict.MISSING, detail=detail, remedy=rule)


async def _workload(api: WorkloadApi, conversation: Conversation, target: Target, group: str) -> Finding:
    what = f"workload {target}"
    try:
        workload = await conversation.workload(target)
    except ApiError as error:
        return Finding(what=what, verdict=Verdict.MISSING, detail=f"{error.status} {error.message}")
    if other := other_group_of(workload, group):
        detail = f"its {workload.replicas} replicas are of another group, {other!r}: one workload, one group"
        return Finding(what=what, verdict=Verdict.MISSING, detail=detail)
    writer = f", written last by {workload.writer}" if workload.writer else ""
    return Finding(what=what, verdict=Verdict.OK, detail=f"{workload.replicas} replicas{writer}")


async def _autoscalers(conversation: Conversation, target: Target) -> Finding:
    if not await conversation.permits(_AUTOSCALERS, "list"):
        detail = "they may not be listed, and need not be: the leader notices one by what it writes"
        return Finding(what=_AUTOSCALERS_WHAT, verdict=Verdict.UNKNOWN, detail=detail)
    if names := await conversation.autoscalers(target):
        detail = f"{', '.join(names)} would write against the leader: take it away, or set LOADTRIM_SCALER=none"
        return Finding(what=_AUTOSCALERS_WHAT, verdict=Verdict.MISSING, detail=detail)
    return Finding(what=_AUTOSCALERS_WHAT, verdict=Verdict.OK, detail="there is none")


def _executor(target: Target, names: Sequence[str]) -> Finding:
    if not names:
        detail = (
            f"none scales {target}, so nothing executes what the leader publishes: see examples/kubernetes/metric-hpa"
        )
        return Finding(what=_EXECUTOR, verdict=Verdict.MISSING, detail=detail)
    if len(names) > 1:
        detail = f"{', '.join(names)} scale {target} against each other: leave one"
        return Finding(what=_EXECUTOR, verdict=Verdict.MISSING, detail=detail)
    return Finding(what=_EXECUTOR, verdict=Verdict.OK, detail=f"{names[0]} scales {target}")
