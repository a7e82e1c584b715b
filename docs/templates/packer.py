"""The packer ``most_room``, a template: the largest partition first, to the member with the most room.

To add a packer:

1. Copy this file to ``agent/loadtrim_agent/planning/published/packers/<name>.py``. Make the imports relative, rename
   the class, and let the first line and the source below be yours.
2. ``agent/loadtrim_agent/planning/registry.py``: a line in the docstring's list, an import, an entry of ``PACKERS``.
3. ``docs/packers.md``: a row of the table.
4. ``.venv/bin/ruff check --fix .`` sorts the imports; then ``make test-unit lint types``. The contract suite
   ``tests/contract/test_packer_contract.py`` takes every entry of ``PACKERS``.

Source: the paper, section and algorithm. Changed: what is different here, and why.
"""

from __future__ import annotations

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.parameters import Parameters
from loadtrim_agent.planning.placement.problem import Item, Problem
from loadtrim_agent.planning.placement.result import placement
from loadtrim_agent.planning.placement.victims import going
from loadtrim_agent.planning.values import Placement

__all__ = ["MostRoom"]


class MostRoom:
    """The packer ``most_room``. Cost: ``O(p n)`` for p partitions and n members."""

    name = "most_room"
    # What can be set, as for a policy; `Parameters` itself: nothing.
    kind = Parameters

    def pack(self, problem: Problem) -> Placement:
        """See :class:`~loadtrim_agent.planning.placement.problem.Packer`."""
        # Where fewer members may stay than there are, whole instances go, the cheapest to empty first.
        victims = going(problem)
        bins = {one.member: one for one in problem.bins if not one.leaving and one.member not in victims}
        room = {member: one.capacity * problem.fill for member, one in bins.items()}
        owners: dict[Partition, str] = {}

        def put(item: Item, member: str) -> None:
            owners[item.partition] = member
            room[member] -= item.work

        # What may not move stays where it is, unless its owner goes or may not have it any more.
        free: list[Item] = []
        for item in problem.items:
            home = bins.get(item.owner or "")
            if home is not None and home.may_have(item) and not (item.movable and problem.may_move):
                put(item, home.member)
            else:
                free.append(item)
        # Sort by what does not depend on the order of the input: equal problems get equal placements.
        for item in sorted(free, key=lambda item: (-item.work, item.partition)):
            able = [member for member, one in bins.items() if one.may_have(item)]
            if able:  # what no member may own is left out
                put(item, max(able, key=lambda member: (room[member], member == item.owner, member)))
        # Moves, misfits and the lower bound follow from the owners.
        return placement(problem, owners, victims, "largest first to the most room")
