"""A constant load with +-10 % noise: as many replicas as keep the share, and no scaling once they are there."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from loadtrim.simulate import Costs, Options, PlanConfig, parse_generator, simulate

COST_SECONDS = 0.0059
OBJECTIVE_SECONDS = 0.5
WORTH = (OBJECTIVE_SECONDS - 0.015) / COST_SECONDS
"""Records of a one-second burst that one replica does in time."""
FIRST_SECONDS = 60.0


@pytest.mark.slow
@pytest.mark.parametrize(("level", "seed"), [(1.9, 4), (2.3, 2), (2.3, 3), (2.6, 2), (2.6, 3), (3.8, 4)])
def test_the_share_is_kept_and_nothing_scales_after_the_first_minute(level: float, seed: int) -> None:
    """Each of these went to and fro, or held too few without end (docs/decisions/sizing.md)."""
    load = parse_generator(f"constant:rate={level * WORTH!r},seconds=180,noise=0.1,seed={seed}", 5)
    load = replace(load, keys="fixed")
    config = PlanConfig(group="g", objective_seconds=OBJECTIVE_SECONDS, policy="objective", startup_seconds=1.0)
    there = math.ceil(load.per_second[0] * COST_SECONDS / OBJECTIVE_SECONDS)
    options = Options(seed=seed, costs=Costs(mean_seconds=COST_SECONDS), startup_seconds=1.0, replicas=there)
    outcome = simulate(load, config, options)
    wanted = {decision.replicas_wanted for at, decision in outcome.decisions if at >= FIRST_SECONDS}
    assert len(wanted) == 1
    late, arrived = outcome.curves.late[60:], outcome.curves.arrived[60:]
    assert sum(late) <= 0.001 * sum(arrived)
