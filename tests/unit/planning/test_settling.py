"""Where a move stops its partition for long, the group is left alone until what it stopped is worked off."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim.simulate import Costs, Load, Options, Outcome, simulate
from loadtrim.simulate.model.protocols import PROTOCOLS
from loadtrim_agent.common.partition import Partition
from loadtrim_agent.planning.placement.incremental import Trim
from loadtrim_agent.planning.placement.problem import Bin, Limits, Problem
from loadtrim_agent.planning.registry import make_policy
from loadtrim_agent.planning.settling import Settling, answer_seconds, restoring_seconds
from loadtrim_agent.planning.sizing.objective import ObjectiveState
from loadtrim_agent.planning.sizing.policy import View
from loadtrim_agent.planning.sizing.stabilization import Stabilization, window_min
from loadtrim_agent.planning.values import GroupState, PlanConfig, Reason, Sizing
from unit.planning.sizing.test_policy import CONFIG, entry, view

ONE, TWO = Partition("t", 0), Partition("t", 1)
LONG, OBJECTIVE = 10.0, 5.0
"""A handoff that restores, and W: seconds."""


def group(one: str | None, two: str | None = "b", *, in_flight: bool = False) -> GroupState:
    owners = {ONE: one, TWO: two}
    return GroupState(generation=1, leader="a", members={}, owners=owners, in_flight={ONE: "b"} if in_flight else {})


def test_a_group_settles_a_handoff_after_the_last_partition_has_moved() -> None:
    settling = Settling()
    assert settling.seconds(100.0, group("a"), LONG, OBJECTIVE) == 0.0
    assert settling.seconds(101.0, group("b"), LONG, OBJECTIVE) == 10.0
    assert settling.seconds(105.0, group("b"), LONG, OBJECTIVE) == 6.0
    assert settling.seconds(111.0, group("b"), LONG, OBJECTIVE) == 0.0


def test_a_partition_that_has_no_owner_any_more_has_moved() -> None:
    settling = Settling()
    settling.seconds(100.0, group("a"), LONG, OBJECTIVE)
    assert settling.seconds(101.0, group(None), LONG, OBJECTIVE) == 10.0


def test_what_nobody_owned_stops_nothing_when_it_is_owned() -> None:
    settling = Settling()
    settling.seconds(100.0, group(None), LONG, OBJECTIVE)
    assert settling.seconds(101.0, group("a"), LONG, OBJECTIVE) == 0.0


def test_a_move_under_way_counts_until_it_has_ended() -> None:
    settling = Settling()
    for now in (100.0, 104.0, 108.0):
        assert settling.seconds(now, group("a", in_flight=True), LONG, OBJECTIVE) == 10.0
    assert settling.seconds(113.0, group("a"), LONG, OBJECTIVE) == 5.0


def test_short_handoffs_need_no_settling() -> None:
    settling = Settling()
    for now, owner in ((100.0, "a"), (101.0, "b"), (102.0, "a")):
        assert settling.seconds(now, group(owner), 0.015, OBJECTIVE) == 0.0
    assert settling.seconds(103.0, group("b"), 2.5, OBJECTIVE) == 0.0, "half of the objective"


def test_moves_without_end_do_not_keep_a_group_from_being_planned() -> None:
    """A partition moves each 5 s: 30 s are left alone, and 30 s are not."""
    settling, alone = Settling(), 0
    for second in range(600):
        owner = "ab"[second // 5 % 2]
        alone += settling.seconds(100.0 + second, group(owner), LONG, OBJECTIVE) > 0.0
    assert 200 <= alone <= 320


def test_a_clock_that_is_set_back_ends_it() -> None:
    settling = Settling()
    settling.seconds(5_000.0, group("a"), LONG, OBJECTIVE)
    assert settling.seconds(5_001.0, group("b"), LONG, OBJECTIVE) == 10.0
    assert settling.seconds(1_401.0, group("b"), LONG, OBJECTIVE) == 0.0
    assert settling.seconds(1_402.0, group("a"), LONG, OBJECTIVE) == 10.0


def test_a_few_slow_handoffs_are_not_what_a_move_costs() -> None:
    """User code was in the middle of a long record."""
    assert restoring_seconds((0.015,) * 20 + (20.0,) * 8, 0.01) < 0.1
    assert restoring_seconds((9.0,) * 20 + (0.015,) * 8, 0.01) == pytest.approx(8.99)
    assert restoring_seconds((4.0,) * 20, 4.0) == 0.0, "a record in hand takes as long"
    assert restoring_seconds((9.0,) * 4, 0.01) == 0.0, "too few"


# -- sizing


def loaded(members_worth: float, replicas: int, *, settling: float = 0.0, handoff: float = LONG, **more: float) -> View:
    items = tuple(entry(number, members_worth * 10.0, owner=f"m{number % replicas}") for number in range(20))
    config = structs.replace(CONFIG, sla_seconds=OBJECTIVE)
    given = view(items, replicas, config=config, **more)
    return replace(given, estimate=replace(given.estimate, restoring_seconds=handoff, settling_seconds=settling))


def decided(given: View, wanted: int) -> Sizing:
    state = ObjectiveState(wanted=wanted, stabilization=Stabilization(fit_since=1.0, fit_replicas=1))
    return make_policy("objective").decide(given, state)


def test_nothing_moves_and_nobody_goes_before_the_group_has_settled() -> None:
    """One would have done for ages; what is not read of the partitions that move looks like a fall."""
    left_alone = decided(loaded(0.5, 3, settling=4.0), 3)
    assert (left_alone.replicas, left_alone.reason, left_alone.place) == (3, Reason.SETTLING, False)
    assert left_alone.text.endswith("the last moves are worked off in 4 s, and nothing moves before that")
    assert left_alone.state.stabilization.fit_since is None, "time that is not seen is no quiet time"
    assert decided(loaded(0.5, 3), 3).place


def test_what_the_moves_have_stopped_is_no_load() -> None:
    """18 busy seconds wait, 5 of them late: as much as comes in 10 s."""
    waits = {"backlog": 13.0, "late": 5.0}
    assert decided(loaded(1.8, 2, **waits), 2).replicas > 2
    assert decided(loaded(1.8, 2, settling=4.0, **waits), 2).replicas == 2
    more = {"backlog": 60.0, "late": 5.0}
    assert decided(loaded(1.8, 2, settling=4.0, **more), 2).replicas > 2, "no more came in 10 s than 18"
    assert decided(loaded(2.5, 2, settling=4.0, **waits), 2).replicas == 3, "the rate is"


@pytest.mark.parametrize(("handoff", "seconds"), [(0.015, 2.0), (2.5, 2.0), (2.6, 40.0), (3.5, 300.0)])
def test_a_replica_stays_until_the_share_permits_what_its_moves_make_late(handoff: float, seconds: float) -> None:
    """A tenth of a second too long, twice, for half of the load: 0.2 s of all work, of which 0.05 % may be late."""
    config = structs.replace(CONFIG, sla_seconds=OBJECTIVE, sla_share=0.99)
    given = replace(loaded(1.5, 2, handoff=handoff), config=config)
    assert window_min(given) == pytest.approx(seconds)


def test_a_replica_helps_when_its_first_partition_is_restored() -> None:
    config = PlanConfig(decision_seconds=1.0)
    assert answer_seconds(3.0, 0.015, config) == 5.0
    assert answer_seconds(3.0, 10.0, config) == 14.0


# -- placement


def spread(handoff: float, owners: tuple[str, ...]) -> int:
    """Moves for 12 partitions of 0.1 busy seconds/s."""
    items = tuple(entry(number, 20.0, owner=owners[number % len(owners)]) for number in range(12))
    uneven = tuple(structs.replace(item, owner="m0") if number < 8 else item for number, item in enumerate(items))
    bins = tuple(Bin(member=f"m{number}", unit=f"i-m{number}", capacity=1.0) for number in range(3))
    limits = Limits(objective_seconds=OBJECTIVE, restoring_seconds=handoff)
    return len(Trim().pack(Problem(items=uneven, bins=bins, limits=limits)).moves)


def test_a_dear_move_spreads_load_to_newcomers_alone() -> None:
    """m0 has eight of twelve, which it can do; the others have the rest."""
    assert spread(0.015, ("m1", "m2")) > 0
    assert spread(LONG, ("m1", "m2")) == 0
    assert spread(LONG, ("m1",)) > 0, "m2 owns nothing"


# -- in a group


def played(seconds: int, handoff: float) -> Outcome:
    """A step up and down every 75 s, by chance, where a partition's new owner takes so long to restore its state."""
    per_second = tuple(200.0 if second // 75 % 2 == 0 else 300.0 for second in range(seconds))
    partitions = tuple(Partition("t", number) for number in range(12))
    load = Load(
        per_second=per_second, partitions=partitions, shares=((1.0 / 12,) * 12,), arrivals="poisson", keys="random"
    )
    config = PlanConfig(sla_seconds=15.0, sla_share=0.99, startup_seconds=3.0)
    protocol = dataclasses.replace(PROTOCOLS["loadtrim"], handoff_seconds=(0.8 * handoff, handoff))
    options = Options(costs=Costs(mean_seconds=0.01), startup_seconds=3.0, replicas=2, seed=1, protocol=protocol)
    return simulate(load, config, options)


@pytest.mark.slow
def test_members_that_restore_state_are_not_moved_to_death() -> None:
    """Each answer to what a move had stopped made further moves: 77 % in time with 15 scalings and 92 moves."""
    restored = played(225, LONG)
    assert restored.share_in_time_from(30) > 0.98
    assert restored.scalings(30) <= 7
    assert restored.moves <= 30
