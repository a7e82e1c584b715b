"""Members that die, come late or never, and leaders that follow each other, while the replicas change."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from msgspec import structs

from loadtrim_agent.planning.planner import Planner, scale_request
from loadtrim_agent.planning.registry import make_planner
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.wire.ownership_records import ManualOverrideRecord
from loadtrim_agent.wire.telemetry_records import DecisionRecord
from unit.planning.virtual_group import COST, Fleet, T, even, steps

CONFIG = PlanConfig(group="g", sla_seconds=0.5, startup_seconds=3.0)
ONE = 1.0 / COST
"""Records/s that one member can do."""
NEVER = 10**6


def until_victims(group: Fleet, moves: bool = True) -> DecisionRecord:
    """Run the group until somebody is to go; without the moves of that decision if so."""
    while True:
        group.tick()
        decision = group.decide()
        assert group.second < 60
        if decision.victims and not moves:
            return decision
        group.apply(decision)
        if decision.victims:
            return decision


def following(group: Fleet, *decisions: DecisionRecord) -> Planner:
    """Return the planner of the next leader, which reads what was reported and decided."""
    planner = make_planner(group.config)
    for report, received_at in group.reports:
        planner.observe(report, received_at)
    for decision in decisions:
        planner.remember(decision)
    return planner


# -- victims that need not go any more, or are gone ------------------------------------------------------------------


def test_replicas_that_somebody_else_set_work_as_long_as_they_stand() -> None:
    """They were drained: the scaler left them, and whoever had added them paid for pods that did nothing."""
    group = Fleet(structs.replace(CONFIG, min_replicas=2), even(8, 150.0), members=4)
    group.standing = 4
    decision = group.run(60)
    assert (decision.replicas_wanted, decision.victims) == (2, ())
    assert "4 replicas stand that somebody else set" in decision.reason
    request = scale_request(decision, group.state(), group.config)
    assert (request.replicas, request.settled) == (2, 2)
    group.standing = None
    decision = group.run(5)
    assert (decision.replicas_wanted, len(decision.victims)) == (2, 2)
    request = scale_request(decision, group.state(), group.config)
    assert request.settled == 2


@pytest.mark.parametrize("dies", ["another", "the victim"])
def test_a_member_that_dies_beside_a_victim_takes_its_place(dies: str) -> None:
    """One of three was to go. Two are left, so that nobody is: neither the one that has gone nor the drained one."""
    group = Fleet(CONFIG, even(8, 1.2 * ONE), members=3)
    (victim,) = until_victims(group).victims
    assert scale_request(group.history[-1], group.state(), CONFIG).victims == (group.members[victim].instance,)
    group.remove(victim if dies == "the victim" else max(group.members.keys() - {victim}))
    decision = group.step()
    request = scale_request(decision, group.state(), CONFIG)
    assert (decision.victims, request.victims, request.replicas) == ((), (), 2)


def test_a_dead_leader_s_victims_are_those_of_the_next_one() -> None:
    """Though another one would be cheaper to empty by now: it would begin to drain, and the first one work again."""
    group = Fleet(CONFIG, even(12, 1.2 * ONE), members=4)
    decision = until_victims(group, moves=False)
    assert len(decision.victims) == 2
    leader, (gone, victim) = group.state().leader, decision.victims
    group.remove(leader)
    group.remove(gone)
    group.join()
    group.owners = dict.fromkeys(group.partitions, victim)
    assert following(group, decision).decide(group.now, group.state()).victims == (victim,)
    assert following(group).decide(group.now, group.state()).victims != (victim,), "by what it costs it is another one"


@pytest.mark.parametrize("every", [1, 2])
def test_patience_goes_on_where_leaders_follow_each_other(every: int) -> None:
    """A new leader each second, or each other one: the group is made smaller in the second in which one would do it."""
    rates = steps(8, (0, 500.0), (40, 120.0))
    group, alone = Fleet(CONFIG, rates, members=3), Fleet(CONFIG, rates, members=3)
    waited = 0
    for second in range(60):
        alone.run_scaled(1)
        if group.history and second % every == 0:
            group.planner = following(group, group.history[-1])
        group.run_scaled(1)
        waited += group.history[-1].reason_code == "patience"
    assert waited >= 2, "there was patience to be handed on"
    assert [each.replicas_wanted for each in group.history] == [each.replicas_wanted for each in alone.history]
    assert group.history[-1].replicas_wanted == 1


# -- pods that come late, or never -----------------------------------------------------------------------------------


def asked(startup: int, rates: Callable[[int], list[float]], seconds: int, **changes: object) -> list[int | None]:
    group = Fleet(structs.replace(CONFIG, **changes), rates, members=1)  # type: ignore[arg-type]
    group.run_scaled(40)
    numbers = []
    for _ in range(seconds):
        group.run_scaled(1, startup=startup)
        numbers.append(group.requested)
    return numbers


def test_a_start_that_takes_thirty_decisions_is_asked_for_once() -> None:
    numbers = asked(30, steps(16, (0, 0.75 * ONE), (40, 4.5 * ONE)), 60, startup_seconds=30.0)
    assert set(numbers) == {6}


def test_pods_that_never_start_are_not_asked_for_in_ever_larger_numbers() -> None:
    """What has piled up meanwhile wants some more; that has an end below the partitions, and stands then."""
    numbers = asked(NEVER, steps(16, (0, 0.75 * ONE), (40, 4.5 * ONE)), 150)
    changes = sum(before != after for before, after in pairwise(numbers))
    assert changes <= 5
    assert len(set(numbers[50:])) == 1
    assert (numbers[-1] or 0) < 16


# -- members that own something and have never reported --------------------------------------------------------------


def test_a_replica_that_comes_and_is_not_heard_is_no_reason_for_fewer() -> None:
    """What its partitions get is seen by nobody, and looked like a fall: the one member that reported was let go."""
    rates = steps(12, (0, 0.7 * ONE), (60, 1.5 * ONE))
    group = Fleet(structs.replace(CONFIG, sla_seconds=1.0), rates, members=1)
    group.silent = {"m02"}
    group.run_scaled(90)
    assert "m02" in group.owners.values(), "it was asked for, came, and was given something"
    assert "down" not in {decision.outcome for decision in group.history}
    assert group.history[-1].reason.endswith("no report from pod-02 yet.")


def test_time_in_which_an_owner_was_not_heard_is_no_patience() -> None:
    """The smaller group has not been seen to fit while a part of the load was not seen."""
    group = Fleet(CONFIG, steps(8, (0, 1.5 * ONE), (10, 0.25 * ONE)), members=2)
    group.run(10)
    group.remove("m02")
    name = group.join("pod-02")
    group.owners = {entry: owner or name for entry, owner in group.owners.items()}
    group.silent = {name}
    unheard = [group.step() for _ in range(4)]
    assert {decision.replicas_wanted for decision in unheard} == {2}
    assert "no report from pod-02 yet, so it will not be fewer" in unheard[-1].reason
    assert unheard[-1].reason_code == "blind"
    assert "fit_since" not in unheard[-1].state
    group.silent = set()
    group.run(10)
    assert group.history[-1].replicas_wanted == 1


def test_a_group_of_which_nobody_reports_says_so() -> None:
    """It said that nothing is measured, for ever, and no cause."""
    group = Fleet(CONFIG, even(4, 100.0), members=1)
    group.silent = {"m01"}
    assert group.run(10).reason == "Hold at 1 replica: 0 of 3 s of arrivals are measured; no report from pod-01 yet."


# -- before anything is measured -------------------------------------------------------------------------------------


def order(group: Fleet, action: str, replicas: int | None = None) -> None:
    group.manual_override = ManualOverrideRecord(group="g", member="cli", at=T, action=action, replicas=replicas)


def asked_unmeasured(group: Fleet) -> tuple[bool, int, tuple[str, ...]]:
    """Decide before anybody has reported, move what is to be moved, and return what is asked for then."""
    decision = group.decide()
    group.apply(decision)
    request = scale_request(decision, group.state(), group.config)
    group.second += 1
    return request.ask, request.replicas, request.victims


def test_fewer_by_the_command_line_are_drained_before_anything_is_measured() -> None:
    """``loadtrim scale G 1`` waited until the first record was done, which may take minutes."""
    group = Fleet(CONFIG, even(4, 100.0), members=3)
    order(group, "scale", 1)
    assert asked_unmeasured(group) == asked_unmeasured(group) == (True, 1, ("pod-02", "pod-03"))
    assert [decision.outcome for decision in group.history] == ["down", "none"]
    assert group.history[0].reason.startswith("1 replica (3 there): 0 of 3 s of arrivals are measured; fixed by ")
    assert set(group.owners.values()) == {"m01"}
    order(group, "resume")
    assert asked_unmeasured(group) == (True, 3, ()), "nobody is ended any more"
    assert group.history[-1].outcome == "hold"
    assert group.history[-1].moves == (), "and until a load is known nobody is given anything back"
    order(group, "scale", 3)
    assert asked_unmeasured(group) == (True, 3, ())
    assert (group.history[-1].victims, len(set(group.owners.values()))) == ((), 3)


@pytest.mark.parametrize("changes", [{"mode": "shadow"}, {"can_scale": False}])
def test_fewer_are_advice_where_nothing_is_scaled(changes: dict[str, object]) -> None:
    group = Fleet(structs.replace(CONFIG, **changes), even(4, 100.0), members=2)
    order(group, "scale", 1)
    asked_unmeasured(group)
    assert (group.history[-1].victims, group.history[-1].moves) == ((), ())


def test_more_than_the_maximum_are_drained_after_a_start_before_anything_is_measured() -> None:
    group = Fleet(structs.replace(CONFIG, max_replicas=2), even(4, 100.0), members=3)
    kept, fewer = (False, 3, ()), (True, 2, ("pod-03",))
    assert [asked_unmeasured(group) for _ in range(5)] == [kept] * 3 + [fewer] * 2
    assert "2 are the most that the settings allow (LOADTRIM_MAX_REPLICAS)" in group.history[-1].reason
