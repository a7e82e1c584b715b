"""Loads drawn by seed: what arrives, in which partitions, at what cost, and what is asked of the group.

A family is a shape of the load over time. All else is drawn: arrivals, keys, costs, objective, start-up time, number of
partitions, level. There are two sets of families. Everything that is chosen is chosen by the loads of
:mod:`.tuning_set` alone. Those of :mod:`.verdict_set` judge what was chosen, and no constant may be chosen by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from benchmarks.compare.scenarios import Scenario
from loadtrim.simulate import Costs, Load, shares_even
from loadtrim_agent.common.partition import Partition

__all__ = ["Drawn", "Family", "Shape", "draw"]

RECORDS_MAX = 100_000
"""Of a load: more take minutes to play. Where more were drawn, each of them costs more."""
COSTS = (("fixed", 1.0), ("exponential", 1.0), ("lognormal", 0.5), ("lognormal", 1.0), ("lognormal", 2.0))
"""Kind, and standard deviation over mean where the kind has one."""
ARRIVALS = ("burst", "even", "poisson", "poisson")
"""Half of them as many producers make them."""
KEYS = ("fixed", "random", "skewed", "drifting")
SHARES = (0.975, 0.99, 0.999)
COST_SECONDS = (0.001, 5.0)
OBJECTIVE_SECONDS = (0.2, 60.0)
STARTUP_SECONDS = (0.5, 120.0)
PARTITIONS = (3, 200)
LEVEL_MEMBERS = (0.7, 5.0)
"""Mean load, in members that would be busy all the time."""
COST_OF_OBJECTIVE = 0.1
"""A record costs at most this share of the objective on average: what takes longer is late by itself too often."""
SECONDS_MIN, SECONDS_STARTUPS = 300, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The load over time, relative to its level."""

    factors: tuple[float, ...]
    """Of each second, around 1."""
    shares: tuple[tuple[float, ...], ...] = ()
    """Each partition's share in each second, where the family itself says; empty: as the keys say."""


Family = Callable[[Random, int, int], Shape]
"""(random, seconds, partitions) -> the shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A scenario, and what is asked of the group that works on it."""

    scenario: Scenario
    costs: Costs
    startup_seconds: float
    share: float


def draw(name: str, families: Mapping[str, Family]) -> Drawn:
    """Return a load by its name ``set/family/seed``. Equal names give equal loads."""
    _, family, _ = name.split("/")
    random = Random(f"held-out:{name}")
    objective = _between(OBJECTIVE_SECONDS, random)
    startup = _between(STARTUP_SECONDS, random)
    partitions = round(_between(PARTITIONS, random))
    level = min(_between(LEVEL_MEMBERS, random), 0.5 * partitions)
    seconds = SECONDS_MIN + round(SECONDS_STARTUPS * startup)
    kind, variation = random.choice(COSTS)
    cost = min(_between(COST_SECONDS, random), COST_OF_OBJECTIVE * objective)
    cost = max(cost, level * seconds / RECORDS_MAX)
    arrivals, keys, share = random.choice(ARRIVALS), random.choice(KEYS), random.choice(SHARES)
    shape = families[family](random, seconds, partitions)
    load = Load(
        per_second=tuple(max(0.0, level / cost * factor) for factor in shape.factors),
        partitions=tuple(Partition("load", index) for index in range(partitions)),
        shares=shape.shares or _shares(keys, random, seconds, partitions),
        arrivals=arrivals,
        keys="fixed" if keys == "fixed" else "random",
        source=name,
    )
    title = (
        f"{name}: {arrivals}, {keys} keys, {partitions} partitions, {cost * 1e3:.3g} ms ({kind}), W = {objective:.3g} s"
    )
    scenario = Scenario(name=name, title=title, load=load, cost_seconds=cost, objective_seconds=objective)
    costs = Costs(mean_seconds=cost, kind=kind, variation=variation)
    return Drawn(scenario=scenario, costs=costs, startup_seconds=startup, share=share)


def _between(bounds: tuple[float, float], random: Random) -> float:
    """Return a number drawn evenly by its logarithm."""
    return math.exp(random.uniform(math.log(bounds[0]), math.log(bounds[1])))


def _shares(keys: str, random: Random, seconds: int, partitions: int) -> tuple[tuple[float, ...], ...]:
    if keys in ("fixed", "random"):
        return (shares_even(partitions),)
    begin = _skewed(random, partitions)
    if keys == "skewed":
        return (begin,)
    end = _skewed(random, partitions)
    return tuple(_mixed(begin, end, second / (seconds - 1)) for second in range(seconds))


def _skewed(random: Random, partitions: int) -> tuple[float, ...]:
    """Return shares by Zipf's law with an exponent of 0 to 0.8, dealt out to the partitions by chance."""
    exponent = random.uniform(0.0, 0.8)
    weights = [(place + 1) ** -exponent for place in range(partitions)]
    random.shuffle(weights)
    return _normed(weights)


def _mixed(begin: Sequence[float], end: Sequence[float], part: float) -> tuple[float, ...]:
    return _normed([(1.0 - part) * one + part * other for one, other in zip(begin, end, strict=True)])


def _normed(weights: Sequence[float]) -> tuple[float, ...]:
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)
