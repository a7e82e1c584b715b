"""A Lease of ``coordination.k8s.io`` by which one group holds its workload, and the leaders that may take it. Pure.

Theory of operation. The Lease names its holder: the group, its cluster, the member that leads it, and the generation in
which it does. The holder renews it as long as it leads. A leader of

* the same group in a later generation takes it at once: the group's coordinator has elected it. The one before is
  fenced from then on, for what it holds is another version of the Lease;
* an earlier generation does not take it: it was frozen, and does not know yet that it leads no more;
* another group, or of a group of the same name elsewhere, takes it when it was not renewed for as long as it says.

The last time is measured by the observer's own clock, from the first look that found the Lease as it is. What the
holder wrote as ``renewTime`` is compared for a change alone, as client-go does: its clock may be wrong. ::

    holder      renews ----- renews ----- (gone)
    observer        sees A ----- sees B ------------- B still: free
                                 |<-- leaseDuration -->|
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

__all__ = ["LEASE_SECONDS", "Claim", "LeaseObserver", "WorkloadLease"]

LEASE_SECONDS: Final = 30.0
"""Others take the Lease when it was not renewed for so long. Chosen: three renewals, each of which may fail once."""
GENERATION: Final = "loadtrim/generation"
MEMBER: Final = "loadtrim/member"
"""Annotations of the Lease, beside its holder."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A leader that wants the Lease."""

    holder: str
    """The group, as no other group is called."""
    member: str
    generation: int


class _Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class WorkloadLease(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease at one version of it."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    document: dict[str, Any] = {}
    """All of it, for what is written is the whole object."""

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> WorkloadLease:
        """Decode an answer of the API server.

        Raises:
            msgspec.ValidationError: it is no Lease.
        """
        return msgspec.convert({**answer, "document": dict(answer)}, cls)

    @classmethod
    def missing(cls, name: str) -> WorkloadLease:
        """Return the Lease that is to be made: nobody holds it."""
        return cls(document={"metadata": {"name": name}})

    @property
    def holder(self) -> str:
        """The holder; empty: nobody holds it."""
        return self.spec.holder_identity or ""

    @property
    def member(self) -> str:
        """The member that holds it for its group; empty: it is none of ours."""
        return self.metadata.annotations.get(MEMBER, "")

    @property
    def generation(self) -> int:
        """The generation that the member led; -1: it is none of ours."""
        told = self.metadata.annotations.get(GENERATION, "")
        return int(told) if told.isascii() and told.isdigit() else -1

    @property
    def seconds(self) -> float:
        """The time for which it holds without being renewed."""
        return float(self.spec.lease_duration_seconds or LEASE_SECONDS)

    @property
    def seen(self) -> tuple[object, ...]:
        """The part that each renewal changes, and no other change of the object does."""
        return self.spec, self.member, self.generation

    def claimed_by(self, claim: Claim) -> bool:
        """Return whether this leader holds it."""
        return (self.holder, self.member, self.generation) == (claim.holder, claim.member, claim.generation)

    def taken(self, claim: Claim, now: float) -> dict[str, Any]:
        """Return the object as this leader writes it. The version in it fails where another one was faster.

        Args:
            claim: of the leader.
            now: seconds since the epoch, for people to read.
        """
        at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        goes_on = self.holder == claim.holder
        spec = {
            "holderIdentity": claim.holder,
            "leaseDurationSeconds": int(LEASE_SECONDS),
            "acquireTime": self.spec.acquire_time if goes_on and self.spec.acquire_time else at,
            "renewTime": at,
            "leaseTransitions": (self.spec.lease_transitions or 0) + (not goes_on and bool(self.holder)),
        }
        metadata = self.document.get("metadata", {})
        annotations = self.metadata.annotations | {GENERATION: str(claim.generation), MEMBER: claim.member}
        return {
            **self.document,
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**metadata, "annotations": annotations},
            "spec": self.document.get("spec", {}) | spec,
        }


class LeaseObserver:
    """Remembers since when a Lease is as it is."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] | None = None
        self._since = 0.0

    def refuses(self, lease: WorkloadLease, claim: Claim, now: float) -> str:
        """Return why a leader may not take the Lease now, in words; empty: it may.

        Args:
            lease: as it was read.
            claim: of the leader.
            now: when it was asked for, by the clock of this machine that goes on while it is frozen, seconds.
        """
        if lease.seen != self._seen:
            self._seen, self._since = lease.seen, now
        if not lease.holder or lease.claimed_by(claim):
            return ""
        if lease.holder == claim.holder and lease.generation < claim.generation:
            return ""
        left = self._since + lease.seconds - now
        if left <= 0:
            return ""
        if lease.holder == claim.holder and lease.generation > claim.generation:
            return f"held in generation {lease.generation} of this group, and this member leads {claim.generation}"
        since = now - self._since
        return f"held by {lease.holder!r}: not renewed for {since:.0f} s, and free if it is not for {left:.0f} s more"
