"""Instances that are pods: which of them Kubernetes' controllers keep, as far as names tell. Pure.

Pods of a StatefulSet have numbers, and the highest go. The name of a Deployment's pod has the hash of the template that
it was made from. In a rollout there are pods of two templates. The controllers bring those of one to their number and
end the others, so they choose by template, and their surplus is not the group's.
"""

from __future__ import annotations

from .values import GroupState, PlanConfig

__all__ = ["is_rollout", "place_in_line", "template_of"]

ROLLOUT_SECONDS = 600.0
"""A rollout in which no pod has come for so long stands still, and its pods count as any others. Source: the default of
``progressDeadlineSeconds``, after which the controller calls it failed."""


def place_in_line(instance: str, numbered: str) -> int:
    """Return where a pod of a StatefulSet stands in the line of those that stay: the largest goes first.

    It is the pod's number; -1 for an instance that is none of its pods, or where ``numbered`` is empty.
    """
    number = instance.removeprefix(f"{numbered}-") if numbered else ""
    return int(number) if number != instance and number.isascii() and number.isdecimal() else -1


def template_of(instance: str, templated: str) -> str:
    """Return the hash of the template that a pod was made from: ``7d9c5b6f4d`` of ``payments-7d9c5b6f4d-x2x8k``.

    Empty for an instance that is none of the pods of ``templated``, or where that is empty. A name that was too long
    for Kubernetes has lost its hash, and is none either.
    """
    rest = instance.removeprefix(f"{templated}-") if templated else ""
    return rest.rpartition("-")[0] if rest != instance else ""


def is_rollout(now: float, group: GroupState, config: PlanConfig) -> bool:
    """Return whether pods of two templates are in the group, and one came within :data:`ROLLOUT_SECONDS`.

    Args:
        now: seconds since the epoch by the leader's clock.
        group: as it is at this moment.
        config: says whose pods the instances are.
    """
    templates = {template_of(state.instance or "", config.templated) for state in group.members.values()} - {""}
    return len(templates) > 1 and now - max(state.joined_at for state in group.members.values()) < ROLLOUT_SECONDS
