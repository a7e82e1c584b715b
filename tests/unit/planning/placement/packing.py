"""Small packings to work out by hand: sizes, owners, and who has what in the end."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.placement.problem import Bin, Item, Limits, Problem
from loadtrim_agent.planning.registry import make_packer
from loadtrim_agent.planning.values import Placement

CAPACITY = 10.0
LIMITS = Limits(objective_seconds=1.0, handoff_seconds=0.0)


def packing(
    sizes: Sequence[float],
    owners: Sequence[str | None] = (),
    *,
    bins: int | None = None,
    capacity: float = CAPACITY,
    **more: object,
) -> Problem:
    """Partitions 0, 1, ... of these sizes; as many bins ``c0``, ``c1``, ... as there are partitions."""
    listed = [*owners, *[None] * (len(sizes) - len(owners))]
    given = Problem(
        items=tuple(
            Item(partition=Partition("t", at), owner=owner, work=size)
            for at, (size, owner) in enumerate(zip(sizes, listed, strict=True))
        ),
        bins=tuple(
            Bin(member=f"c{at}", unit=f"u{at}", capacity=capacity) for at in range(len(sizes) if bins is None else bins)
        ),
        limits=LIMITS,
    )
    return replace(given, **more)  # type: ignore[arg-type]


def packed(name: str, given: Problem) -> dict[str, list[float]]:
    """Bin -> the sizes that it holds, largest first; empty bins are left out."""
    return held(given, make_packer(name).pack(given))


def held(given: Problem, placed: Placement) -> dict[str, list[float]]:
    result: dict[str, list[float]] = {}
    for item in given.items:
        if item.partition in placed.owners:
            result.setdefault(placed.owners[item.partition], []).append(item.work)
    return {member: sorted(sizes, reverse=True) for member, sizes in sorted(result.items())}


def owned(given: Problem, placed: Placement) -> Problem:
    """The same loads after the plan was carried out."""
    items = tuple(structs.replace(item, owner=placed.owners.get(item.partition, item.owner)) for item in given.items)
    return replace(given, items=items)
