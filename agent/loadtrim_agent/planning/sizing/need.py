"""How many replicas a load asks for: the pool for the work, and more where whole partitions divide badly.

The group is sized as one server of n members' capacity, because handoffs of milliseconds let partitions be passed on.
For every window length, what arrives in it, one standard deviation and what waits must fit: the group has the window
plus the objective to do it. Then whole partitions are dealt out over that many members, longest first.
Further replicas are asked for as long as they bring enough work into time.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..explain import format_list
from ..forecast import dispersion_of
from ..placement.problem import WINDOW_MIN_SHARE, Item, objective_of, windows_of
from ..queueing import capacity_in_time
from ..values import TAUS_SECONDS, PartitionEstimate
from .policy import View

__all__ = ["STAY", "Need", "divided", "explain", "misfit", "needed", "number", "pool_of"]

RATE_SHARE = 0.98
"""Of the capacity that the mean rate may take. Chosen."""
STAY = 1.015
"""A group is left as it is up to this much above what a new one would be sized for: a mean rate of 0.995 of the
capacity. Else the noise of the measurement would scale it. What builds up meanwhile is seen as backlog."""
BACKLOG_SECONDS = 30.0
BACKLOG_OBJECTIVES = 6.0
"""A persistent backlog is worked off within this time, or this many times the objective. Chosen."""
SOON_SECONDS = 10.0
SOON_STARTUPS = 3.0
"""Overdue work is worked off within this time, or this many times the start-up time, where a doubled group can. Else
the configured time counts. Chosen."""
SOON_OF_SECONDS = 300.0
"""Overdue work may also take as long as the share permits of this time. Chosen."""
CHANCE = math.inf
"""Window that binds where the queue of records that come by chance does."""
IN_HAND_TOLD = 0.1
"""Share of the objective that a record in hand may take before a decision tells so. Chosen."""
CAPACITY_ERROR_TOLD = 0.1
"""Share of their capacity that members may well give less before a decision tells so. Chosen."""
BENEFIT_REACH = 3
"""So many more replicas are looked at together: one alone may bring nothing where two do. Chosen."""


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """How many replicas a load asks for, and what binds."""

    level: float
    """The load, work per second."""
    replicas: int
    pool: int
    """What the work alone asks for, without looking at partitions."""
    required: float
    """Capacity, work per second."""
    tau_seconds: float | None
    """Window that binds; None: the mean rate; :data:`CHANCE`."""
    late: float
    """Work per second that is late even so, because whole partitions do not divide better."""
    late_pool: float
    """The same with ``pool`` replicas."""
    at_max: bool = False


def needed(view: View, level: float, error: float = 0.0, slack: float = 1.0, benefit: float = 0.0) -> Need:
    """The fewest replicas for arrivals of ``level`` work per second.

    Args:
        view: of the group.
        level: work per second.
        error: its standard error, to be kept free.
        slack: so many times their capacity may be asked for.
        benefit: what a replica must bring for the placement's sake.

    Cost: O(p log p) per number that is looked at.
    """
    pool, required, tau = pool_of(view, level, error, slack)
    total = view.columns.total
    factor = level / total if total > 0 else 0.0
    replicas, late = divided(view, pool, factor, benefit)
    return Need(
        level=level,
        replicas=replicas,
        pool=pool,
        required=required,
        tau_seconds=tau,
        late=late,
        late_pool=view.late(pool, factor) if total > 0 else 0.0,
        at_max=pool == view.replicas_max and view.capacity(pool) * slack < required,
    )


def pool_of(view: View, level: float, error: float, slack: float) -> tuple[int, float, float | None]:
    """The fewest replicas that have the capacity for the group's work, how much it is, and the window that binds."""
    required, tau = _required(view, level, error)
    # Each one more has more capacity, so the fewest are found by halving.
    numbers = range(1, view.replicas_max)
    pool = 1 + bisect_left(numbers, x=True, key=lambda number: view.capacity(number) * slack >= required)
    return max(pool, view.replicas_min), required, tau


