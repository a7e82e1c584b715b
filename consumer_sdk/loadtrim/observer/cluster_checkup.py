"""A checkup of a pod tells what its ServiceAccount may not do and has to, with the rule for its Role."""

from __future__ import annotations

from collections.abc import Sequence

from loadtrim_agent.leader.scaling.kubernetes.api import ApiError, Conversation, WorkloadApi
from loadtrim_agent.leader.scaling.kubernetes.foreign import other_group_of
from loadtrim_agent.leader.scaling.kubernetes.target import Target

from .checkup import Finding, Verdict

__all__ = ["look_at_cluster"]

_AUTOSCALERS = Target("autoscaling", "v2", "horizontalpodautoscalers", "")
"""KEDA's ScaledObject makes one of these, too."""


async def look_at_cluster(api: WorkloadApi, target: Target | None, group: str) -> list[Finding]:
    """Return what was found, in the order in which a leader needs it. Changes nothing."""
    if target is None:
        detail = "neither LOADTRIM_KUBERNETES_TARGET nor the pod's name tells it"
        return [Finding(what="workload", verdict=Verdict.MISSING, detail=detail)]
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
        told = f"{error.status} {error.message}" if error.status else error.message
        return [Finding(what="API server", verdict=Verdict.MISSING, detail=told)]


def _right(api: WorkloadApi, target: Target, verb: str, part: str, *, allowed: bool) -> Finding:
    resource = f"{target.resource}/{part}" if part else target.resource
    what = f"{verb} {resource} {target.name}"
    if allowed:
        return Finding(what=what, verdict=Verdict.OK, detail=f"allowed in namespace {api.namespace}")
    rule = (
        f"- {{apiGroups: [{target.group}], resources: [{resource}], resourceNames: [{target.name}], verbs: [{verb}]}}"
    )
    detail = f"not allowed in namespace {api.namespace}; the rule for the Role of this pod's ServiceAccount:"
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
    what = "other autoscalers"
    if not await conversation.permits(_AUTOSCALERS, "list"):
        detail = "this pod may not list them, and need not: the leader notices one by what it writes"
        return Finding(what=what, verdict=Verdict.UNKNOWN, detail=detail)
    if names := await conversation.autoscalers(target):
        return Finding(what=what, verdict=Verdict.MISSING, detail=_too_many(names))
    return Finding(what=what, verdict=Verdict.OK, detail="there is none")


def _too_many(names: Sequence[str]) -> str:
    return f"{', '.join(names)} would write against the leader: take it away, or set LOADTRIM_SCALER=none"
