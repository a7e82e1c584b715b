"""Least-load first-fit decreasing in two dimensions, lag and rate: as published, and as the papers' authors ran it.

Partitions by rate, largest first; each onto the bin with the most rate left of those that take its lag and its rate;
when none does, one more bin, and everything anew over the larger set, so that all bins are loaded evenly. The k-th bin
is the k-th member's (not sticky); ties go to the first bin.

* ``iccbdc22``         as published: a bin takes ``mu`` and ``mu x W``; a lag above that counts as that.
* ``iccbdc22_as_run``  one pass of plain first-fit decreasing says how many; then the partitions are dealt out, largest
  rate first, to the member with the fewest, then the lowest rate, then the first.
* ``closer24``         as published: a bin takes ``mu x f`` and ``mu x W x f``.
* ``closer24_as_run``  the same, the lag rounded down to whole records. ``least_loaded`` is another name for it.

As published, a partition with a rate above a bin's would be tried for ever: here it counts as the bin's size in both
dimensions, as it did in the runs, so that packing always ends. ``mu`` (records/s of a member; the papers' set-ups:
100 nominal and 95 as run in ICCBDC'22, 200 in CLOSER'24) is measured unless the parameter says it: capacity over the
mean cost of a record.

Unlike members, of which the papers do not tell: each bin is as large as its member, so that the least loaded is the one
with the most room, and a ``mu`` that is given is that of the median member. ``iccbdc22_as_run`` knows members of one
size only: it counts bins of the median member and deals by count, so that a small one may get more than it can do (as
may, in the authors' runs, any).

Source: ICCBDC'22 (*Cost-Efficient and Latency-Aware Event Consuming in Workload-Skewed Distributed Event Queues*),
section 4 and appendix; CLOSER'24 (*Tail-Latency Aware and Resource-Efficient Bin Pack Autoscaling for Distributed Event
Queues*), section 3; Ajiro and Tanaka, *Improving packing algorithms for server consolidation*, 2007.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from msgspec import structs

from loadtrim_agent.common.assignors.spread import spread
from loadtrim_agent.common.partition import Partition

from ...parameters import Mu, Parameters
from ...placement.bounds import bound_of
from ...placement.problem import Bin, Item, Problem
from ...placement.result import placement
from ...placement.victims import going
from ...values import LagMoment, Placement

__all__ = [
    "LEAST_LOADED",
    "BinSize",
    "LeastLoaded",
    "bin_size",
    "dealt_by_count",
    "first_fit",
    "least_loaded",
    "with_lag",
]


class BinSize(msgspec.Struct, frozen=True):
    """What one member can take."""

    rate: float
    """Records/s: mu x f."""
    lag: float
    """Records: mu x W x f, rounded down where the authors did."""


class _Form(msgspec.Struct, frozen=True):
    """How one of the papers packs."""

    filled: bool
    """Bins are only filled up to the policy's share f."""
    whole_lag: bool
    restarts: bool
    """False: one pass of first-fit decreasing, and dealt out by count."""


LEAST_LOADED = {
    "iccbdc22": _Form(filled=False, whole_lag=False, restarts=True),
    "iccbdc22_as_run": _Form(filled=False, whole_lag=False, restarts=False),
    "closer24": _Form(filled=True, whole_lag=False, restarts=True),
    "closer24_as_run": _Form(filled=True, whole_lag=True, restarts=True),
    "least_loaded": _Form(filled=True, whole_lag=True, restarts=True),
}


def bin_size(
    items: Sequence[Item],
    capacity: float,
    objective_seconds: float,
    fill: float,
    mu: float | None = None,
    *,
    whole_lag: bool = True,
) -> BinSize:
    """What a member of this capacity takes.

    Args:
        items: partitions with rate and cost.
        capacity: work per second.
        objective_seconds: W.
        fill: f, the share of a member that may be filled.
        mu: records/s that a member can do; None: measured, its capacity over the mean cost of the records that
            arrive. No cost known: bins without bounds.
        whole_lag: round the lag down to whole records.
    """
    if mu is None:
        cost = _mean_cost(items)
        if cost is None:
            return BinSize(math.inf, 2**62)
        mu = capacity / cost
    lag = mu * objective_seconds * fill
    return BinSize(mu * fill, math.floor(lag) if whole_lag else lag)


