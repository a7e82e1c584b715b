"""The fewest replicas that hold the objective's share without ever being scaled, found by playing them.

Twice it is asked: of the first seconds, for the replicas to begin with, and of the whole load, for what a group that
is not scaled would cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean

import msgspec

from loadtrim_agent.planning.values import PlanConfig

from ..loads.load import Load
from ..model.outcome import Outcome
from ..model.simulation import JOIN_SECONDS, Options, simulate

__all__ = [
    "FIRST_SECONDS",
    "FixedGroup",
    "fixed_group",
    "play_fixed",
    "replicas_at_first",
    "replicas_most",
    "seconds_until_joined",
]

FIRST_SECONDS = 5
"""Length of the load's beginning that tells the replicas to begin with: the planner's longest window."""
STEADY_SECONDS = 60
"""Time for which the first seconds are played over and over: chosen, long enough for queues to show."""
DECISIONS_UNTIL_ASKED = 2
"""Reports are there before the second decision, at the latest, and it is the first that can ask for a replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedGroup:
    """A group of as many replicas as hold the share, from the load's beginning to its end."""

    replicas: int
    share_in_time: float
    """The mean of all seeds."""
    replica_minutes: float


def seconds_until_joined(config: PlanConfig, options: Options) -> int:
    """Return the seconds until the first replica that is asked for can be there."""
    asked = DECISIONS_UNTIL_ASKED * config.decision_seconds
    return math.ceil(asked + options.startup_seconds + JOIN_SECONDS)


def replicas_most(load: Load, config: PlanConfig) -> int:
    """Return the most replicas that the group may have."""
    return min(len(load.partitions), config.max_replicas or len(load.partitions))


def play_fixed(load: Load, config: PlanConfig, options: Options, replicas: int) -> Outcome:
    """Play a load with as many replicas from its beginning to its end."""
    fixed = msgspec.structs.replace(config, policy=f"fixed:replicas={replicas}", min_replicas=1)
    return simulate(load, fixed, replace(options, replicas=replicas, baselines=()))


def replicas_at_first(load: Load, config: PlanConfig, options: Options) -> int:
    """Return the replicas of a group whose load has long been as it is in the first seconds.

    They are the fewest that hold the share of a load that goes on like these seconds. Where not even the most do,
    replicas are not what is missing, and they are those that the work takes.
    """
    first = load.part(0, min(load.seconds, FIRST_SECONDS))
    # Never longer than the load itself: what is asked before a run takes no longer than a few such runs.
    steady = _over_and_over(first, min(load.seconds, STEADY_SECONDS))
    most = replicas_most(load, config)
    least = max(config.min_replicas, _replicas_for(options, first.records / first.seconds, most))
    found = _fewest(lambda replicas: _holds(play_fixed(steady, config, options, replicas), config), least, most)
    return least if found is None else found


def fixed_group(
    load: Load,
    config: PlanConfig,
    options: Options,
    seeds: Sequence[int],
    progress: Callable[[str], None] | None = None,
) -> FixedGroup | None:
    """Return the fewest replicas that hold the share without being scaled; None: not even the most do.

    Args:
        load: what arrives.
        config: of the planner; its policy does not matter.
        options: of the group.
        seeds: the share is the mean of these.
        progress: told what is played next.
    """

    def share(replicas: int) -> float:
        if progress is not None:
            progress(f"{replicas} replicas all the time")
        return fmean(play_fixed(load, config, replace(options, seed=seed), replicas).share_in_time for seed in seeds)

    shares: dict[int, float] = {}

    def holds(replicas: int) -> bool:
        shares[replicas] = share(replicas)
        return shares[replicas] >= config.sla_share

    found = _fewest(holds, 1, replicas_most(load, config))
    if found is None:
        return None
    minutes = found * load.seconds / 60.0
    return FixedGroup(replicas=found, share_in_time=shares[found], replica_minutes=minutes)


def _over_and_over(load: Load, seconds: int) -> Load:
    """Return a load that goes on like this one, for so many seconds or a few more."""
    times = math.ceil(seconds / load.seconds)
    shares = load.shares if len(load.shares) == 1 else load.shares * times
    return replace(load, per_second=load.per_second * times, shares=shares, moments=load.moments * times)


def _holds(outcome: Outcome, config: PlanConfig) -> bool:
    return outcome.share_in_time >= config.sla_share


def _fewest(holds: Callable[[int], bool], least: int, most: int) -> int | None:
    """Return the fewest from ``least`` to ``most`` with which it holds; None: it holds with none.

    Steps double and are halved again, for the answer is mostly near the least. Where it holds with some number, it is
    taken for granted that it does with more.
    """
    below, tried = least - 1, least
    while not holds(tried):
        if tried == most:
            return None
        below, tried = tried, min(most, tried + 2 * (tried - below))
    while tried - below > 1:
        middle = (below + tried) // 2
        if holds(middle):
            tried = middle
        else:
            below = middle
    return tried


def _replicas_for(options: Options, rate: float, most: int) -> int:
    """Return the fewest members that can do so many records per second; ``most`` where not even these can."""
    work, machines = rate * options.costs.mean_seconds, options.machines
    capacities = accumulate(machines.speed(number) * machines.concurrency for number in range(most))
    return next((members for members, capacity in enumerate(capacities, 1) if capacity >= work), most)
