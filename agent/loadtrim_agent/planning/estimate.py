"""Second stage: from what was observed to the load of the group, its partitions and what its members can give.

The heart is the *work curve*: how much work arrives in a window of length tau that ends at a record, mean and standard
deviation, counted by records. A record is in time when no such window holds more work than the capacity can do in
``tau + W`` (network calculus: latency is the horizontal distance between arrival and service curve). ``tau -> 0`` is
the lag dimension of the papers, ``tau -> infinity`` their rate dimension; bursts live in between.

Source: J.-Y. Le Boudec, P. Thiran, *Network Calculus*, 2001, section 1.4.
"""

from __future__ import annotations

import itertools
import math
import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import add, mul, sub, truediv

import msgspec

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.pauses import in_turns, may_pause
from loadtrim_agent.wire.telemetry_records import Untold

from .falling_behind import CONTRADICTED_SHARE
from .forecast import alike_seconds
from .in_hand import BATCHES, batch_seconds_of, waiting_shares
from .observation import BUCKET_SECONDS, FAST_SECONDS
from .observed import MemberObservation, Observation, PartitionObservation
from .settling import restoring_seconds
from .shape import cut_of, uncut
from .sliced_group import slicing_of
from .values import (
    TAUS_SECONDS,
    ArrivalCurve,
    Estimate,
    GroupState,
    MemberEstimate,
    NotReady,
    PartitionEstimate,
    PlanConfig,
    Reason,
)

__all__ = ["estimate_of", "late_records", "quantile", "unit_curve"]

SECONDS_MIN = 3
"""Whole seconds of the group's arrivals that must have been measured."""
IDLE_SECONDS = 30
"""A group that got nothing for this long is idle, though nobody knows what a record would cost."""
SERIES_SECONDS_MAX = 120
SHAPE_SECONDS = 60
LEVEL_SECONDS = 15
"""The level that the shape of the load is relative to: the mean of this much time around each slot."""
LEVEL_SECONDS_MIN = 4
"""The same at the ends, where there is less on one side."""
WHOLE_SLOTS = 5
"""Half a second: levels are taken over whole seconds, or bursts of a second would beat with them."""
CHANGE_ERRORS = 4.0
"""A partition's share of the group over the last seconds is believed when it is this many standard errors away from its
share before. Chosen."""
FAST_WINDOW_SECONDS = 2.0 * FAST_SECONDS
"""A mean that forgets knows as much as a plain one over twice its time constant."""
ROOT_SHIFT = 0.375
"""Of a count, so that its root varies alike for few records (Anscombe)."""
SHAPE_JUMP = 1.5
BURST = TAUS_SECONDS.index(0.1)
UNSIZED_STATES = frozenset({"paused", "blocked"})
STARTUP_SAMPLES = 20
ARRIVAL_DELAY_SHARE_MAX = 0.25
"""Of the objective: no more is kept free for what records take to come, for replicas cannot help it. Chosen."""
NOTHING = ArrivalCurve((0.0,) * len(TAUS_SECONDS), (0.0,) * len(TAUS_SECONDS))


class _Inputs(msgspec.Struct, frozen=True):
    """What the estimates of single partitions share."""

    observation: Observation
    group: GroupState
    config: PlanConfig
    members: Mapping[str, MemberEstimate]
    rates: Mapping[Partition, float]
    costs: Mapping[str, float]
    """Work per record, by topic."""
    cost: float
    """Work per record of a topic that nobody has done anything of."""
    shape: ArrivalCurve
    shapes: Mapping[Partition, tuple[float, ...]]
    """Windows of each partition that tells them, with what the edge of a bucket cut away."""