def _required(view: View, level: float, error: float) -> tuple[float, float | None]:
    """Capacity that the work curve and the mean rate ask for, and the window that binds."""
    estimate, config = view.estimate, view.config
    unsplittable = view.columns.unsplittable
    total = view.columns.total
    factor = level / total if total > 0 else 1.0
    fastest = max((member.capacity for member in estimate.members.values()), default=1.0)
    objective = objective_of(estimate, config)
    slowly = max(BACKLOG_SECONDS, BACKLOG_OBJECTIVES * config.sla_seconds)
    stuck = [
        _Stuck.of(item, estimate.partitions[item.partition], fastest - item.work * factor) for item in unsplittable
    ]
    backlog = max(0.0, estimate.backlog - sum(each.beyond(each.backlog, slowly) for each in stuck))
    rate = level + error + backlog / slowly + _catching_up(view, level, stuck)
    beyond = sum(max(0.0, item.work * factor - fastest) for item in unsplittable)
    rate -= beyond
    best, binding = rate / RATE_SHARE, None
    windows = windows_of(objective, estimate.overhead_seconds)
    for index, (tau, window) in enumerate(zip(TAUS_SECONDS, windows, strict=True)):
        mean, stddev = level * estimate.curve.mean[index], level * estimate.curve.stddev[index]
        work = estimate.backlog + mean + config.z * math.sqrt(stddev * stddev + mean * estimate.dispersion)
        # What exceeds one member in a single partition is late whatever the number of members: not to be answered.
        able = fastest * (tau + objective)
        work -= sum(max(0.0, item.persistent_backlog + item.mean[index] * factor - able) for item in unsplittable)
        if work / window > best:
            best, binding = work / window, tau
    seconds = objective - _in_hand(view)
    able_level = max(0.0, level - beyond)
    queue = capacity_in_time(able_level, dispersion_of(estimate, objective), seconds, 1.0 - config.sla_share)
    return (queue, CHANCE) if queue > best else (best, binding)


def _in_hand(view: View) -> float:
    """Return what a record in hand takes of the objective, seconds."""
    estimate, longest = view.estimate, (1.0 - WINDOW_MIN_SHARE) * view.config.sla_seconds
    return min(estimate.in_hand_seconds, estimate.overhead_seconds, longest)


class _Stuck(NamedTuple):
    """A partition that is too large for one member: so much of what waits there as its owner has no time for stays.

    However many replicas there are, one of them has it. What waits grows for as long as it comes, and would ask for one
    more replica after the other.
    """

    spare: float
    """Capacity that its owner, the fastest, has beside what arrives."""
    backlog: float
    late: float

    @classmethod
    def of(cls, item: Item, entry: PartitionEstimate, spare: float) -> _Stuck:
        return cls(spare=max(0.0, spare), backlog=item.persistent_backlog, late=entry.late)

    def beyond(self, work: float, seconds: float) -> float:
        """Return how much of this work it cannot do within these seconds."""
        return max(0.0, work - self.spare * seconds)


def _catching_up(view: View, level: float, stuck: Sequence[_Stuck]) -> float:
    """Capacity to work off what is already late, but for what no replica can.

    Partitions are read in order, so everything behind late work is late as well, for as long as there is any. To work
    it off takes the same replica-time soon or slowly, as long as the replicas stay for longer than they take to start.
    So it is done as soon as that allows. The configured time is the longest: it binds where the backlog would take more
    than twice the group.
    """
    estimate, config = view.estimate, view.config
    permitted = (1.0 - config.sla_share) * SOON_OF_SECONDS
    soon = max(SOON_SECONDS, SOON_STARTUPS * estimate.startup_seconds, permitted)

    def late(seconds: float) -> float:
        return max(0.0, estimate.late - sum(each.beyond(each.late, seconds) for each in stuck))

    least = late(config.catchup_seconds) / config.catchup_seconds
    # Where none is in time whatever is done, nothing behind late work is made late by it.
    return least if objective_of(estimate, config) > config.sla_seconds else max(least, min(late(soon) / soon, level))


def divided(view: View, pool: int, factor: float, benefit: float) -> tuple[int, float]:
    """Return ``pool`` or more replicas, as long as more bring enough work into time, and what is late with them.

    Args:
        view: of the group.
        pool: what the work alone asks for.
        factor: so many times the present load; 0 where there is none.
        benefit: what a replica must bring, as a share of its capacity.
    """
    if factor <= 0.0:
        return pool, 0.0
    replicas, late = pool, view.late(pool, factor)
    # What is late at all is the most that more replicas can bring.
    while late > 1e-9 and late >= benefit * (view.capacity(replicas + 1) - view.capacity(replicas)):
        best: tuple[float, int, float] | None = None
        for more in range(replicas + 1, min(replicas + BENEFIT_REACH, view.replicas_max) + 1):
            price = benefit * (view.capacity(more) - view.capacity(replicas))
            if late - price < 0.0 or (best is not None and late - price <= best[0]):
                continue  # not worth it even if nothing is late with so many, which takes long to find out
            other = view.late(more, factor)
            worth = late - other - price
            if late - other > 1e-9 and worth >= 0 and (best is None or worth > best[0]):
                best = (worth, more, other)
        if best is None:
            break
        _, replicas, late = best
    return replicas, late


