"""Least-load first-fit decreasing in two dimensions, lag and rate, as the papers pack.

Source: ICCBDC'22 (*An Autoscaler for Event-Driven Microservices*), section 4, and CLOSER'24 (*Tail-Latency Aware and
Resource-Efficient Bin Pack Autoscaling for Distributed Event Queues*), section 3, in the form their authors ran: an
item larger than a bin is cut to the bin's size first, so that packing always succeeds; ties go to the first bin; the
k-th bin goes to the k-th member (not sticky).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...model import Partition
from ..values import Placement
from .problem import Item, Problem
from .spread import spread
from .sticky import placement
from .victims import going

__all__ = ["BinSize", "LeastLoaded", "bin_size", "least_loaded"]


@dataclass(frozen=True, slots=True)
class BinSize:
    """What one member can take."""

    rate: float
    """Records/s: mu x f."""
    lag: int
    """Records: mu x W x f, rounded down."""


def bin_size(
    items: Sequence[Item], capacity: float, objective_seconds: float, fill: float, mu: float | None = None
) -> BinSize:
    """What a member of this capacity takes.

    Args:
        items: partitions with rate and cost.
        capacity: work per second.
        objective_seconds: W.
        fill: f, the share of a member that may be filled.
        mu: records/s that a member can do; None: measured, its capacity over the mean cost of the records that
            arrive. No cost known: bins without bounds.
    """
    if mu is None:
        costs = [item.cost for item in items if item.cost > 0]
        if not costs:
            return BinSize(math.inf, 2**62)
        rate = sum(item.rate for item in items)
        cost = sum(item.cost * item.rate for item in items) / rate if rate > 0 else 0.0
        mu = capacity / (cost if cost > 0 else sum(costs) / len(costs))
    return BinSize(mu * fill, math.floor(mu * objective_seconds * fill))


def least_loaded(
    items: Sequence[Item], size: BinSize, extra_lag_seconds: float = 0.0, bins: int = 1, bins_max: int | None = None
) -> list[list[Partition]]:
    """Pack by rate descending; each onto the bin with most rate left that takes it; none: one more bin, start anew.

    Args:
        items: partitions with rate (records/s) and lag (records).
        size: of every bin.
        extra_lag_seconds: plan for the lag that a rebalance of this length adds: lag + rate x this.
        bins: how many to start with.
        bins_max: with this many what fits nowhere goes to the bin with most rate left.

    Returns:
        Per bin its partitions, in the order they were placed.

    Cost: ``O(b p n)`` for b restarts.
    """
    last = len(items) if bins_max is None else bins_max
    order = sorted(items, key=lambda item: (-item.rate, item.partition))
    while True:
        result = _try(order, size, extra_lag_seconds, bins, force=bins >= max(last, 1))
        if result is not None:
            return result
        bins += 1


def _try(
    order: Sequence[Item], size: BinSize, extra_lag_seconds: float, bins: int, *, force: bool
) -> list[list[Partition]] | None:
    rate_left = [size.rate] * bins
    lag_left: list[float] = [float(size.lag)] * bins
    packed: list[list[Partition]] = [[] for _ in range(bins)]
    for item in order:
        rate = min(item.rate, size.rate)
        lag = min(item.lag + item.rate * extra_lag_seconds, float(size.lag))
        fits = [index for index in range(bins) if rate_left[index] >= rate and lag_left[index] >= lag]
        if not fits and not force:
            return None
        index = max(fits or range(bins), key=lambda index: (rate_left[index], -index))
        packed[index].append(item.partition)
        rate_left[index] -= rate
        lag_left[index] -= lag
    return packed


class LeastLoaded:
    """The packer ``least_loaded``."""

    name = "least_loaded"
    parameters = frozenset({"mu"})

    def pack(self, problem: Problem) -> Placement:
        """See :class:`.problem.Packer`; a topic that the k-th member does not subscribe goes to one that does."""
        victims = going(problem)
        receivers = [b for b in problem.bins if not b.leaving and b.member not in victims]
        members = {
            b.member: frozenset(i.partition.topic for i in problem.items if b.may_own(i.partition)) for b in receivers
        }
        owners = {
            item.partition: item.owner
            for item in problem.items
            if item.owner in members and item.partition.topic in members[item.owner]
        }
        if receivers and problem.may_move:
            capacity = sorted(b.capacity for b in receivers)[len(receivers) // 2]
            mu = problem.parameters.get("mu")
            size = bin_size(problem.items, capacity, problem.limits.objective_seconds, problem.fill, mu)
            items = [replace(item, lag=item.lag_high) for item in problem.items]
            packed = least_loaded(items, size, problem.extra_lag_seconds, 1, len(receivers))
            fixed = {item.partition for item in problem.items if not item.movable and item.partition in owners}
            for entry, partitions in zip(receivers, packed, strict=False):
                for partition in partitions:
                    if entry.may_own(partition) and partition not in fixed:
                        owners[partition] = entry.member
        unclaimed = [item.partition for item in problem.items if item.partition not in owners]
        owners |= spread(unclaimed, members, owners, {item.partition: item.rate for item in problem.items})
        return placement(problem, owners, victims, "packed anew")
