"""Every policy on a load that rises and falls again, record by record: it scales up with it, and down where it can.

Records of 20 ms (50/s a replica), eight partitions, W = 0.5 s, start-up 2 s: from half a replica's worth to three
replicas' worth and back. Times of rest are shortened, as they would outlast the load; KEDA's threshold is two seconds'
work of a replica, as 290 records are hardly reached here.
"""

from __future__ import annotations

import pytest

from loadtrim.simulate import Costs, Load, Options, Outcome, PlanConfig, shares_even, simulate
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.registry import POLICIES

COST_SECONDS = 0.02
LOW, HIGH = 25.0, 150.0
"""Records/s."""
RISE, TOP, FALL = 30, 40, 90
"""Seconds at which the load begins to rise, has risen, and falls again."""
END = 170

HPA = "sync_seconds=5,down_window_seconds=15"
CHOICES = {
    "closer24": "cooldown_seconds=5",
    "closer24_algorithm_1": "cooldown_seconds=5",
    "closer24_as_run": "",
    "dhalion_adapted": "lag_threshold_seconds=1,cooldown_seconds=8,metric_seconds=10",
    "ds2_modern": "cooldown_seconds=5,rate_seconds=5",
    "ds2_modern_adapted": "up_lag_seconds=1,cooldown_seconds=5,rate_seconds=5",
    "flas": "cooldown_seconds=4",
    "hpa_cpu": HPA,
    "iccbdc22": "cooldown_seconds=5",
    "iccbdc22_as_run": "cooldown_seconds=5",
    "keda": f"{HPA},lag_threshold_records=100",
    "landau24": "interval_seconds=10",
    "landau24_as_run": "",
    "li_ku": "",
    "linear": "cooldown_seconds=5",
    "objective": "",
    "varga_v1": f"{HPA},metric_seconds=10",
    "varga_v2": f"{HPA},metric_seconds=10,cooldown_seconds=8",
}
PACKERS = {"closer24": "closer24", "closer24_algorithm_1": "closer24", "closer24_as_run": "closer24_as_run"}
PACKERS |= {"iccbdc22": "iccbdc22", "iccbdc22_as_run": "iccbdc22_as_run", "objective": "trim"}
PACKERS |= {"landau24": "mwf", "landau24_as_run": "mwf"}
UNPLAYED = {"fixed", "overprovisioned", "clairvoyant"}
"""They scale with no load, or need to be told it: see ``tests/golden/test_policies.py``."""


def play(name: str) -> Outcome:
    choice = f"{name}:{CHOICES[name]}" if CHOICES[name] else name
    config = PlanConfig(
        group="g", sla_seconds=0.5, startup_seconds=2.0, policy=choice, packer=PACKERS.get(name, "sticky")
    )
    rise = [LOW + (HIGH - LOW) * step / (TOP - RISE) for step in range(TOP - RISE)]
    per_second = [LOW] * RISE + rise + [HIGH] * (FALL - TOP) + [LOW] * (END - FALL)
    load = Load(
        per_second=tuple(per_second),
        partitions=tuple(Partition("orders", index) for index in range(8)),
        shares=(shares_even(8),),
        arrivals="random",
    )
    return simulate(load, config, Options(seed=7, costs=Costs(mean_seconds=COST_SECONDS), startup_seconds=2.0))


def test_every_policy_that_scales_is_played() -> None:
    assert CHOICES.keys() | UNPLAYED == POLICIES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CHOICES))
def test_it_follows_the_load(name: str) -> None:
    outcome = play(name)
    wanted = {round(at): decision.replicas_wanted for at, decision in outcome.decisions}
    before = max(count for at, count in wanted.items() if 15 <= at < RISE)
    top = max(count for at, count in wanted.items() if TOP <= at < FALL)
    after = min(count for at, count in wanted.items() if at >= FALL)
    assert before <= 2
    # 150 x 0.02 = 3 busy seconds/s: three replicas at least keep up.
    assert top >= 3
    assert after < top
    assert outcome.left == 0, "nothing is left over at the end"
    assert {decision.outcome for at, decision in outcome.decisions if at > 10} >= {"up", "down"}