def estimate_of(observation: Observation, group: GroupState, config: PlanConfig) -> Estimate | NotReady:
    """The group's load as one picture.

    Returns:
        The estimate, or NotReady while less than 3 s of arrivals or no cost of a record is known.

    Cost: ``O(p + slots)``: 3 ms for 9 partitions, 15 ms for 1,000.
    """
    series = _series(observation.slots)
    if len(series) < SECONDS_MIN:
        return NotReady(Reason.NOT_READY, f"{len(series)} of {SECONDS_MIN} s of arrivals are measured")
    members = _members(observation, group, config)
    rates = _rates(observation)
    grain = _grain(observation, members, rates)
    costs = _costs(observation, members, rates)
    idle = len(series) >= IDLE_SECONDS and not any(entry.lag for entry in observation.partitions.values())
    if not costs and not (idle and not any(series)):
        return NotReady(Reason.NOT_READY, "no member has done more than a batch that had room, so no cost is known")
    may_pause()
    shape = unit_curve(observation.slots, alike_seconds(series, grain), observation.second_halves)
    inputs = _Inputs(
        observation=observation,
        group=group,
        config=config,
        members=members,
        rates=rates,
        costs=costs,
        cost=statistics.fmean(costs.values()) if costs else 0.0,
        shape=shape,
        shapes=_shapes(observation, rates, shape.mean),
    )
    partitions = {p: _partition(p, inputs) for p in in_turns(sorted(group.owners))}
    return _summed(inputs, series, grain, partitions)


def _summed(
    inputs: _Inputs, series: tuple[float, ...], grain: float, partitions: Mapping[Partition, PartitionEstimate]
) -> Estimate:
    observation, config = inputs.observation, inputs.config
    may_pause()
    sized = [entry for entry in partitions.values() if entry.sized]
    rate, work = sum(entry.rate for entry in sized), sum(entry.work for entry in sized)
    handoff = _or(quantile(observation.handoffs_seconds, 0.99), config.handoff_seconds)
    slicing, unsliced = slicing_of(observation, inputs.group)
    startups = observation.startups_seconds[-STARTUP_SAMPLES:]
    cost = work / rate if rate > 0 else inputs.cost
    waiting, batch = waiting_shares(sized, inputs.members), batch_seconds_of(sized, inputs.members)
    in_hand = cost + BATCHES * batch
    known = [member.capacity for member in inputs.members.values() if member.age_seconds is not None]
    return Estimate(
        at=observation.now,
        series=series,
        curve=inputs.shape,
        correlation=_correlation(sized, inputs.shape, series, observation),
        dispersion=sum(entry.work * entry.dispersion for entry in sized) / work if work > 0 else 0.0,
        chance_share=observation.chance_share,
        partitions=partitions,
        members=inputs.members,
        rate=rate,
        backlog=sum(entry.persistent_backlog * waiting.get(entry.owner or "", 1.0) for entry in sized),
        late=sum(entry.late for entry in sized),
        throughput=sum(entry.done_rate for entry in observation.partitions.values()),
        cost=cost,
        grain=grain,
        in_hand_seconds=in_hand,
        overhead_seconds=_overhead(
            config,
            1.5 * cost
            + BATCHES * batch
            + (_or(quantile(observation.handoffs_seconds, 0.5), 0.0) if slicing else 0.0)
            + _arrival_delay(observation, config),
        ),
        handoff_seconds=handoff,
        restoring_seconds=restoring_seconds(observation.handoffs_seconds, cost + batch),
        slicing=slicing,
        unsliced=unsliced,
        startup_seconds=_or(quantile(startups, 0.9), config.startup_seconds),
        startups=len(startups),
        capacity_typical=statistics.median(known) if known else 1.0,
        stale=tuple(member for member, _ in observation.stale),
        left_out=observation.left_out,
        untold=(untold := _untold(observation, inputs.members)),
        capacity_known=not untold or any(observation.members[member].capacity.known for member in untold),
        capacity_error=_capacity_error(observation, inputs.members),
        kept_out=_kept_out(observation, partitions),
        late_records=observation.late_records,
        past=observation.past,
        opening=observation.opening,
    )


