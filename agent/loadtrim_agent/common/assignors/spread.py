"""Give away what nobody claims: the group protocol's own placement, made before any planning.

The leader calls it inside a barrier, so it is quick, needs no measurements and always succeeds. What it gets wrong the
planner puts right with moves of milliseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

from ..partition import Partition

__all__ = ["spread"]


def spread(
    unclaimed: Collection[Partition],
    members: Mapping[str, frozenset[str]],
    owned: Mapping[Partition, str],
    weights: Mapping[Partition, float] | None = None,
) -> dict[Partition, str]:
    """Place unclaimed partitions on the least loaded members that subscribe their topics.

    Partitions that the fewest members may own come first, then the heaviest (longest processing time first, which is
    within 4/3 of the best possible largest load where everybody may own everything).

    Args:
        unclaimed: partitions without an owner, in any order.
        members: member id -> topics it subscribes. Only members that may be given something: the caller leaves out
            those that are leaving.
        owned: partition -> member that keeps it. Members that are not in ``members`` may appear; they are ignored.
        weights: load of a partition, >= 0, any unit; one that is missing weighs 1.0. Ties of load are broken by the
            number of partitions, then by member id.

    Returns:
        Owner of every unclaimed partition that somebody subscribes, sorted by partition. The others are absent.

    Cost: ``O((p + m t) log m)`` for p partitions, m members, t topics.

    Source: R. L. Graham, *Bounds on multiprocessing timing anomalies*, 1969 (largest first onto the least loaded).
    """
    weights = weights or {}
    load = dict.fromkeys(members, 0.0)
    count = dict.fromkeys(members, 0)
    for partition in sorted(owned):
        member = owned[partition]
        if member in load:
            load[member] += weights.get(partition, 1.0)
            count[member] += 1
    topics = {partition.topic for partition in unclaimed}
    queues = {
        topic: [(load[member], count[member], member) for member in members if topic in members[member]]
        for topic in topics
    }
    for queue in queues.values():
        heapq.heapify(queue)
    result: dict[Partition, str] = {}
    for partition in sorted(
        unclaimed, key=lambda p: (len(queues[p.topic]), -weights.get(p, 1.0), p.topic, p.partition)
    ):
        queue = queues[partition.topic]
        if not queue:
            continue
        # Loads only grow, so an entry that another topic's placement has overtaken is a lower bound: put it right
        # and look again until the top is current.
        while queue[0] != (current := (load[queue[0][2]], count[queue[0][2]], queue[0][2])):
            heapq.heapreplace(queue, current)
        member = queue[0][2]
        load[member] += weights.get(partition, 1.0)
        count[member] += 1
        heapq.heapreplace(queue, (load[member], count[member], member))
        result[partition] = member
    return dict(sorted(result.items()))
