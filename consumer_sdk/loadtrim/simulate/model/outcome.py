"""The outcome of a simulated run: the numbers, the curves, and how they are added up over seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

from loadtrim_agent.wire.telemetry_records import DecisionRecord

__all__ = ["Curves", "Outcome", "Summary", "percentile", "summary_of"]


PERCENTILES = {"latency_p50": 0.5, "latency_p90": 0.9, "latency_p99": 0.99, "latency_p999": 0.999}


def percentile(ordered: Sequence[float], share: float) -> float:
    """Nearest rank of values in ascending order; 0.0 of none."""
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Per second of the load and of what was played beyond its end."""

    arrived: tuple[int, ...]
    work: tuple[float, ...]
    """Busy seconds that arrived, on the reference member (by the mean cost)."""
    capacity: tuple[float, ...]
    """Busy seconds per second that the members there could give, at the end of the second."""
    replicas: tuple[int, ...]
    """The replicas that were there, at the end of the second."""
    wanted: tuple[int, ...]
    late: tuple[int, ...]
    """Records done in it later than the objective."""
    latency_max: tuple[float, ...]
    """Longest latency of what was done in it, seconds; 0: nothing was."""
    moves: tuple[int, ...]
    waiting: tuple[int, ...] = ()
    """Records not done at the end of the second, as far as members had told by then (every 0.2 s)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run. What costs and scales is counted to the load's end, whatever was played beyond it to see what becomes
    of the records."""

    arrived: int
    latencies: Sequence[float]
    """Seconds from arrival until done, ascending."""
    waited: Sequence[float]
    """Of what was not done when the run ended: seconds since arrival, ascending."""
    objective_seconds: float
    replica_minutes: float
    """From the request for a replica until it is gone."""
    replicas_max: int
    """Most that were paid for at the end of a second: those that were there, and those that were starting."""
    moves: int
    slices: int
    """Moves that members made on their own initiative."""
    rebalances: int
    late_by_cause: Mapping[str, int]
    """As the members' meters judge; empty where they did not measure."""
    decisions: Sequence[tuple[float, DecisionRecord]]
    """(seconds since the load began, decision), to the load's end."""
    curves: Curves
    seconds: int
    """Of the load."""
    done_by_partition: Mapping[str, int] = field(default_factory=dict)
    late_by_arrival: Sequence[int] = ()
    """Of each second of the load: records that arrived in it and were not done within the objective."""

    @property
    def done(self) -> int:
        return len(self.latencies)

    @property
    def left(self) -> int:
        """Records that were not done when the run ended: ``arrived`` = ``done`` + ``left``."""
        return len(self.waited)

    def latencies_least(self) -> Sequence[float]:
        """Of all that arrived, seconds, ascending: what was not done counts with what it had waited."""
        return sorted([*self.latencies, *self.waited]) if self.waited else self.latencies

    def is_bound(self, seconds: float) -> bool:
        """Is a percentile of :meth:`latencies_least` a lower bound? It is where a record that was not done counts for
        less than it would have come to."""
        return bool(self.waited) and seconds >= self.waited[0]

    @property
    def in_time(self) -> int:
        from bisect import bisect_right

        return bisect_right(self.latencies, self.objective_seconds)

    @property
    def share_in_time(self) -> float:
        """Of all that arrived; what was not done counts as late."""
        return self.in_time / self.arrived if self.arrived else 1.0

    def share_in_time_from(self, second: int) -> float:
        """Of all that arrived in this second of the load or later; 1 where nothing did."""
        arrived, late = sum(self.curves.arrived[second:]), sum(self.late_by_arrival[second:])
        return (arrived - late) / arrived if arrived else 1.0

    def arrived_from(self, second: int) -> int:
        """Records that arrived in this second of the load or later."""
        return sum(self.curves.arrived[second:])

    def scalings(self, after_seconds: float = 0.0) -> int:
        """Changes of the wanted number of replicas."""
        wanted = [decision.replicas_wanted for at, decision in self.decisions if at >= after_seconds]
        return sum(before != now for before, now in pairwise(wanted))

    def scaled(self) -> tuple[int, int]:
        """(replicas added, replicas given back), counted by replica as the papers do."""
        wanted = [decision.replicas_wanted for _, decision in self.decisions]
        ups = sum(max(0, now - before) for before, now in pairwise(wanted))
        downs = sum(max(0, before - now) for before, now in pairwise(wanted))
        return ups, downs

    def actions(self) -> tuple[int, int]:
        """(ups, downs), an up or down of several replicas counted once."""
        pairs = list(pairwise(decision.replicas_wanted for _, decision in self.decisions))
        return sum(now > before for before, now in pairs), sum(now < before for before, now in pairs)

    def gaps(self) -> tuple[int, ...]:
        """Of each plan: at most so many members in use above the fewest that whole partitions could fit."""
        plans = ((decision.members_opened, decision.members_bound) for _, decision in self.decisions)
        return tuple([max(0, opened - bound) for opened, bound in plans if opened is not None and bound is not None])

    def changes(self) -> list[tuple[float, DecisionRecord]]:
        """The decisions that wanted another number of replicas than the one before, or moved something."""
        found = []
        wanted = self.decisions[0][1].replicas_actual if self.decisions else 0
        for at, decision in self.decisions:
            if decision.moves or decision.replicas_wanted != wanted:
                found.append((at, decision))
            wanted = decision.replicas_wanted
        return found

    def first_above(self, replicas: int, since_seconds: float) -> float | None:
        """Seconds from ``since_seconds`` until more replicas than that were wanted."""
        for at, decision in self.decisions:
            if at >= since_seconds and decision.replicas_wanted > replicas:
                return at - since_seconds
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One policy on one load, as mean over the seeds; what JSON output holds. Latencies in seconds, of all that
    arrived: what was not done counts with what it had waited."""

    policy: str
    packer: str
    protocol: str
    slicing: bool
    seeds: tuple[int, ...]
    records: float
    left: float
    share_in_time: float
    share_in_time_min: float
    """Of the worst seed."""
    share_in_time_max: float
    replica_minutes: float
    replicas_mean: float
    replicas_max: int
    ups: float
    downs: float
    moves: float
    slices: float
    rebalances: float
    latency_mean: float
    latency_p50: float
    latency_p90: float
    latency_p99: float
    latency_p999: float
    latency_max: float
    """The largest of all seeds; the other latencies are means of the seeds' percentiles."""
    lower_bounds: tuple[str, ...]
    """Names of those of the latencies that would have come out longer, had everything been done."""
    late_by_cause: dict[str, float]
    gap_mean: float
    """Members in use above the lower bound of each plan, the mean of all decisions."""
    gap_max: int


