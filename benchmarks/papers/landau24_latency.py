"""Landau'24's model of latency: what stays with a consumer is read first, what moved begins late.

Per iteration (30 s) and consumer two queues: data of the partitions that stayed, and of those that moved, which cannot
be read in the first 5 s. Where nothing moved the consumer reads what stayed with all it has; else just as fast as it
comes, and with the rest of its capacity what moved. The i-th byte waits ``max(m i + b, 0)`` with
``m = 1 / read rate - 1 / arrival rate``; b is 5 s for what moved, and for what stayed the last byte's latency in the
iteration before.

Source: Landau'24, section VI-C, equations 16 to 27. Changed: a queue that is read at no rate at all, for which the
equations divide by 0, waits until the end of the iteration and is then as late as what arrived first in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtrim_agent.common.partition import Partition

__all__ = ["REBALANCE_SECONDS", "Iteration", "latencies", "percentile_of_bytes"]

ITERATION_SECONDS, REBALANCE_SECONDS = 30.0, 5.0
PIECES = 30
"""Latency is linear inside an iteration: it is looked at in so many places."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """Rates (percent of a bin) while the owners stay as they are, and who owned what before."""

    loads: Mapping[Partition, float]
    before: Mapping[Partition, str]
    owners: Mapping[Partition, str]


def latencies(iterations: Sequence[Iteration], capacity: float) -> list[tuple[float, float]]:
    """(latency in seconds, amount of data) in pieces.

    Args:
        iterations: in order.
        capacity: what a consumer really reads, in the unit of the loads.
    """
    samples: list[tuple[float, float]] = []
    last: dict[str, float] = {}
    for each in iterations:
        stayed, moved = _split(each)
        following: dict[str, float] = {}
        for consumer in sorted(stayed.keys() | moved.keys()):
            fixed, rebalanced = stayed.get(consumer, 0.0), moved.get(consumer, 0.0)
            read = min(capacity, fixed) if rebalanced > 0 else capacity
            if fixed > 0:
                line = _line(fixed, read, last.get(consumer, 0.0))
                samples += _pieces(line, fixed)
                following[consumer] = max(0.0, line[1])
            if rebalanced > 0:
                samples += _pieces(_line(rebalanced, capacity - read, REBALANCE_SECONDS), rebalanced)
        last = following
    return samples


def _split(each: Iteration) -> tuple[dict[str, float], dict[str, float]]:
    stayed: dict[str, float] = {}
    moved: dict[str, float] = {}
    for partition, load in each.loads.items():
        owner = each.owners[partition]
        queue = moved if each.before.get(partition, owner) != owner else stayed
        queue[owner] = queue.get(owner, 0.0) + load
    return stayed, moved


def _line(arriving: float, reading: float, first: float) -> tuple[float, float]:
    """Latency of the first and of the last byte of an iteration; below 0: the consumer waits for data."""
    if reading <= 0.0:
        return ITERATION_SECONDS, ITERATION_SECONDS
    slope = 1.0 / reading - 1.0 / arriving
    return first, slope * ITERATION_SECONDS * arriving + first


def _pieces(line: tuple[float, float], arriving: float) -> list[tuple[float, float]]:
    """A straight line from the first byte to the last; one that falls below 0 stays there."""
    first, last = line
    amount = arriving * ITERATION_SECONDS / PIECES
    return [(max(0.0, first + (last - first) * (at + 0.5) / PIECES), amount) for at in range(PIECES)]


def percentile_of_bytes(samples: Sequence[tuple[float, float]], share: float) -> float:
    """Latency that this share of the data does not exceed; 0.0 of nothing."""
    left = math.fsum(size for _, size in samples) * share
    for latency, size in sorted(samples):
        left -= size
        if left <= 1e-9:
            return latency
    return 0.0