def _mean_cost(items: Sequence[Item]) -> float | None:
    """Of the records that arrive; None: no cost is known."""
    costs = [item.cost for item in items if item.cost > 0]
    if not costs:
        return None
    rate = sum(item.rate for item in items)
    cost = sum(item.cost * item.rate for item in items) / rate if rate > 0 else 0.0
    return cost if cost > 0 else sum(costs) / len(costs)


def with_lag(items: Sequence[Item], moment: LagMoment) -> list[Item]:
    """Return the items with the lag of this moment as their lag."""
    if moment is LagMoment.REPORTED:
        return [*items]
    return [structs.replace(item, lag=getattr(item, moment.value)) for item in items]


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
    return _restarted(_sized(items, size, extra_lag_seconds), [size] * max(bins, last), bins)


def first_fit(items: Sequence[Item], size: BinSize, extra_lag_seconds: float = 0.0) -> int:
    """How many bins one pass of plain first-fit decreasing opens, at least 1."""
    room: list[tuple[float, float]] = [(size.rate, size.lag)]
    for rate, lag, _ in _sized(items, size, extra_lag_seconds):
        for index, (rate_left, lag_left) in enumerate(room):
            if rate_left >= rate and lag_left >= lag:
                room[index] = (rate_left - rate, lag_left - lag)
                break
        else:
            room.append((size.rate - rate, size.lag - lag))
    return len(room)


def dealt_by_count(items: Sequence[Item], bins: int) -> list[list[Partition]]:
    """Largest rate first to the bin with the fewest partitions, then the lowest rate, then the first."""
    packed: list[list[Partition]] = [[] for _ in range(bins)]
    rates = [0.0] * bins
    for item in sorted(items, key=lambda item: (-item.rate, item.partition)):
        index = min(range(bins), key=lambda index: (len(packed[index]), rates[index], index))
        packed[index].append(item.partition)
        rates[index] += item.rate
    return packed


def _sized(items: Sequence[Item], size: BinSize, extra_lag_seconds: float) -> list[tuple[float, float, Partition]]:
    """Rate and lag of each, cut to a bin; the largest uncut rate first."""
    return [
        (min(item.rate, size.rate), min(item.lag + item.rate * extra_lag_seconds, size.lag), item.partition)
        for item in sorted(items, key=lambda item: (-item.rate, item.partition))
    ]


def _restarted(
    sized: Sequence[tuple[float, float, Partition]], supply: Sequence[BinSize], bins: int = 1
) -> list[list[Partition]]:
    """Onto the first bins of a supply, with one more each time until all fit; onto all of them whether they fit or not.

    Args:
        sized: rate, lag, partition, in the order of packing.
        supply: at least one.
        bins: how many to start with.
    """
    while (packed := _try(sized, supply[:bins], force=bins >= len(supply))) is None:
        bins += 1
    return packed


def _try(
    sized: Sequence[tuple[float, float, Partition]], bins: Sequence[BinSize], *, force: bool
) -> list[list[Partition]] | None:
    rate_left = [size.rate for size in bins]
    lag_left = [float(size.lag) for size in bins]
    packed: list[list[Partition]] = [[] for _ in bins]
    for rate, lag, partition in sized:
        fits = [index for index in range(len(bins)) if rate_left[index] >= rate and lag_left[index] >= lag]
        if not fits and not force:
            return None
        index = max(fits or range(len(bins)), key=lambda index: (rate_left[index], -index))
        packed[index].append(partition)
        rate_left[index] -= rate
        lag_left[index] -= lag
    return packed


class LeastLoadedParameters(Parameters, frozen=True, kw_only=True):
    """The papers' one constant, measured where it is not given."""

    mu: Mu | None = None


