"""From the estimate to what policies and packers are given."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import msgspec
from msgspec import structs

from loadtrim_agent.common.member_names import member_names
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.pauses import in_turns, may_pause

from .placement.columns import Columns
from .placement.lateness import LongestFirst, Whole
from .placement.problem import Bin, Item, Limits, Packer, Problem, expected_by, limits_of
from .pods import place_in_line, workload_beside
from .sizing.policy import Future, View
from .values import (
    TAUS_SECONDS,
    Estimate,
    Forecast,
    GroupState,
    PartitionEstimate,
    PlanConfig,
    Sizing,
    Unit,
    units_of,
)

__all__ = ["DecisionInput", "most_replicas", "problem_of", "unmeasured", "view_of"]


class DecisionInput(msgspec.Struct, frozen=True):
    """What policy and packer of one decision look at alike."""

    columns: Columns
    """Of every partition, sorted; unsized ones weigh nothing."""
    bins: tuple[Bin, ...]
    """The members, sorted."""

    @classmethod
    def of(cls, estimate: Estimate, group: GroupState, config: PlanConfig, level: float) -> DecisionInput:
        """Return what a decision looks at; ``level``: of the forecast. Cost: ``O(p + m)``."""
        return cls(Columns(_items(estimate, group, config, level)), _bins(group, estimate))

    @property
    def items(self) -> tuple[Item, ...]:
        return self.columns.items


def problem_of(
    group: GroupState,
    estimate: Estimate,
    inputs: DecisionInput,
    sizing: Sizing,
    config: PlanConfig,
    resting: frozenset[Partition] = frozenset(),
) -> Problem:
    """What a packer is to solve; how many replicas may stay is the caller's to say.

    Args:
        group: as it is.
        estimate: the estimate.
        inputs: of this group and estimate.
        sizing: the policy's answer.
        config: of the planner.
        resting: partitions that are to stay, because moving them has just failed.
    """
    items = inputs.items
    if resting:
        items = tuple(structs.replace(item, movable=False) if item.partition in resting else item for item in items)
    return Problem(
        items=items,
        bins=inputs.bins,
        limits=limits_of(estimate, config, sizing.load_factor),
        numbered=config.numbered,
        templated=config.templated,
        leader=group.leader,
        may_move=sizing.place,
        fill=sizing.fill,
        extra_lag_seconds=sizing.extra_lag_seconds,
        lag=sizing.lag,
        mu=config.parameters.get("mu"),
        drawn_up=inputs.columns,
    )


def unmeasured(group: GroupState, resting: frozenset[Partition] = frozenset()) -> Problem:
    """What a packer that looks at counts only is to solve while no load is known.

    Args:
        group: as it is.
        resting: as in :func:`problem_of`.
    """
    return Problem(
        items=tuple(
            Item(
                partition=partition,
                owner=group.in_flight.get(partition, owner),
                movable=partition not in group.in_flight and partition not in resting,
            )
            for partition, owner in sorted(group.owners.items())
        ),
        bins=_bins(group),
        leader=group.leader,
    )


def most_replicas(group: GroupState, config: PlanConfig) -> int:
    """Return the most replicas that a plan may ask for: of more instances than partitions some would own nothing."""
    per_unit = _members_per_unit([unit for unit in units_of(group) if not unit.leaving])
    useful = max(1, -(-len(group.owners) // per_unit))
    return max(1, min(useful, config.max_replicas if config.max_replicas is not None else useful))


def _members_per_unit(units: Sequence[Unit]) -> int:
    return max(1, round(sum(len(unit.members) for unit in units) / len(units))) if units else 1


def view_of(
    now: float,
    group: GroupState,
    estimate: Estimate,
    inputs: DecisionInput,
    ahead: Forecast,
    config: PlanConfig,
    packer: Packer,
    future: Future | None = None,
) -> View:
    """Return what a policy is given, without its memory; ``inputs``: of this group and estimate."""
    units = [unit for unit in units_of(group) if not unit.leaving]
    per_unit, replicas_max = _members_per_unit(units), most_replicas(group, config)
    items = tuple([item for item in inputs.items if estimate.partitions[item.partition].sized])
    may_pause()
    capacities = _Capacities(_by_unit(units, estimate, config), [estimate.capacity_typical] * per_unit)
    columns = inputs.columns if len(items) == len(inputs.items) else Columns(items)
    items = columns.items
    whole = Whole(columns)

    @cache
    def expected() -> Limits:
        return expected_by(limits_of(estimate, config), estimate, config)

    @cache
    def limits_at(factor: float) -> Limits:
        return structs.replace(expected(), load_factor=factor)

    @cache
    def longest_first_at(factor: float) -> LongestFirst:
        return LongestFirst(items, limits_at(factor), columns)

    @cache
    def late_of(replicas: int, factor: float) -> float:
        each = capacities.each(replicas)
        if each and whole.in_time(limits_at(factor), min(each)):
            return 0.0  # a group with little to do is not dealt out at all
        return longest_first_at(factor).late(each)

    return View(
        now=now,
        config=config,
        estimate=estimate,
        forecast=ahead,
        generation=group.generation,
        packer=packer,
        future=future,
        columns=columns,
        replicas=max(1, len(units)),
        members_per_replica=per_unit,
        replicas_max=replicas_max,
        capacity=capacities.total,
        late=late_of,
        longest_first=longest_first_at,
        supply=(
            *(entry for entry in inputs.bins if entry.unit and not entry.leaving),
            *_added(max(0, replicas_max - len(units)), per_unit, estimate.capacity_typical),
        ),
    )


class _Capacities:
    """Hold capacities of members of any number of instances: those that would stay, then typical ones."""

    def __init__(self, units: Sequence[Sequence[float]], typical: Sequence[float]) -> None:
        self._typical = typical
        self._each: list[float] = []
        self._until = [0]
        """Members of so many instances."""
        self._sums = [0.0]
        """Capacity of so many members."""
        for unit in units:
            self._add(unit)

    def _add(self, unit: Sequence[float]) -> None:
        for capacity in unit:
            self._each.append(capacity)
            self._sums.append(self._sums[-1] + capacity)
        self._until.append(len(self._each))

    def _count(self, replicas: int) -> int:
        while len(self._until) <= replicas:
            self._add(self._typical)
        return self._until[replicas]

    def each(self, replicas: int) -> list[float]:
        """Return that of each member of so many instances."""
        return self._each[: self._count(replicas)]

    def total(self, replicas: int) -> float:
        """Return that of them all."""
        return self._sums[self._count(replicas)]


@lru_cache(maxsize=4)  # the same for nearly every decision
def _added(units: int, per_unit: int, capacity: float) -> tuple[Bin, ...]:
    """Members of instances that are not there yet. No member id of Kafka begins with a plus."""
    return tuple(
        Bin(member=f"+{unit:05}-{number}", unit=f"+{unit:05}", capacity=capacity)
        for unit in range(units)
        for number in range(per_unit)
    )


def _by_unit(units: list[Unit], estimate: Estimate, config: PlanConfig) -> list[list[float]]:
    """Capacities of the members of each instance, in the order in which instances stay (:mod:`.placement.victims`)."""
    staying = [
        (
            place_in_line(unit.instance, config.numbered),
            not workload_beside(unit.instance, config.templated),
            [estimate.members[member].capacity for member in unit.members],
        )
        for unit in units
    ]
    return [capacities for *_, capacities in sorted(staying, key=lambda entry: (*entry[:2], -sum(entry[2])))]


def _bins(group: GroupState, estimate: Estimate | None = None) -> tuple[Bin, ...]:
    """The members; without an estimate all are alike."""
    names = member_names(group.instances)
    return tuple(
        Bin(
            member=member,
            unit="" if state.instance is None else state.instance or member,
            capacity=estimate.members[member].capacity if estimate is not None else 1.0,
            topics=state.topics,
            leaving=state.leaving,
            silent=estimate is not None and estimate.members[member].silent,
            name=names[member],
        )
        for member, state in sorted(group.members.items())
    )


def _items(estimate: Estimate, group: GroupState, config: PlanConfig, level: float) -> tuple[Item, ...]:
    """Partitions as the packers want them; unsized ones weigh nothing."""
    fastest = max((member.capacity for member in estimate.members.values()), default=1.0)
    total = sum(entry.work for entry in estimate.partitions.values())
    # What partitions get is what came in the last seconds. Of few records that is by chance far from what comes.
    factor = level / total if total > 0.0 else 1.0
    return tuple(
        Item(
            partition=partition,
            owner=entry.owner,
            work=entry.work,
            mean=entry.curve.mean,
            stddev=entry.curve.stddev,
            persistent_backlog=entry.persistent_backlog,
            queue=entry.lag * entry.cost,
            rate=entry.rate if entry.sized else 0.0,
            lag=entry.lag if entry.sized else 0,
            lag_low=entry.lag_low if entry.sized else 0,
            lag_high=entry.lag_high if entry.sized else 0,
            cost=entry.cost,
            unsplittable=_is_unsplittable(entry, factor, fastest, config),
            # A pause is its owner's own: it would be lost on the way.
            movable=entry.sized and partition not in group.in_flight,
        )
        for partition, entry in in_turns(sorted(estimate.partitions.items()))
    )


def _is_unsplittable(entry: PartitionEstimate, factor: float, fastest: float, config: PlanConfig) -> bool:
    """Return whether so many times its load is more than one member can do in time, whoever it is."""
    if not entry.sized or entry.work <= 0.0:
        return False
    waits, means = entry.persistent_backlog, entry.curve.mean
    if entry.work * factor <= fastest and waits + max(means) * factor <= fastest * config.sla_seconds:
        return False  # most are: all that comes in the longest window is done within the objective alone
    return entry.work * factor > fastest or any(
        waits + mean * factor > fastest * (tau + config.sla_seconds)
        for tau, mean in zip(TAUS_SECONDS, means, strict=True)
    )
