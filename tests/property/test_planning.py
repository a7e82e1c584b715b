"""What planning promises about scaling, record by record in virtual time and from seeds."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest

from loadtrim.simulate import Costs, Load, Options, Outcome, PlanConfig, shares_even, simulate
from loadtrim.simulate.model.work import FETCH_SECONDS
from loadtrim_agent.common.partition import Partition

COST = 0.0059
PARTITIONS = 9


def play(
    per_second: list[float],
    *,
    replicas: int,
    seed: int,
    startup_seconds: float = 3.0,
    arrivals: str = "random",
    keys: str = "random",
    shares: tuple[float, ...] = shares_even(PARTITIONS),
) -> Outcome:
    load = Load(
        per_second=tuple(per_second),
        partitions=tuple(Partition("orders", index) for index in range(PARTITIONS)),
        shares=(shares,),
        arrivals=arrivals,
        keys=keys,
    )
    return simulate(
        load,
        PlanConfig(group="g", sla_seconds=0.5, startup_seconds=startup_seconds),
        Options(seed=seed, costs=Costs(mean_seconds=COST), startup_seconds=startup_seconds, replicas=replicas),
    )


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_noise_scales_hardly_ever(replicas: int) -> None:
    """+-10 % from one second to the next, and none within a second, 5 % below a whole number of replicas.

    Five seconds in a row above what the group can do may cost one replica, once.
    """
    random = Random(replicas)
    rate = 0.95 * replicas / COST
    outcome = play(
        [rate * random.uniform(0.9, 1.1) for _ in range(150)], replicas=replicas, seed=replicas, arrivals="even"
    )
    settled = [decision for at, decision in outcome.decisions if 60.0 <= at < 150.0]
    wanted = [decision.replicas_wanted for decision in settled]
    assert max(wanted) <= replicas + 1
    assert sum(before != after for before, after in pairwise(wanted)) <= 1


@pytest.mark.parametrize("calm_seconds", [8, 14, 25])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_a_step_is_answered_soon_also_soon_after_the_load_began(calm_seconds: int, seed: int) -> None:
    """From 0.65 to 1.42 members' worth, at any moment of a second; three seconds of silence before the load."""
    part = Random(seed).random()
    before, after = 0.65 / COST, 1.416 / COST
    per_second = [0.0] * 3 + [before] * calm_seconds + [before * part + after * (1.0 - part)] + [after] * 4
    step = 3.0 + calm_seconds + part
    outcome = play(per_second, replicas=1, seed=seed, startup_seconds=30.0)
    # The second of the step is heavier from its beginning on.
    assert all(decision.replicas_wanted == 1 for at, decision in outcome.decisions if at < math.floor(step))
    answered = outcome.first_above(1, step)
    assert answered is not None
    assert answered <= 3.5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_nothing_is_bought_while_the_last_hump_falls(seed: int) -> None:
    """Two of the partitions have half of three humps, of which the last is more than one member can do in time for each
    of them: what was late there is no reason to buy when hardly anything comes any more."""
    turns = ((0, 0), (25, 200), (42, 152), (60, 275), (77, 155), (95, 350), (120, 0))
    humps = [
        low + (high - low) * (1.0 - math.cos(math.pi * (second + 0.5) / (end - begin))) / 2.0
        for (begin, low), (end, high) in pairwise(turns)
        for second in range(end - begin)
    ]
    outcome = play(
        humps,
        replicas=1,
        seed=seed,
        startup_seconds=0.7,
        arrivals="burst",
        keys="fixed",
        shares=(0.25, 0.25, *[0.5 / 7] * 7),
    )
    wanted = [decision.replicas_wanted for at, decision in outcome.decisions if at >= 98.0]
    assert wanted == sorted(wanted, reverse=True)


def test_a_load_after_idle_time_is_not_taken_for_a_burst() -> None:
    """Two members' worth after 40 s of nothing: two or three, and one more while what came meanwhile is worked off."""
    outcome = play([0.0] * 40 + [2.0 / COST] * 12, replicas=1, seed=1)
    assert 3 <= max(decision.replicas_wanted for _, decision in outcome.decisions) <= 5


@pytest.mark.slow
def test_every_record_is_done_once_and_in_order_of_virtual_time() -> None:
    """The simulation itself: nothing is lost over handoffs and scalings, and one seed plays one way."""
    per_second = [20.0 + 3.0 * second for second in range(60)] + [200.0 - 3.0 * second for second in range(60)]
    first, second = (play(per_second, replicas=1, seed=3) for _ in range(2))
    assert first == second
    assert first.left == 0
    assert first.moves > 0
    assert first.scalings() >= 2
    assert min(first.latencies) >= FETCH_SECONDS + COST - 1e-6
    assert first.replica_minutes >= 120 / 60
    assert all(left < right for (left, _), (right, _) in pairwise(first.decisions))
    assert sum(decision.replicas_wanted for _, decision in first.decisions) > len(first.decisions)


@pytest.mark.slow
def test_partitions_with_few_records_each_are_sized_by_the_queue_that_they_make() -> None:
    """2 members' load in records of 30 ms that vary, 80 partitions, W = 0.3 s: with 3 members one of twenty is late.

    Each partition's windows held the record at which they end, so 80 of them looked like a burst of 80 records, which
    no number of members could have helped.
    """
    cost, partitions = 0.03, 80
    load = Load(
        per_second=(2.0 / cost,) * 60,
        partitions=tuple(Partition("orders", index) for index in range(partitions)),
        shares=(shares_even(partitions),),
        arrivals="poisson",
    )
    config = PlanConfig(group="g", sla_seconds=0.3, sla_share=0.99, startup_seconds=1.0)
    options = Options(seed=1, costs=Costs(mean_seconds=cost, kind="exponential"), replicas=3)
    assert 4 <= simulate(load, config, options).decisions[-1][1].replicas_wanted <= 6


@pytest.mark.slow
def test_bursts_every_few_seconds_are_counted_once() -> None:
    """Six busy seconds every 3 s, W = 4 s: 4 replicas do. Their variance made a queue beside them, so it was 7."""
    cost, partitions = 0.05, 24
    load = Load(
        per_second=(6.0 / cost, 0.0, 0.0) * 30,
        partitions=tuple(Partition("orders", index) for index in range(partitions)),
        shares=(shares_even(partitions),),
    )
    config = PlanConfig(group="g", sla_seconds=4.0, sla_share=0.99, startup_seconds=1.0)
    outcome = simulate(load, config, Options(seed=1, costs=Costs(mean_seconds=cost), replicas=3))
    assert outcome.share_in_time_from(30) >= 0.99
    assert outcome.decisions[-1][1].replicas_wanted <= 5


@pytest.mark.slow
def test_bursts_with_few_records_in_each_partition_are_in_time() -> None:
    """Fifty records a second at once in 24 partitions, W = 0.5 s. Without one of each the bursts were half as large."""
    cost, partitions = 0.02, 24
    load = Load(
        per_second=(1.0 / cost,) * 90,
        partitions=tuple(Partition("orders", index) for index in range(partitions)),
        shares=(shares_even(partitions),),
    )
    config = PlanConfig(group="g", sla_seconds=0.5, sla_share=0.99, startup_seconds=2.0)
    outcomes = [
        simulate(load, config, Options(seed=seed, costs=Costs(mean_seconds=cost, kind="exponential"), replicas=3))
        for seed in (1, 2)
    ]
    assert min(outcome.share_in_time_from(30) for outcome in outcomes) >= 0.99
