"""Instances that are pods: which of them Kubernetes' controllers keep, as far as names tell. Pure.

Pods of a StatefulSet have numbers, and the highest go. The name of a Deployment's pod has the hash of the template that
it was made from. In a rollout there are pods of two templates. The controllers bring those of one to their number and
end the others, so they choose by template, and their surplus is not the group's.

A group may have pods of a workload beside the one that is scaled, such as a canary's. Nobody changes the replicas of
that one, so its pods are there whatever is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable

from loadtrim_agent.common.pod_names import OF_DEPLOYMENT, number_of

__all__ = ["are_of_two_templates", "place_in_line", "template_of", "workload_beside"]


def place_in_line(instance: str, numbered: str) -> int:
    """Return where a pod of a StatefulSet stands in the line of those that stay: the largest goes first.

    It is the pod's number; -1 for an instance that is none of its pods, or where ``numbered`` is empty.
    """
    text = instance.removeprefix(f"{numbered}-") if numbered else ""
    number = number_of(text) if text != instance else None
    return -1 if number is None else number


def template_of(instance: str, templated: str) -> str:
    """Return the hash of the template that a pod was made from: ``7d9c5b6f4d`` of ``payments-7d9c5b6f4d-x2x8k``.

    Empty for an instance that is none of the pods of ``templated``, or where that is empty. A name that was too long
    for Kubernetes has lost its hash, and is none either.
    """
    made = OF_DEPLOYMENT.fullmatch(instance) if templated else None
    return made["template"] if made is not None and made["name"] == templated else ""


def are_of_two_templates(instances: Iterable[str], templated: str) -> bool:
    """Return whether a rollout of ``templated`` is under way: its pods among these were made from two templates."""
    return len({template_of(instance, templated) for instance in instances} - {""}) > 1


def workload_beside(instance: str, templated: str) -> str:
    """Return the Deployment of a pod that is another one than ``templated``; empty: it is that one, or nobody knows.

    Only a name that a Deployment's controllers have made up tells it: an instance may also be named after its machine.
    """
    made = OF_DEPLOYMENT.fullmatch(instance) if templated else None
    return made["name"] if made is not None and made["name"] != templated else ""
