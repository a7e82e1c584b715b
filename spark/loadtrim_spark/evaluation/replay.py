"""The same day twice, with and without baselines, in the simulator: what they are worth to users. No Spark."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from loadtrim.simulate import BaselineRecord, Costs, Load, Options, Outcome, PlanConfig, simulate
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.common.settings import DEFAULTS
from loadtrim_agent.wire.baseline_records import decode_baseline

__all__ = ["ReplayedDay", "Setup", "between", "played", "whole_topics"]

BEGIN_USE = 0.7
"""Of the replicas that are there when a day begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The group that plays.

    Attributes:
        objective_seconds: W.
        objective_share: of the records.
        startup_seconds: from asking for a replica until it is ready.
        peak_replicas: what the busiest second of a load that tells no cost is worth.
        cost_seconds: of a record of such a load, which is scaled to that peak.
        seed: of the simulation.
    """

    objective_seconds: float = 5.0
    objective_share: float = DEFAULTS.sla_share
    startup_seconds: float = 60.0
    peak_replicas: float = 5.0
    cost_seconds: float = 0.02
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedDay:
    """What came of it.

    Attributes:
        arrived: records.
        late: records that were not done within the objective, or not at all.
        replica_minutes: from the request for a replica until it is gone, to the load's end.
        replicas_max: most that were paid for at once, those that were starting included.
        scalings: changes of the number that was wanted.
    """

    arrived: int
    late: int
    replica_minutes: float
    replicas_max: int
    scalings: int

    @property
    def share_in_time(self) -> float:
        """Of all that arrived."""
        return 1 - self.late / self.arrived if self.arrived else 1.0


def played(
    load: Load, begins_at: int, baselines: Sequence[BaselineRecord], setup: Setup,
    progress: Callable[[int], None] | None = None,
) -> tuple[ReplayedDay, ReplayedDay]:  # fmt: skip
    """Play a load with the baselines and then without.

    Args:
        load: what arrives.
        begins_at: when its first second was, seconds since the epoch.
        baselines: of whole topics, learnt before that.
        setup: of the group.
        progress: is told the second of the load every now and then.

    Cost: 5 to 7 ms per second of the load, twice.
    """
    load = fitted(load, setup)
    cost = load.cost_seconds or setup.cost_seconds
    first = fmean(load.per_second[:60]) * cost / BEGIN_USE
    options = Options(
        seed=setup.seed,
        costs=Costs(mean_seconds=cost),
        startup_seconds=setup.startup_seconds,
        replicas=min(max(1, math.ceil(first)), len(load.partitions)),
        begins_at=float(begins_at),
    )
    config = PlanConfig(
        group="replayed",
        sla_seconds=setup.objective_seconds,
        sla_share=setup.objective_share,
        startup_seconds=setup.startup_seconds,
    )
    with_them = simulate(load, config, replace(options, baselines=tuple(baselines)), progress)
    return _played(with_them), _played(simulate(load, config, options, progress))


def fitted(load: Load, setup: Setup) -> Load:
    """A load whose source tells no cost, scaled to the setup's peak; any other as it is."""
    if load.cost_seconds is not None:
        return load
    peak = max(load.per_second)
    return load.scaled(setup.peak_replicas / setup.cost_seconds / peak) if peak > 0 else load


def whole_topics(values: Sequence[str]) -> list[BaselineRecord]:
    """Those of the baseline topic's records that a leader looks at."""
    decoded = (decode_baseline(value.encode()) for value in values if json.loads(value).get("topic") is not None)
    return [record for record in decoded if record is not None]


def between(
    counts: Sequence[tuple[int, float]], step_seconds: int, begin: int, seconds: int, weights: Mapping[Partition, float]
) -> Load:
    """A load of so many records per step, with straight lines from the middle of one step to that of the next: steps
    would be rises that nobody recorded.

    Args:
        counts: (start, records until the next count), ascending; what is missing is nothing.
        step_seconds: length of a count.
        begin: seconds since the epoch.
        seconds: how long.
        weights: of the partitions, each gets its share.
    """
    rates = {start // step_seconds: count / step_seconds for start, count in counts}

    def rate(second: int) -> float:
        place = (begin + second + 0.5) / step_seconds - 0.5
        lower = math.floor(place)
        share = place - lower
        return rates.get(lower, 0.0) * (1 - share) + rates.get(lower + 1, 0.0) * share

    return Load(
        per_second=tuple(rate(second) for second in range(seconds)),
        partitions=tuple(sorted(weights)),
        shares=(tuple(weights[partition] / sum(weights.values()) for partition in sorted(weights)),),
        arrivals="poisson",
    )


def _played(outcome: Outcome) -> ReplayedDay:
    return ReplayedDay(
        arrived=outcome.arrived,
        late=outcome.arrived - outcome.in_time,
        replica_minutes=outcome.replica_minutes,
        replicas_max=outcome.replicas_max,
        scalings=outcome.scalings(),
    )