class LeastLoaded:
    """One of :data:`LEAST_LOADED`."""

    kind = LeastLoadedParameters

    def __init__(self, name: str, given: LeastLoadedParameters | None = None) -> None:
        self.name = name
        self._form = LEAST_LOADED[name]
        self._mu = (given or LeastLoadedParameters()).mu

    def pack(self, problem: Problem) -> Placement:
        """See :class:`...placement.problem.Packer`; a topic that the k-th member does not subscribe goes to one that
        does."""
        opened, bound = self._packed(problem, problem.staying)
        # The first bins of the supply are filled, so of those that may go the ones behind them go first.
        units = sorted({entry.unit for entry, held in zip(problem.staying, opened, strict=False) if held})
        victims = going(problem, units)
        receivers = [entry for entry in problem.staying if entry.member not in victims]
        if len(receivers) < len(problem.staying):
            opened, bound = self._packed(problem, receivers)
        members = {
            b.member: frozenset(i.partition.topic for i in problem.items if b.may_own(i.partition)) for b in receivers
        }
        owners = {
            item.partition: item.owner
            for item in problem.items
            if item.owner in members and item.partition.topic in members[item.owner]
        }
        if problem.may_move:
            fixed = {item.partition for item in problem.items if not item.movable and item.partition in owners}
            for entry, partitions in zip(receivers, opened, strict=False):
                for partition in partitions:
                    if entry.takes(partition.topic) and partition not in fixed:
                        owners[partition] = entry.member
        unclaimed = [item.partition for item in problem.items if item.partition not in owners]
        silent = {b.member for b in receivers if b.silent}
        members = {member: topics for member, topics in members.items() if member not in silent}
        owners |= spread(unclaimed, members, owners, {item.partition: item.rate for item in problem.items})
        return placement(problem, owners, victims, f"packed anew by {self.name}", bound=bound)

    def _packed(self, problem: Problem, receivers: Sequence[Bin]) -> tuple[list[list[Partition]], int]:
        """Partitions per receiver, and the fewest bins that could take them. What none may have takes no room."""
        able = problem.onto(receivers).items
        if not able:
            return [], 0
        supply = self._sizes(problem, receivers)
        items = with_lag(able, problem.lag)
        # What is larger than every bin counts as the largest, or it would be tried for ever.
        largest = BinSize(max(size.rate for size in supply), max(size.lag for size in supply))
        sized = _sized(items, largest, problem.extra_lag_seconds)
        if self._form.restarts:
            packed = _restarted(sized, supply)
        else:
            count = min(first_fit(items, supply[0], problem.extra_lag_seconds), len(receivers))
            packed = dealt_by_count(items, count)
        bounds = [1]
        if 0.0 < largest.rate < math.inf:
            bounds.append(bound_of([rate for rate, _, _ in sized], sorted((one.rate for one in supply), reverse=True)))
        if largest.lag > 0 and largest.rate < math.inf:
            lags = sorted((float(one.lag) for one in supply), reverse=True)
            bounds.append(bound_of([lag for _, lag, _ in sized], lags))
        return packed, max(bounds)

    def _sizes(self, problem: Problem, receivers: Sequence[Bin]) -> list[BinSize]:
        """What each receiver takes; as run in ICCBDC'22 all are taken for the median one."""
        form = self._form
        median = sorted(entry.capacity for entry in receivers)[len(receivers) // 2]
        fill = problem.fill if form.filled else 1.0
        mu = self._mu if problem.mu is None else problem.mu
        objective, cost = problem.limits.objective_seconds, _mean_cost(problem.items)
        sizes = []
        for entry in receivers:
            capacity = entry.capacity if form.restarts else median
            measured = None if cost is None else capacity / cost
            its_own = measured if mu is None else mu * (capacity / median)
            sizes.append(bin_size((), capacity, objective, fill, its_own, whole_lag=form.whole_lag))
        return sizes
