"""The other members by the log: those that leave, their slack, those that are overdue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import LoadRecord, MemberEntry

__all__ = ["Peers"]

OVERDUE_SECONDS = 3.0
"""A member appends its ``load`` at least every second; two seconds more and its eviction is watched for (rule 11)."""


LEAVING_MAX = 1_000
"""Chosen: leaving members that are in no assignment yet are few; names that are made up must not pile up."""


@dataclass(slots=True)
class _Peer:
    heard_at: float
    slack: float = 0.0
    overdue: bool = False


class Peers:
    """Members of the generation, kept over generations as long as they stay."""

    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}
        self._leaving: set[str] = set()
        """Leaving members that are not (yet) in a map of ours: a record may be read before the map."""

    def enter(self, now: float, members: Iterable[str]) -> None:
        """A generation begins with these members."""
        members = frozenset(members)
        self._peers = {m: self._peers.get(m) or _Peer(heard_at=now) for m in sorted(members)}
        for peer in self._peers.values():
            peer.heard_at = now
            peer.overdue = False
        self._leaving &= members

    def heard(self, now: float, record: LoadRecord) -> None:
        peer = self._peers.get(record.member)
        if peer is not None:
            peer.heard_at = now
            peer.overdue = False
            peer.slack = record.slack

    def announce_leaving(self, member: str) -> None:
        if len(self._leaving) < LEAVING_MAX or member in self._peers:
            self._leaving.add(member)

    def forget_leaving(self, member: str) -> None:
        self._leaving.discard(member)

    @property
    def leaving(self) -> frozenset[str]:
        return frozenset(self._leaving)

    def overdue(self, now: float, me: str) -> bool:
        """Return whether any other member has not been heard of for too long."""
        for member, peer in self._peers.items():
            peer.overdue = member != me and now >= peer.heard_at + OVERDUE_SECONDS
        return any(peer.overdue for peer in self._peers.values())

    def next_overdue(self, me: str) -> float:
        """When one more member will be overdue, if nothing is heard."""
        times = (p.heard_at + OVERDUE_SECONDS for m, p in self._peers.items() if m != me and not p.overdue)
        return min(times, default=float("inf"))

    def takers(self, partition: Partition, entries: Mapping[str, MemberEntry], me: str) -> list[str]:
        """Return the members that may be given this partition: subscribed, not leaving, most slack first."""
        able = [m for m, e in entries.items() if partition.topic in e.topics and m != me and m not in self._leaving]
        return sorted(able, key=lambda m: (-self._slack(m), m))

    def charge(self, member: str, work: float) -> None:
        """Count a partition that is on its way there, so that the next one goes elsewhere."""
        if member in self._peers:
            self._peers[member].slack -= work

    def _slack(self, member: str) -> float:
        peer = self._peers.get(member)
        return peer.slack if peer is not None else 0.0
