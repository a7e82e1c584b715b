"""The other members by the log: those that leave, their slack, those that are overdue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.wire.ownership_records import LoadRecord, MemberEntry

from .pace import overdue_seconds

__all__ = ["Peers"]

NEVER = float("inf")
LEAVING_MAX = 1_000
"""Chosen: leaving members that are in no assignment yet are few; names that are made up must not pile up."""


class _Peer(msgspec.Struct):
    heard_at: float
    slack: float = 0.0


class Peers:
    """Members of the generation, kept over generations as long as they stay.

    Cost: O(1) per record and per question; O(members) once in about two seconds, when somebody could be overdue.
    """

    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}
        self._overdue_seconds = overdue_seconds(0)
        self._overdue: set[str] = set()
        """Members found overdue when all were looked at last, and not heard of since."""
        self._look_at = NEVER
        """Time of the next look at all. Invariant: no member that is not overdue yet becomes it before."""
        self._leaving: set[str] = set()
        """Leaving members that are not (yet) in a map of ours: a record may be read before the map."""

    def enter(self, now: float, members: Iterable[str]) -> None:
        """A generation begins with these members."""
        members = frozenset(members)
        self._peers = {m: self._peers.get(m) or _Peer(heard_at=now) for m in sorted(members)}
        for peer in self._peers.values():
            peer.heard_at = now
        self._overdue.clear()
        self._overdue_seconds = overdue_seconds(len(members))
        self._look_at = now + self._overdue_seconds if self._peers else NEVER
        self._leaving &= members

    def note_load(self, now: float, record: LoadRecord) -> None:
        peer = self._peers.get(record.member)
        if peer is not None:
            peer.heard_at = now
            peer.slack = record.slack
            if record.member in self._overdue:
                self._overdue.remove(record.member)
                self._look_at = min(self._look_at, now + self._overdue_seconds)

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
        if now >= self._look_at:
            after = self._overdue_seconds
            ends = {member: peer.heard_at + after for member, peer in self._peers.items() if member != me}
            self._overdue = {member for member, end in ends.items() if now >= end}
            self._look_at = min((end for end in ends.values() if now < end), default=NEVER)
        return bool(self._overdue)

    def well(self, member: str) -> bool:
        """The member has been heard of, as of the last question for overdue ones."""
        return member not in self._overdue

    @property
    def next_overdue(self) -> float:
        """Return the time before which no other member will be overdue that is not yet."""
        return self._look_at

    def takers(self, partition: Partition, entries: Mapping[str, MemberEntry], me: str) -> list[str]:
        """Return the members that may be given this partition: subscribed, staying and heard of; most slack first."""
        able = [m for m, e in entries.items() if partition.topic in e.topics and m != me and m not in self._leaving]
        return sorted((m for m in able if self.well(m)), key=lambda m: (-self._slack(m), m))

    def charge(self, member: str, work: float) -> None:
        """Count a partition that is on its way there, so that the next one goes elsewhere."""
        if member in self._peers:
            self._peers[member].slack -= work

    def _slack(self, member: str) -> float:
        peer = self._peers.get(member)
        return peer.slack if peer is not None else 0.0
