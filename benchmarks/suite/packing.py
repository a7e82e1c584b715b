"""Instances for packers, fixed by their seeds, and what a packer does with a stream."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.placement.problem import Bin, Item, Limits, Problem
from loadtrim_agent.planning.registry import make_packer

__all__ = ["FAMILIES", "HARD", "PackedStream", "drifted", "instance", "loaded", "play", "small"]

CAPACITY = 100.0

Draw = Callable[[random.Random], float]

FAMILIES: dict[str, tuple[int, Draw]] = {
    "uniform 0..100 (Landau's first measurement)": (250, lambda rng: rng.uniform(0, 100)),
    "uniform 0..50": (500, lambda rng: rng.uniform(0, 50)),
    "uniform 20..100 of 150 (Falkenauer), 250": (260, lambda rng: rng.randint(20, 100) / 1.5),
    "uniform 20..100 of 150 (Falkenauer), 500": (500, lambda rng: rng.randint(20, 100) / 1.5),
    "Pareto 1.5": (1000, lambda rng: min(100.0, 5 * rng.paretovariate(1.5))),
    "exponential": (600, lambda rng: min(100.0, rng.expovariate(1 / 20))),
}
"""Name -> how many items and what one asks for of a bin of 100; every one needs at least 100 bins."""
HARD: dict[str, tuple[int, Draw]] = {
    "uniform 25..50": (300, lambda rng: rng.uniform(25, 50)),
    "uniform 20..35": (400, lambda rng: rng.uniform(20, 35)),
}
"""Without small items no packing can fill its bins: the bound is far below what is possible. They count too."""
SMALL: tuple[Draw, ...] = (
    lambda rng: rng.uniform(0, 100),
    lambda rng: rng.uniform(20, 50),
    lambda rng: min(100.0, 8 * rng.paretovariate(1.5)),
    lambda rng: rng.randint(20, 100) / 1.5,
)


def packing(sizes: Sequence[float]) -> Problem:
    """Nobody owns anything, and there is a bin for every item."""
    width = len(str(len(sizes)))
    return Problem(
        items=tuple(Item(partition=Partition("t", at), owner=None, work=size) for at, size in enumerate(sizes)),
        bins=tuple(
            Bin(member=f"c{at:0{width}}", unit=f"c{at:0{width}}", capacity=CAPACITY) for at in range(len(sizes))
        ),
        limits=Limits(objective_seconds=1.0, handoff_seconds=0.0),
        fewest=True,
    )


def instance(name: str, seed: int) -> Problem:
    """One of a family."""
    count, draw = (FAMILIES | HARD)[name]
    rng = random.Random(f"{name}/{seed}")
    return packing([draw(rng) for _ in range(count)])


def small(seed: int, count: int = 14) -> Problem:
    """Small enough for the exact solver; the families take turns."""
    rng = random.Random(f"small/{seed}")
    draw = SMALL[seed % len(SMALL)]
    return packing([draw(rng) for _ in range(count)])


def loaded(item: Item, factor: float) -> Item:
    """With so many times its load. What its load varies by stays as it was."""
    return structs.replace(item, work=factor * item.work, mean=tuple(factor * mean for mean in item.mean))


def drifted(problem: Problem, *, every: int, times: float, seed: int = 1) -> Problem:
    """Every load is up to 10 % more or less than what it was placed by, and every so-many-th is so many times that."""
    rng = random.Random(seed)
    items = []
    for at, item in enumerate(problem.items):
        factor = 1.0 + 0.1 * (2.0 * rng.random() - 1.0)
        factor *= 1.0 if at % every else times
        items.append(loaded(item, factor))
    return replace(problem, items=tuple(items))


@dataclass(frozen=True, slots=True)
class PackedStream:
    """What a packer did with a stream."""

    opened: tuple[int, ...]
    bound: tuple[int, ...]
    rscore: float
    """Mean over the measurements of the load that changed owner, in bins."""
    moves: int
    misfits: int


def play(
    choice: str,
    stream: Sequence[Mapping[Partition, float]],
    counts: Sequence[int] | None = None,
    *,
    fewest: bool = False,
) -> PackedStream:
    """Pack every measurement, starting from what was packed before.

    Args:
        choice: a packer by name.
        stream: percent of a bin per partition.
        counts: how many bins may be open at each measurement; None: as many as the packer opens.
        fewest: let ours open as few as it can.
    """
    width = len(stream[0])
    bins = tuple(Bin(member=f"c{at:03}", unit=f"c{at:03}", capacity=CAPACITY) for at in range(width))
    limits = Limits(objective_seconds=1.0, handoff_seconds=0.0)
    packer = make_packer(choice)
    owners: dict[Partition, str] = {}
    opened, bound, score, moves, misfits = [], [], 0.0, 0, 0
    for at, loads in enumerate(stream):
        items = tuple(Item(partition=p, owner=owners.get(p), work=load) for p, load in sorted(loads.items()))
        replicas = None if counts is None else counts[at]
        placed = packer.pack(Problem(items=items, bins=bins, limits=limits, replicas=replicas, fewest=fewest))
        moved = [move.partition for move in placed.moves if move.source is not None]
        score += sum(loads[partition] for partition in moved) / CAPACITY
        moves += len(moved)
        misfits += len(placed.misfits)
        opened.append(placed.opened)
        bound.append(placed.bound)
        owners = dict(placed.owners)
    return PackedStream(tuple(opened), tuple(bound), score / len(stream), moves, misfits)
