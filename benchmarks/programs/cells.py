"""Cells: a program, a load in members' capacity, and the objective that goes with the length of its records."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

from aiokafka.partitioner import murmur2

from loadtrim_agent.common.settings import DEFAULTS
from programs.shapes import SHAPES, Shape

__all__ = ["JUDGED", "LEVELS", "SLOW", "Arrival", "Cell", "arrivals", "capacity", "cell_named", "cells"]

RECORD_SECONDS = (0.25, 1.0)
"""Bounds of the mean time of a program's records. Chosen: a member waits nearly all of the time, so that several runs
fit on two cores."""
VARIATION = 0.5
"""Standard deviation over mean. Chosen: one record in 10^6 is above the objective by itself."""
OBJECTIVE_RECORDS = 10
"""The rule for W: so many times the mean record. Chosen."""
PARTITIONS = 12
KEYS = 200
"""Keys of a load. Chosen: the largest of the partitions then has about 1.4 times the mean."""
START_SECONDS = 2.0
"""From a request for a replica until it is started."""
SETTLE_SECONDS = 120.0
"""Not judged, at the beginning and behind a step: the group learns what its members can do."""
JUDGED_SECONDS = 120.0
STEP_WITHIN_SECONDS = 30.0
LEVELS = (0.3, 0.7, 1.5, 2.5, 4.5)
"""Members' capacity."""
STEP = (0.7, 2.5)
STEP_NAME = "step"
SLOW = ("slow", "slow-keys")
JUDGED = tuple(name for name, shape in SHAPES.items() if shape.tells)
"""Programs with a verdict. The others are shown: the consumer cannot know when their records are done."""


class Arrival(NamedTuple):
    """One record of a load."""

    at: float
    """Seconds since the load began."""
    partition: int
    busy_seconds: float
    """Time that the record takes, in whichever member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One program under one load."""

    program: str
    """Name of a shape in ``programs.shapes``."""
    load: str
    levels: tuple[tuple[float, float], ...]
    """(second from which on, members' capacity)."""
    seconds: float
    record_seconds: float
    """Mean time of a record."""
    objective_seconds: float
    variation: float = VARIATION
    objective_share: float = DEFAULTS.sla_share
    partitions: int = PARTITIONS
    start_seconds: float = START_SECONDS
    even: bool = False
    """Records arrive at equal distances and are dealt out in turn; else at random, with random keys."""
    replica_minutes_max: float | None = None
    scalings_max: int | None = 0
    """Changes of what is asked for in the judged time; None: a load that steps asks for some."""

    @property
    def name(self) -> str:
        """Return the cell as it is chosen on the command line."""
        return f"{self.program}/{self.load}"

    @property
    def shape(self) -> Shape:
        return SHAPES[self.program]

    @property
    def windows(self) -> tuple[tuple[float, float], ...]:
        """Return the times that are judged: a part of each level, from when the group should have settled."""
        begins = [begin for begin, _ in self.levels]
        ends = [*begins[1:], self.seconds]
        return tuple((begin + SETTLE_SECONDS, end) for begin, end in zip(begins, ends, strict=True))

    @property
    def replicas_least(self) -> int:
        """Return the fewest that can keep up with the last level, were the work to divide without a rest."""
        return max(1, math.ceil(self.levels[-1][1]))

    def rate(self, at: float) -> float:
        """Return records per second at that time."""
        level = next(level for begin, level in reversed(self.levels) if begin <= at)
        return level * capacity(self.shape, self.record_seconds, self.variation)


def capacity(shape: Shape, record_seconds: float, variation: float) -> float:
    """Return the records per second that one member can do.

    Where records begin together the slowest counts: the mean of the largest of so many lognormal times.
    """
    if not shape.in_step:
        return shape.at_once / record_seconds
    times = _lognormal(record_seconds, variation)
    steps = 10_000
    # The mean of the largest, by its quantiles: those of one time at the n-th root.
    quantiles = (((step + 0.5) / steps) ** (1 / shape.at_once) for step in range(steps))
    return shape.at_once / (sum(times(quantile) for quantile in quantiles) / steps)