def quantile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least ``share`` of the values do not exceed; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def late_records(lag: int, lag_seconds: float, objective_seconds: float) -> float:
    """Records of a lag that are already late, when their ages spread evenly from the oldest to none."""
    if lag <= 0 or lag_seconds <= objective_seconds:
        return 0.0
    return lag * (1.0 - objective_seconds / lag_seconds)


def _overhead(config: PlanConfig, needed_seconds: float) -> float:
    """o: what the record in hand, the way of a record to its member, and a usual handoff may take off the objective.

    Half of it at most: handoffs that hung must not ask for twice the replicas.
    """
    return min(max(config.handoff_seconds, needed_seconds), config.sla_seconds / 2)


def _arrival_delay(observation: Observation, config: PlanConfig) -> float:
    """Return the age of records when they can be fetched: producers linger, and transactions keep them back."""
    known = [member.arrival_delay for member in observation.members.values() if member.arrival_delay is not None]
    return min(statistics.median(known), ARRIVAL_DELAY_SHARE_MAX * config.sla_seconds) if known else 0.0


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _members(observation: Observation, group: GroupState, config: PlanConfig) -> dict[str, MemberEstimate]:
    """Every member of the group; one whose capacity is not known yet is taken to be like the others.

    Where another one fell behind with less than it said, so is one that never gave more than that.
    """
    known = observation.members
    contradicted = {
        member: seen.busy_seconds / entry.capacity.value
        for member, entry in known.items()
        if (seen := entry.behind) is not None and seen.busy_seconds < CONTRADICTED_SHARE * entry.capacity.value
    }
    others = statistics.median(contradicted.values()) if contradicted else 1.0
    told = {member: entry.capacity.value * entry.speed for member, entry in known.items()}
    believed = {member: _believed(entry, others) for member, entry in known.items()} | contradicted
    able = {member: told[member] * believed[member] for member in known}
    learnt = [able[member] for member, entry in known.items() if entry.capacity.known or member in contradicted]
    typical = statistics.median(learnt or able.values() or [1.0])
    batches = {member: seconds for member, entry in known.items() if (seconds := entry.batch_seconds) is not None}
    # A newcomer takes some batches before it tells.
    others_batch, longest = statistics.fmean(batches.values() or [0.0]), config.sla_seconds / 2
    result = {}
    for member in sorted(group.members):
        entry = known.get(member)
        if entry is None:
            silent = member in observation.silent
            batch = min(others_batch, longest)
            result[member] = MemberEstimate(capacity=typical, silent=silent, batch_seconds=batch)
            continue
        known_here = entry.capacity.known or member in contradicted or not learnt
        capacity = max(able[member], 1e-6) if known_here else typical
        given = capacity / entry.speed * entry.interval_seconds
        result[member] = MemberEstimate(
            capacity=capacity,
            # One that fell behind does all that it can; its capacity is told in what records cost then.
            utilization=min(entry.busy_seconds / given, 1.0 if member in contradicted else math.inf) if given else 0.0,
            speed=entry.speed,
            age_seconds=max(0.0, observation.now - entry.received_at),
            silent=member in observation.silent,
            batch_seconds=min(batches.get(member, 0.0 if entry.capacity.known else others_batch), longest),
            told=told[member] if member in contradicted else None,
            did=entry.behind.records if entry.behind is not None else 0.0,
            has_begun=member in observation.begun,
        )
    return result


def _believed(entry: MemberObservation, others: float) -> float:
    """Return the share of what a member says it can give that is believed, where others gave that share of theirs."""
    return 1.0 if CONTRADICTED_SHARE * entry.shown_busy_seconds > others * entry.capacity.value else others


