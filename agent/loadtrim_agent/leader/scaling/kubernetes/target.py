"""The workload whose replicas are the group's: as the user names it, or as the pod's own name tells."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from loadtrim_agent.common.pod_names import OF_DEPLOYMENT, OF_STATEFULSET, WORKLOAD, number_of

__all__ = ["KINDS", "Target", "parse_lease_name", "parse_target", "target_of", "target_of_pod"]

KINDS: Final = {
    "deployment": ("apps", "v1", "deployments"),
    "statefulset": ("apps", "v1", "statefulsets"),
    "rollout": ("argoproj.io", "v1alpha1", "rollouts"),
    "cloneset": ("apps.kruise.io", "v1alpha1", "clonesets"),
}
"""Kind -> API group, version, resource."""
_ALLOWED = (
    "Allowed: deployment/NAME, statefulset/NAME, rollout/NAME, cloneset/NAME, or GROUP/VERSION/RESOURCE/NAME of "
    "anything that has a scale subresource, such as apps/v1/deployments/payments."
)


class Target(msgspec.Struct, frozen=True):
    """One workload with a ``scale`` subresource."""

    group: str
    version: str
    resource: str
    """The plural, as in a path and in a Role."""
    name: str

    @property
    def known(self) -> bool:
        """The resource is one of :data:`KINDS`, of whose status we know what is left out."""
        return (self.group, self.version, self.resource) in KINDS.values()

    @property
    def ordered(self) -> bool:
        """Pods have numbers, and the highest ones go first whatever their readiness."""
        return self.resource == "statefulsets"

    @property
    def templated(self) -> bool:
        """The names of its pods have the hash of the template that they were made from."""
        return self.resource in ("deployments", "rollouts")

    def has_pod(self, name: str) -> bool:
        """Return whether a pod of this name is one of an ordered workload."""
        return self.ordinal(name) is not None

    def ordinal(self, pod: str) -> int | None:
        """Return the number of a pod of an ordered workload; None: the name is none of its pods'."""
        made = OF_STATEFULSET.fullmatch(pod)
        return number_of(made["ordinal"]) if made is not None and made["name"] == self.name else None

    def __str__(self) -> str:
        return f"{self.resource}/{self.name}"


def parse_target(text: str) -> Target:
    """Read a ``LOADTRIM_KUBERNETES_TARGET``.

    Raises:
        ValueError: it is none; the text says what is allowed.
    """
    parts = text.strip().split("/")
    if not re.fullmatch(WORKLOAD, parts[-1]):
        raise ValueError(f"{text!r} names no workload. {_ALLOWED}")
    if len(parts) == 2 and parts[0].lower().removesuffix("s") in KINDS:
        return Target(*KINDS[parts[0].lower().removesuffix("s")], parts[1])
    if len(parts) == 4 and all(re.fullmatch(WORKLOAD, part) for part in parts):
        return Target(*parts)
    raise ValueError(f"{text!r} names no workload. {_ALLOWED}")


def parse_lease_name(text: str) -> str:
    """Read a ``LOADTRIM_KUBERNETES_LEASE``.

    Raises:
        ValueError: no Lease can have this name; the text says what is allowed.
    """
    if not re.fullmatch(WORKLOAD, text):
        raise ValueError(f"{text!r} names no Lease. Allowed: small letters, digits, - and ., as in payments-replicas.")
    return text


def target_of(named: str, pod: str) -> Target | None:
    """Return the workload that the user names, else the one that the pod's name tells; None: neither does.

    Raises:
        ValueError: what the user names is none.
    """
    return parse_target(named) if named else target_of_pod(pod)


def target_of_pod(pod: str) -> Target | None:
    """Return the workload that made a pod of this name; None: the name does not tell.

    It needs no right, unlike the pod's owner references. That the workload is there is seen at the first request.
    """
    if made := OF_DEPLOYMENT.fullmatch(pod):
        return Target(*KINDS["deployment"], made["name"])
    if made := OF_STATEFULSET.fullmatch(pod):
        return Target(*KINDS["statefulset"], made["name"])
    return None