def _latencies(outcomes: Sequence[Outcome]) -> dict[str, tuple[float, bool]]:
    """Fields of the summary -> (seconds, whether that is a lower bound)."""
    all_of = [outcome.latencies_least() for outcome in outcomes]
    some_left = any(outcome.left for outcome in outcomes)
    found = {"latency_mean": (fmean(fmean(each) if each else 0.0 for each in all_of), some_left)}
    for name, share in PERCENTILES.items():
        values = [percentile(each, share) for each in all_of]
        bound = any(outcome.is_bound(value) for outcome, value in zip(outcomes, values, strict=True))
        found[name] = fmean(values), bound
    found["latency_max"] = max((each[-1] for each in all_of if each), default=0.0), some_left
    return found


def summary_of(
    outcomes: Sequence[Outcome], *, policy: str, packer: str, protocol: str, slicing: bool, seeds: Sequence[int]
) -> Summary:
    """Add up the runs of one policy, one for each seed."""
    scaled = [outcome.scaled() for outcome in outcomes]
    shares = [outcome.share_in_time for outcome in outcomes]
    gaps = [gap for outcome in outcomes for gap in outcome.gaps()]
    causes = sorted({cause for outcome in outcomes for cause in outcome.late_by_cause})

    latencies = _latencies(outcomes)

    return Summary(
        policy=policy,
        packer=packer,
        protocol=protocol,
        slicing=slicing,
        seeds=tuple(seeds),
        records=fmean(outcome.arrived for outcome in outcomes),
        left=fmean(outcome.left for outcome in outcomes),
        share_in_time=fmean(shares),
        share_in_time_min=min(shares),
        share_in_time_max=max(shares),
        replica_minutes=fmean(outcome.replica_minutes for outcome in outcomes),
        replicas_mean=fmean(outcome.replica_minutes * 60.0 / outcome.seconds for outcome in outcomes),
        replicas_max=max(outcome.replicas_max for outcome in outcomes),
        ups=fmean(up for up, _ in scaled),
        downs=fmean(down for _, down in scaled),
        moves=fmean(outcome.moves for outcome in outcomes),
        slices=fmean(outcome.slices for outcome in outcomes),
        rebalances=fmean(outcome.rebalances for outcome in outcomes),
        **{name: seconds for name, (seconds, _) in latencies.items()},
        lower_bounds=tuple([name for name, (_, bound) in latencies.items() if bound]),
        late_by_cause={cause: fmean(o.late_by_cause.get(cause, 0) for o in outcomes) for cause in causes},
        gap_mean=fmean(gaps) if gaps else 0.0,
        gap_max=max(gaps, default=0),
    )