def arrivals(cell: Cell, seed: int) -> list[Arrival]:
    """Draw a load: the same for the same seed, whatever plays it."""
    rng = random.Random(seed)
    if cell.even:
        spacing = 1 / cell.rate(0.0)
        return [
            Arrival(index * spacing, index % cell.partitions, cell.record_seconds)
            for index in range(int(cell.seconds / spacing))
        ]
    partitions = [_partition_of(rng.randbytes(8), cell.partitions) for _ in range(KEYS)]
    times = _lognormal(cell.record_seconds, cell.variation)
    return [Arrival(at, rng.choice(partitions), times(rng.random())) for at in _moments(cell, rng)]


def cells(rng: random.Random) -> Iterator[Cell]:
    """Yield every cell. How long a program's records take is drawn, and the moment of its step."""
    for program in SHAPES:
        record_seconds = round(math.exp(rng.uniform(*map(math.log, RECORD_SECONDS))), 2)
        step_at = round(SETTLE_SECONDS + JUDGED_SECONDS / 2 + rng.uniform(0.0, STEP_WITHIN_SECONDS), 1)
        constant = Cell(
            program=program,
            load="",
            levels=(),
            seconds=SETTLE_SECONDS + JUDGED_SECONDS,
            record_seconds=record_seconds,
            objective_seconds=OBJECTIVE_RECORDS * record_seconds,
        )
        for level in LEVELS:
            yield replace(constant, load=f"{level:g}", levels=((0.0, level),))
        yield replace(
            constant,
            load=STEP_NAME,
            levels=((0.0, STEP[0]), (step_at, STEP[1])),
            seconds=step_at + SETTLE_SECONDS + JUDGED_SECONDS,
            scalings_max=None,
        )
    for name in SLOW:
        yield _slow(name)


def cell_named(name: str, found: Mapping[str, Cell]) -> Cell:
    """Return the cell of that name.

    Raises:
        ValueError: there is none; the message lists what there is.
    """
    if name not in found:
        raise ValueError(f"no cell is called {name!r}; there are {', '.join(found)}")
    return found[name]


def _slow(name: str) -> Cell:
    """Return the cell of slow records: constant 0.6/s of 4 s each for ten minutes.

    ``slow`` deals them out in turn at equal distances, so that three members do all of them in time.
    """
    even = name == SLOW[0]
    return Cell(
        program="one-by-one",
        load=name,
        levels=((0.0, 0.6 * 4.0),),
        seconds=600.0,
        record_seconds=4.0,
        variation=0.0 if even else VARIATION,
        objective_seconds=20.0,
        partitions=6,
        start_seconds=3.0,
        even=even,
        replica_minutes_max=33.0 if even else None,
        scalings_max=4 if even else None,
    )


def _moments(cell: Cell, rng: random.Random) -> Iterator[float]:
    """Yield the times of a Poisson process whose rate changes at the levels."""
    begins = [begin for begin, _ in cell.levels]
    for begin, end in zip(begins, [*begins[1:], cell.seconds], strict=True):
        at, rate = begin, cell.rate(begin)
        while (at := at + rng.expovariate(rate)) < end:
            yield at


def _lognormal(mean: float, variation: float) -> Callable[[float], float]:
    """Return the quantile function of times with that mean and coefficient of variation."""
    if not variation:
        return lambda share: mean
    variance = math.log1p(variation**2)
    normal = NormalDist(math.log(mean) - variance / 2, math.sqrt(variance))
    return lambda share: math.exp(normal.inv_cdf(min(max(share, 1e-12), 1 - 1e-12)))


def _partition_of(key: bytes, partitions: int) -> int:
    """Return where Kafka's own partitioner puts a key."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions
