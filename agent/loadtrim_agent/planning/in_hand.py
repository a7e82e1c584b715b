"""Records in hand take a part of the objective, and are no backlog.

A record that is worked on by itself is in hand for as long as it costs. One of a batch costs a part of that: it is in
hand for as long as the batch takes however few its records are. And it waits first until the batch before is
done. In the mean half of that is left when a record comes; of those that are late nearly all. What a batch takes longer
for more records is theirs: it is a queue that is in hand, and a plan has that already.

Source: Little's law for what is in hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .values import MemberEstimate, PartitionEstimate

__all__ = ["BATCHES", "batch_seconds_of", "waiting_shares"]

BATCHES = 2.0
"""A record takes its own, and the one before. Measured:
docs/decisions/metering.md#records-of-a-batch-vary-together-and-each-takes-the-time-of-its-batch."""


def batch_seconds_of(sized: Sequence[PartitionEstimate], members: Mapping[str, MemberEstimate]) -> float:
    """Return the time that the batch of a record takes in the mean, however few its records are.

    A partition that nobody owns for the moment will have an owner like the others.

    Args:
        sized: partitions with load.
        members: their owners.
    """
    owned = [(entry.rate, owner.batch_seconds) for entry in sized if (owner := members.get(entry.owner or ""))]
    rate = sum(each for each, _ in owned)
    return sum(each * seconds for each, seconds in owned) / rate if rate > 0.0 else 0.0


def waiting_shares(sized: Sequence[PartitionEstimate], members: Mapping[str, MemberEstimate]) -> dict[str, float]:
    """Return what share of its backlog waits, by owner: what is in hand is being done.

    A member has its capacity in busy seconds per second in hand, which is as many records. Of batches it is so many
    times as many as one takes longer than one of its records costs.
    """
    records: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for entry in sized:
        if entry.owner is not None and entry.owner in members and entry.cost > 0.0:
            work = entry.persistent_backlog + entry.late
            records[entry.owner] = records.get(entry.owner, 0.0) + work / entry.cost
            seconds[entry.owner] = seconds.get(entry.owner, 0.0) + work / members[entry.owner].speed
    shares = {}
    for owner, count in records.items():
        member = members[owner]
        if count > 0.0 and seconds[owner] > 0.0:
            in_hand = member.capacity / member.speed * (1.0 + member.batch_seconds * count / seconds[owner])
            shares[owner] = max(0.0, 1.0 - in_hand / count)
    return shares
