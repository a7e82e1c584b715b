"""Who goes when the group is to get smaller: whole instances, the cheapest to empty first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..pods import place_in_line, workload_beside
from .problem import Bin, Item, Problem

__all__ = ["going", "units"]


def units(problem: Problem) -> dict[str, list[Bin]]:
    """Known instances that have a member which is not leaving, with their members, sorted by name."""
    result: dict[str, list[Bin]] = {}
    for entry in (each for each in problem.bins if each.unit):
        result.setdefault(entry.unit, []).append(entry)
    return {unit: members for unit, members in sorted(result.items()) if not all(member.leaving for member in members)}


def going(problem: Problem, passed_over: Sequence[str] = ()) -> tuple[str, ...]:
    """Members of the instances that are to go, sorted; empty where nobody has to.

    Of a StatefulSet the highest numbers, whatever they own: its controller removes no others. Beside a Deployment the
    pods of other workloads go last, for nobody takes them away. Else who was a victim
    already stays one. Then, among the weakest machines, the one with the fewest partitions and the least work to move,
    not the leader if another will do (its going costs a new leader's reading), the later name.

    Args:
        problem: ``replicas`` says how many instances may stay.
        passed_over: instances to spare where there are others.
    """
    if problem.replicas is None:
        return ()
    there = units(problem)
    if len(there) <= problem.replicas:
        return ()
    owned = _owned(problem.items)
    before = set(problem.victims)

    strongest = max((sum(entry.capacity for entry in members) for members in there.values()), default=1.0)

    def order(unit: str) -> tuple[int, bool, bool, bool, float, int, float, bool]:
        members = [entry.member for entry in there[unit]]
        return (
            -place_in_line(unit, problem.numbered),
            bool(workload_beside(unit, problem.templated)),
            not any(member in before for member in members),
            unit in passed_over,
            # Machines within a tenth of each other are alike.
            round(10.0 * sum(entry.capacity for entry in there[unit]) / strongest),
            sum(owned[member][0] for member in members if member in owned),
            sum(owned[member][1] for member in members if member in owned),
            problem.leader in members,
        )

    # Sorting is stable and the names descend: of equals the later name goes.
    descending = sorted(there, reverse=True)
    leaving = sorted(descending, key=order)[: len(there) - problem.replicas]
    return tuple(sorted(entry.member for unit in leaving for entry in there[unit]))


def _owned(items: Sequence[Item]) -> Mapping[str, tuple[int, float]]:
    """Member -> (partitions that it owns, work that has to be moved with them)."""
    result: dict[str, tuple[int, float]] = {}
    for item in items:
        if item.owner is not None:
            count, work = result.get(item.owner, (0, 0.0))
            result[item.owner] = (count + 1, work + item.work + item.queue)
    return result
