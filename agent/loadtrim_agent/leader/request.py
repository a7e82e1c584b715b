"""The leader makes the request to its scaler of a decision. Pure."""

from __future__ import annotations

from loadtrim_agent.planning.pods import workload_beside
from loadtrim_agent.planning.values import GroupState, ReplicaTarget, units_of
from loadtrim_agent.wire.telemetry_records import DecisionRecord

from .scaling.port import ScaleRequest

__all__ = ["request_of"]


def request_of(
    decision: DecisionRecord, wish: ReplicaTarget, group: GroupState, templated: str
) -> tuple[ScaleRequest, list[str]]:
    """Return what to ask the scaler for, and the instances that it has now.

    It changes one workload. Pods of another one are members, and no replicas of this one. What they make up of the
    wanted number is there already, and no smaller one takes them away.

    Args:
        decision: the leader's last one.
        wish: what it comes to now, for the whole group.
        group: as it is.
        templated: the Deployment that is scaled; empty: all instances are the scaler's.
    """
    instances = [unit.instance for unit in units_of(group) if not unit.leaving]
    others = {instance for instance in instances if workload_beside(instance, templated)}
    staying = tuple(instance for instance in instances if instance not in wish.victims)
    beside = len(others.intersection(staying))
    request = ScaleRequest(
        group=decision.group,
        replicas=max(1, wish.replicas - beside),
        settled=max(1, (wish.settled or wish.replicas) - beside),
        victims=tuple(instance for instance in wish.victims if instance not in others),
        staying=tuple(instance for instance in staying if instance not in others),
        unknown=len(group.unknown),
        rollout=wish.rollout,
        generation=decision.generation,
        sequence=decision.sequence,
        reason=wish.reason,
    )
    return request, [instance for instance in instances if instance not in others]
