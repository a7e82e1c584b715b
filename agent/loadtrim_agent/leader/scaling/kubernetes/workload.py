"""A workload as the API server has it, and whether its replicas may be lowered then. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..port import ScaleRequest
from .target import Target

__all__ = ["Condition", "Workload", "not_yet", "one_is_unwell", "shortfall", "uncounted", "victims_to_go"]


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``status.conditions``."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Managed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    manager: str = ""
    time: str = ""
    fields_v1: dict[str, object] = msgspec.field(name="fieldsV1", default_factory=dict)

    @property
    def owns_replicas(self) -> bool:
        spec = self.fields_v1.get("f:spec")
        return isinstance(spec, dict) and "f:replicas" in spec


class _Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    resource_version: str
    generation: int = 0
    deletion_timestamp: str = ""
    managed_fields: tuple[_Managed, ...] = ()


class _Ordinals(msgspec.Struct, frozen=True, kw_only=True):
    start: int = 0


class _Spec(msgspec.Struct, frozen=True, kw_only=True):
    replicas: int = 1
    paused: bool = False
    ordinals: _Ordinals = _Ordinals()
    """Of a StatefulSet: the number of its first pod."""


class _Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    observed_generation: int | None = None
    replicas: int = 0
    ready_replicas: int | None = None
    updated_replicas: int | None = None
    conditions: tuple[Condition, ...] = ()


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload at one version of it. Fields that the API server leaves out are 0, None or empty."""

    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()

    @classmethod
    def read(cls, answer: object) -> Workload:
        """Decode an answer of the API server.

        Raises:
            msgspec.ValidationError: it is no workload with ``spec.replicas``; a field's type is wrong.
        """
        # A rollout of Argo says its observed generation as text.
        return msgspec.convert(answer, cls, strict=False)

    @property
    def replicas(self) -> int:
        """Wanted of the controllers now."""
        return self.spec.replicas

    @property
    def version(self) -> str:
        """A change names it, so that it fails where another writer was faster."""
        return self.metadata.resource_version

    @property
    def ready(self) -> int:
        """Pods whose readiness probe answers, as the controllers know it that choose which pod goes."""
        return self.status.ready_replicas or 0

    def is_seen(self, *, counts: bool = True) -> bool:
        """Return whether the controllers have seen this version's wishes, so that their counts are of it.

        Args:
            counts: the controllers of this kind tell it, and leave out a 0. Else where it is left out nobody knows.
        """
        observed = self.status.observed_generation
        return not counts if observed is None else observed >= self.metadata.generation

    def is_rolling(self, *, counts: bool) -> bool:
        """Return whether pods of an older template are there beside those of the newest; ``counts`` as above."""
        updated = self.status.updated_replicas
        return counts and self.status.replicas > 0 if updated is None else self.status.replicas > updated

    @property
    def writers(self) -> tuple[str, ...]:
        """The field managers that have written the replicas as they are, the last one first.

        A tool that applies the number that is there already becomes one of them.
        """
        writers = [entry for entry in self.metadata.managed_fields if entry.owns_replicas]
        return tuple(entry.manager for entry in sorted(writers, key=lambda entry: entry.time, reverse=True))

    @property
    def writer(self) -> str:
        """The field manager that wrote the replicas last; empty: the API server does not say."""
        return next(iter(self.writers), "")


def uncounted(target: Target, workload: Workload) -> str:
    """Return why the replicas can never be lowered by what the status says; empty: they can.

    The kinds that we know leave the count out where it is 0. Another resource may count nothing, and all of its pods
    may be ready.
    """
    if target.known or workload.status.ready_replicas is not None:
        return ""
    return (
        "its status has no readyReplicas, so nothing tells whether a ready pod would go. Its controller has to count "
        "them; until then loadtrim only makes it larger"
    )


def not_yet(target: Target, workload: Workload, wanted: ScaleRequest) -> str:
    """Return why the replicas may not be lowered to what is wanted now; empty: they may.

    The ReplicaSet controller removes pods that are not ready before those that are (``ActivePodsWithRanks.Less``), and
    a drained victim is not ready. So no ready pod goes while the replicas are at least the ready pods. The count comes
    from the controllers: where it has fallen, they know it.
    """
    if not workload.is_seen(counts=target.known):
        return "the controllers have not seen the workload's last change yet"
    if target.ordered:
        return _works_still(target, workload, wanted)
    if workload.is_rolling(counts=target.known) or wanted.rollout:
        return "a rollout is under way, and which pod goes would be decided by its template"
    if workload.ready > wanted.replicas:
        drained = f", {_listed(wanted.victims)} is drained" if wanted.victims else ""
        return f"{workload.ready} pods are ready{drained}, and a ready one would go"
    return ""


def one_is_unwell(target: Target, workload: Workload, wanted: ScaleRequest) -> bool:
    """Return whether a pod that works is not ready: fewer are ready than work. It could go in place of a victim.

    Not where numbers decide. Pods that are not in the group (they start, or never will) are counted on neither side.
    """
    return not target.ordered and workload.ready < min(wanted.replicas, len(wanted.staying))


def _works_still(target: Target, workload: Workload, wanted: ScaleRequest) -> str:
    """Return why a StatefulSet may not be lowered: a pod of its highest numbers is in use; empty: none is.

    A pod that is not in the group owns nothing: it starts, or never will.
    """
    if strangers := [name for name in (*wanted.victims, *wanted.staying) if not target.has_pod(name)]:
        return (
            f"{_listed(strangers)} is none of its pods, so nothing tells which may go: LOADTRIM_INSTANCE has to be the "
            "pod's name"
        )
    if wanted.unknown:
        return f"members that have not told their pod yet: {wanted.unknown}; it might be one that goes"
    working = [pod for pod in victims_to_go(target, workload, wanted) if pod in wanted.staying]
    return f"{_listed(working)} would go first and is not drained" if working else ""


def victims_to_go(target: Target, workload: Workload, wanted: ScaleRequest) -> list[str]:
    """Return the pods that a StatefulSet removes to come to what is wanted: those of the highest numbers."""
    first = workload.spec.ordinals.start
    return [f"{target.name}-{first + place}" for place in range(wanted.replicas, workload.replicas)]


def shortfall(workload: Workload) -> str:
    """Return in words how the pods differ from the ready ones that are wanted; empty: they do not, or nothing is said.

    There are more of them in a rollout, and where an ordered StatefulSet waits for a pod before it removes another one.
    """
    there, wanted = workload.status.replicas, workload.replicas
    if not workload.is_seen() or (there <= wanted and workload.ready >= wanted):
        return ""
    causes = [
        f"{condition.reason}: {condition.message}" if condition.message else condition.reason
        for condition in workload.status.conditions
        if _is_trouble(condition)
    ]
    said = f" ({'; '.join(causes)})" if causes else ""
    if there > wanted:
        return f"{there} pods are there, and {workload.ready} of them are ready{said}"
    return f"{wanted - workload.ready} of {wanted} pods are not ready{said}"


def _is_trouble(condition: Condition) -> bool:
    return (condition.type == "ReplicaFailure" and condition.status == "True") or (
        condition.type == "Progressing" and condition.status == "False"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