def _capacity_error(observation: Observation, members: Mapping[str, MemberEstimate]) -> float:
    """Return how much less the members may well give together: what each has learnt errs by itself.

    A guess tells no error here. Members that are never full are healthy, and every decision would speak of it.
    """
    known = (entry for member in members if (entry := observation.members.get(member)) and entry.capacity.known)
    return math.sqrt(sum((entry.capacity.error * entry.speed) ** 2 for entry in known))


def _kept_out(observation: Observation, partitions: Mapping[Partition, PartitionEstimate]) -> dict[Partition, float]:
    """Return the work that comes for partitions that are paused or blocked, of those that get something."""
    rates = {p: observation.partitions[p].rate_slow for p, entry in partitions.items() if not entry.sized}
    return {p: rate * partitions[p].cost for p, rate in rates.items() if rate > 0.0}


def _untold(observation: Observation, members: Mapping[str, MemberEstimate]) -> dict[str, str]:
    """Members of the group whose records are done nobody knows when, and why."""
    known = observation.members
    return {
        member: why
        for member in sorted(members)
        if member in known and (why := known[member].untold) and why != Untold.BRIEFLY
    }


def _series(slots: Sequence[float]) -> tuple[float, ...]:
    """Work per whole second, the last second ending with the last slot."""
    per_second = round(1.0 / BUCKET_SECONDS)
    seconds = min(len(slots) // per_second, SERIES_SECONDS_MAX)
    start = len(slots) - seconds * per_second
    return tuple(sum(slots[index : index + per_second]) for index in range(start, len(slots), per_second))


def unit_curve(slots: Sequence[float], alike: int | None = None, second: Sequence[float] = ()) -> ArrivalCurve:
    """Shape of the load: its work curve at a level of one busy second per second.

    Each window is divided by the mean of the 15 s around it, so that what remains is the load's burstiness and not its
    ups and downs, which the forecast follows. The window of no length is the straight line through the two shortest,
    extended to 0: all of a burst that fits one slot, nothing of an even stream. So that no edge of a slot cuts a burst,
    the shortest window may also begin, or end, in the middle of one.

    Args:
        slots: work per 0.1 s, oldest first.
        alike: so many of the newest seconds are of one kind. What jumped is no burst: levels are taken on one side of
            the jump. None: all are.
        second: what of each slot came in its second half; empty: not known.
    """
    prefix = [0.0, *itertools.accumulate(slots)]
    half, least = round(LEVEL_SECONDS / BUCKET_SECONDS / 2), round(LEVEL_SECONDS_MIN / BUCKET_SECONDS / 2)
    first = max(0, len(slots) - round(SHAPE_SECONDS / BUCKET_SECONDS))
    jump = 0 if alike is None else max(0, len(slots) - round(alike / BUCKET_SECONDS))
    most = _most_around(slots, second) if second else slots
    samples = _Samples(prefix)
    for index in itertools.compress(range(first, len(slots)), slots[first:]):
        begin, end = (jump, len(slots)) if index >= jump else (0, jump)
        # As much before as after, else a rising load would look like bursts at its end.
        reach = half if index - begin >= half <= end - index else max(least, min(index - begin, end - index))
        reach -= reach % WHOLE_SLOTS
        low, high = index - reach, index + reach
        if low < begin or high > end:
            high = min(end, max(high, begin + 2 * reach))
            low = max(begin, high - 2 * reach)
        level = (prefix[high] - prefix[low]) / ((high - low) * BUCKET_SECONDS)
        if level > 0.0:  # else so little that it is lost in the sum of what came before
            samples.add(index, slots[index], most[index], level)
    widths = [tau / BUCKET_SECONDS for tau in TAUS_SECONDS[2:]]
    moments = [samples.shortest(), *(samples.moments(width) for width in (*widths, 2.0))]
    means, sds = _filled(moments[:-1])
    two_slots = moments[-1][0] if moments[-1] else means[0] * 2
    instant = min(max(2.0 * means[0] - two_slots, 0.0), means[0])
    return ArrivalCurve((instant, *means), (sds[0] if instant > 0 else 0.0, *sds))


def _most_around(slots: Sequence[float], second: Sequence[float]) -> list[float]:
    """Return the most that comes in a window as long as a slot that holds half of this one, or all of it."""
    first = [work - later for work, later in zip(slots, second, strict=True)]
    cut = list(map(add, second, first[1:]))  # from the middle of each slot to that of the next
    return list(map(max, slots, [0.0, *cut], [*cut, 0.0]))


class _Samples:
    """Slots with work, and the level around each."""

    def __init__(self, prefix: Sequence[float]) -> None:
        self._prefix = prefix
        self._ends: list[int] = []
        self._until: list[float] = []
        """Work up to each end."""
        self._works: list[float] = []
        self._most: list[float] = []
        """In a window as long as a slot that the edge of none cuts."""
        self._levels: list[float] = []

    def add(self, slot: int, work: float, most: float, level: float) -> None:
        """In order of time."""
        self._ends.append(slot + 1)
        self._until.append(self._prefix[slot + 1])
        self._works.append(work)
        self._most.append(most)
        self._levels.append(level)

    def shortest(self) -> tuple[float, float] | None:
        """Return the same as :meth:`moments` for the windows that no edge of a slot cuts."""
        return _weighted(list(map(truediv, self._most, self._levels)), self._works) if self._works else None

    def moments(self, width: float) -> tuple[float, float] | None:
        """Mean and standard deviation, counted by work, of windows of ``width`` slots relative to the level around
        them. Columns, each in one sweep: this is asked for every window length of every decision."""
        prefix, whole = self._prefix, int(width)
        part = width - whole
        skipped = bisect_left(self._ends, whole + (part > 0))
        starts = [end - whole for end in self._ends[skipped:]]
        if not starts:
            return None
        if part:
            low = [prefix[start] - part * (prefix[start] - prefix[start - 1]) for start in starts]
        else:
            low = [prefix[start] for start in starts]
        values = list(map(truediv, map(sub, self._until[skipped:], low), self._levels[skipped:]))
        return _weighted(values, self._works[skipped:])


def _weighted(values: Sequence[float], works: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation, counted by work."""
    weighted = list(map(mul, works, values))
    weight = sum(works)
    mean = sum(weighted) / weight
    return mean, math.sqrt(max(0.0, sum(map(mul, weighted, values)) / weight - mean * mean))


def _filled(moments: Sequence[tuple[float, float] | None]) -> tuple[list[float], list[float]]:
    """Windows that are longer than the past continue at the mean level."""
    means: list[float] = []
    sds: list[float] = []
    previous = 0.0
    for tau, moment in zip(TAUS_SECONDS[1:], moments, strict=True):
        if moment is None:
            means.append((means[-1] if means else 0.0) + tau - previous)
            sds.append(sds[-1] if sds else 0.0)
        else:
            means.append(moment[0])
            sds.append(moment[1])
        previous = tau
    return means, sds


def _rates(observation: Observation) -> dict[Partition, float]:
    """Records/s of each partition: its share of the group, which is steady, times the group's present rate.

    Partitions rise and fall together, so that a share over 20 s is right where a rate over 20 s lags behind. Only what
    changes its share is looked at over the last seconds alone.
    """
    known = observation.partitions
    slow = sum(entry.rate_slow for entry in known.values())
    fast = sum(entry.rate_fast for entry in known.values())
    if slow <= 0 or fast <= 0:
        return {partition: entry.rate_fast for partition, entry in known.items()}
    shares = {}
    for partition, entry in known.items():
        before, now = entry.rate_slow / slow, entry.rate_fast / fast
        shares[partition] = now if _changed(entry, before * fast) else before
    total = sum(shares.values())
    return {partition: share / total * fast for partition, share in shares.items()}


def _changed(entry: PartitionObservation, expected: float) -> bool:
    """Return whether more or less came in the last seconds than chance explains, where so many records/s were expected.

    The root of a count by chance varies by a half, whatever the count (Anscombe, 1948). Few records are no normal
    variable: a dozen where 3 are expected are much less rare than its four standard errors. What varies by more than
    chance, or less, counts as so many fewer records, or more.
    """
    variance = entry.rate_sd * entry.rate_sd
    if variance <= 0.0 or entry.rate_slow <= 0.0:
        return entry.rate_fast != expected
    counted = FAST_WINDOW_SECONDS * entry.rate_slow / variance
    off = math.sqrt(entry.rate_fast * counted + ROOT_SHIFT) - math.sqrt(expected * counted + ROOT_SHIFT)
    return 2.0 * abs(off) > CHANGE_ERRORS


def _costs(
    observation: Observation, members: Mapping[str, MemberEstimate], rates: Mapping[Partition, float]
) -> dict[str, float]:
    """Work per record, by topic: the mean over its partitions, weighted by their rates."""
    sums: dict[str, tuple[float, float]] = {}
    for partition, entry in observation.partitions.items():
        if entry.cost is not None:
            weight = rates[partition] + 1e-9
            cost, total = sums.get(partition.topic, (0.0, 0.0))
            sums[partition.topic] = (cost + entry.cost * _speed(entry, members) * weight, total + weight)
    return {topic: cost / total for topic, (cost, total) in sums.items()}


def _grain(observation: Observation, members: Mapping[str, MemberEstimate], rates: Mapping[Partition, float]) -> float:
    """Work per record, by work: the mean of its square over its mean.

    A slot's work is its records times what one costs in the mean. So partitions differ, and a partition's records do
    not. What is kept out of sizing is in no slot.
    """
    work = squares = 0.0
    for partition, entry in observation.partitions.items():
        if entry.cost is not None and entry.state not in UNSIZED_STATES:
            weight, cost = rates[partition] + 1e-9, entry.cost * _speed(entry, members)
            work += weight * cost
            squares += weight * cost * cost
    return squares / work if work > 0.0 else 0.0


def _speed(entry: PartitionObservation, members: Mapping[str, MemberEstimate]) -> float:
    member = members.get(entry.reporter)
    return member.speed if member is not None else 1.0


def _partition(partition: Partition, inputs: _Inputs) -> PartitionEstimate:
    entry = inputs.observation.partitions.get(partition)
    group = inputs.group
    owner = group.in_flight[partition] if partition in group.in_flight else group.owners[partition]
    waiting = group.unowned_lag.get(partition, 0) if owner is None else 0
    if entry is None:
        cost = inputs.costs.get(partition.topic, inputs.cost)
        return PartitionEstimate(
            partition=partition, owner=owner, cost=cost, lag=waiting, persistent_backlog=waiting * cost, curve=NOTHING
        )
    speed = _speed(entry, inputs.members)
    cost = inputs.costs.get(partition.topic, inputs.cost) if entry.cost is None else entry.cost * speed
    lag = max(entry.lag, waiting)
    if entry.state in UNSIZED_STATES:
        return PartitionEstimate(
            partition=partition, owner=owner, cost=cost, lag=lag, curve=NOTHING, sized=False, state=entry.state
        )
    persistent_backlog = max(entry.standing_records, waiting)
    late = min(late_records(lag, entry.lag_seconds, inputs.config.sla_seconds), persistent_backlog)
    rate = inputs.rates[partition]
    dispersion = entry.cost_variance / entry.cost * speed if entry.cost else 0.0
    shape = inputs.shapes.get(partition, ())
    # With the record at which it ends, which the curve may be without.
    burst = rate * (shape or inputs.shape.mean)[BURST]
    return PartitionEstimate(
        partition=partition,
        owner=owner,
        rate=rate,
        rate_last=entry.rate_last,
        cost=cost,
        dispersion=dispersion,
        work=rate * cost,
        lag=lag,
        lag_seconds=entry.lag_seconds if lag > 0 else 0.0,
        lag_low=round(persistent_backlog),
        lag_high=max(lag, round(persistent_backlog + burst)),
        persistent_backlog=(persistent_backlog - late) * cost,
        late=late * cost,
        curve=_partition_curve(shape, rate * cost, rate, dispersion, entry.rate_sd, inputs.shape.mean),
        state=entry.state,
    )


def _partition_curve(
    shape: Sequence[float], work: float, rate: float, dispersion: float, rate_sd: float, group: Sequence[float]
) -> ArrivalCurve:
    """A partition's share of the work in the shape that was measured for it, else in the group's.

    The spread of a window is that of one report's interval around the present rate, as if the work came in independent
    parts as large as what the window holds (the members' own variances hold the ups and downs of half a minute), and
    that of the records' costs.
    """
    means = group
    if shape:
        means = _without_own(shape, 1.0 / rate + dispersion / work if work > 0.0 else 0.0, group)
    variation = rate_sd / rate if rate > 0 else 0.0
    parts = work * work * variation * variation + work * dispersion
    sds = [math.sqrt(parts * mean) if mean > 0.0 else 0.0 for mean in means]
    return ArrivalCurve(tuple([work * mean for mean in means]), tuple(sds))


def _shape_of(entry: PartitionObservation, rate: float) -> tuple[float, ...]:
    """Return the shape that was measured for a partition; empty where there is none, or it is another load's."""
    # Windows of half a minute tell nothing about a load that has just jumped: the jump would look like a burst.
    known = entry.cost is not None and rate * entry.cost <= SHAPE_JUMP * entry.shape_rate
    return entry.shape if known else ()


def _shapes(
    observation: Observation, rates: Mapping[Partition, float], group: Sequence[float]
) -> dict[Partition, tuple[float, ...]]:
    """Return the windows of each partition that tells them, with what the edge of a bucket cut away."""
    entries = observation.partitions
    sized = [p for p, entry in entries.items() if entry.state not in UNSIZED_STATES]
    told = {p: shape for p in sized if (shape := _shape_of(entries[p], rates[p]))}
    cut = cut_of(((rates[p] * (entries[p].cost or 0.0), shape) for p, shape in told.items()), group)
    return {p: uncut(shape, cut) for p, shape in told.items()}


def _without_own(means: Sequence[float], own: float, group: Sequence[float]) -> tuple[float, ...]:
    """Return the windows of a partition without the record at which they end: ``own`` seconds' worth of mean work.

    Each window ends at a record, so it has that one beside what is usual. The overhead keeps its time free. Windows of
    several partitions are summed up, and there would be one such record of each: of 80 partitions 80, where one is.
    Where records of all partitions come at once, 80 are. So no window is made smaller than that of the whole group.
    """
    # Written out, for every partition of every decision passes here: max(tau, min(mean, whole), mean - own).
    result = []
    for tau, mean, whole in zip(TAUS_SECONDS, means, group, strict=True):
        least = mean if mean < whole else whole
        if least < tau:
            least = tau
        without = mean - own
        result.append(without if without > least else least)
    return tuple(result)


def _correlation(
    sized: Sequence[PartitionEstimate], shape: ArrivalCurve, series: Sequence[float], observation: Observation
) -> float:
    """Where the measured variance of the total lies between that of independent and that of equal-phased partitions."""
    level = statistics.fmean(series[-LEVEL_SECONDS:])
    total = (shape.stddev[TAUS_SECONDS.index(1.0)] * level) ** 2
    sds = [observation.partitions[e.partition].rate_sd * e.cost for e in sized if e.work > 0]
    independent = sum(stddev * stddev for stddev in sds)
    together = sum(sds) ** 2
    if together - independent <= 1e-12:
        return 1.0
    return min(1.0, max(0.0, (total - independent) / (together - independent)))
