"""Kafka's own assignors, for generations in which not every member speaks ``loadtrim`` (mixed groups).

The results equal those of Kafka's ``RangeAssignor`` and ``RoundRobinAssignor`` without racks and static members, so
that it makes no difference which member of a mixed group leads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..partition import Partition

__all__ = ["range_assign", "roundrobin_assign"]


def range_assign(members: Mapping[str, Sequence[str]], partitions: Mapping[str, int]) -> dict[str, list[Partition]]:
    """Per topic, give each subscriber one run of neighbouring partitions; the first ones get one more.

    Args:
        members: member id -> topics it subscribes.
        partitions: topic -> how many partitions it has. A topic that is not there is left out.

    Returns:
        Every member's partitions, sorted by (topic, partition); members sorted by id, some with an empty list.

    Source: ``org.apache.kafka.clients.consumer.RangeAssignor``.
    """
    assignment: dict[str, list[Partition]] = {member: [] for member in sorted(members)}
    for topic in _subscribed(members, partitions):
        subscribers = [member for member in assignment if topic in members[member]]
        share, extra = divmod(partitions[topic], len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + share + (1 if index < extra else 0)
            assignment[member] += [Partition(topic, number) for number in range(start, end)]
            start = end
    return assignment


def roundrobin_assign(
    members: Mapping[str, Sequence[str]], partitions: Mapping[str, int]
) -> dict[str, list[Partition]]:
    """Deal all partitions out in turn; a member that does not subscribe the topic is passed over.

    Args:
        members: member id -> topics it subscribes.
        partitions: topic -> how many partitions it has. A topic that is not there is left out.

    Returns:
        Every member's partitions, sorted by (topic, partition); members sorted by id, some with an empty list.

    Source: ``org.apache.kafka.clients.consumer.RoundRobinAssignor``.
    """
    assignment: dict[str, list[Partition]] = {member: [] for member in sorted(members)}
    order = list(assignment)
    turn = 0
    for topic in _subscribed(members, partitions):
        for number in range(partitions[topic]):
            while topic not in members[order[turn % len(order)]]:
                turn += 1
            assignment[order[turn % len(order)]].append(Partition(topic, number))
            turn += 1
    return assignment


def _subscribed(members: Mapping[str, Sequence[str]], partitions: Mapping[str, int]) -> list[str]:
    """Topics that exist and that somebody subscribes, sorted."""
    return sorted({topic for topics in members.values() for topic in topics} & partitions.keys())