def misfit(view: View, need: Need, replicas: int) -> str:
    if need.pool > replicas:
        return f"gives {number(view.capacity(replicas))} of the {number(need.required)} busy seconds/s that are needed"
    return "whole partitions do not divide well over them"


def explain(view: View, need: Need) -> str:
    """What comes, what it takes, and what replicas cannot help."""
    ahead, objective = view.forecast, view.config.sla_seconds
    in_time = objective_of(view.estimate, view.config) == objective
    text = f"{number(ahead.arriving)} busy seconds/s arrive"
    if ahead.counted_share < 1.0:
        text += f", {number(ahead.level)} of them count until they have lasted"
    if ahead.ahead > ahead.level * 1.005:
        text += f", {number(ahead.ahead)} expected in {ahead.horizon_seconds:.1f} s"
        text += " by the baseline" if ahead.source == "baseline" else ""
    text += f"; {_aim(view, need) if in_time else 'to keep up'} takes {number(need.required)}"
    if not in_time:
        takes = f"a record takes {_seconds(view.estimate.cost)} s"
        text += f"; {takes}, so none is done within {objective:g} s, whatever is there"
    # What is late is late of the load that this is made for, which may be one that is expected.
    level, permitted, late = max(need.level, 1e-9), 1.0 - view.config.sla_share, "late" if in_time else "left behind"
    if need.replicas > need.pool:
        text += (
            f"; with {need.pool} about {_percent(need.late_pool / level)} would be {late}, because whole partitions "
        )
        text += f"divide badly, and the share permits {_percent(permitted)} over time"
    if need.at_max:
        text += f"; no more than {view.replicas_max} are allowed or have a partition"
    elif need.late > permitted * level and not view.estimate.slicing:
        text += f"; about {_percent(need.late / level)} will be {late}, because whole partitions divide badly"
    if wrong := [member for member in view.estimate.members.values() if member.told is not None]:
        did = sum(member.did for member in wrong)
        could = sum(member.did * (member.told or 0.0) / member.capacity for member in wrong)
        who = f"{len(wrong)} member{'s' if len(wrong) != 1 else ''}"
        text += f"; {who} fell behind and did {number(did)} of the {number(could)} records/s that were expected"
        text += ", so what was seen counts"
    able, error = sum(member.capacity for member in view.estimate.members.values()), view.estimate.capacity_error
    if error > CAPACITY_ERROR_TOLD * able:
        text += f"; what the members can give, {number(able)}, may well be {_percent(error / able)} less"
    unsplittable = [str(item.partition) for item in view.columns.unsplittable]
    if unsplittable and in_time:
        text += f"; too large for one member, so replicas cannot help: {format_list(unsplittable)}"
    return text


def _aim(view: View, need: Need) -> str:
    """Return what binds, in words: "to do a burst within 0.5 s"."""
    objective, in_hand = view.config.sla_seconds, view.estimate.in_hand_seconds
    within = f"{objective:g} s"
    if in_hand > IN_HAND_TOLD * objective:
        within += f", of which a record is in hand for {_seconds(in_hand)} s,"
    if need.tau_seconds is None:
        return "to keep up"
    if need.tau_seconds == CHANCE:
        return f"to do what comes together by chance within {within}"
    if need.tau_seconds == 0:
        return f"to do a burst within {within}"
    return f"to do what comes in {need.tau_seconds:g} s within {within}"


def _seconds(value: float) -> str:
    """Return a time to two digits, without a power of ten: "0.12", "120"."""
    return f"{float(f'{value:.2g}'):g}"


def _percent(share: float) -> str:
    """Of 0 .. 1: "12 %", "0.1 %"."""
    return f"{min(share, 1.0):.1%}".replace(".0%", "%").replace("%", " %")


def number(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"
