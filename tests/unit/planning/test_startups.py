"""A replica is waited for from the request on: what its process does not see of its start-up, the leader sees."""

from __future__ import annotations

import pytest

from loadtrim.simulate import Costs, Options, PlanConfig, parse_generator, simulate
from loadtrim_agent.planning.startups import NO_ROOM_SECONDS, Startups
from loadtrim_agent.planning.values import GroupState, MemberState
from unit.planning.sizing.test_policy import CONFIG

TOLD_SECONDS = 1.0


def group(*instances: str, asked: int | None = None) -> GroupState:
    members = {name: MemberState(instance=name, topics=frozenset()) for name in instances}
    return GroupState(generation=1, leader="a", members=members, owners={}, replicas_requested=asked)


def after(*looks: tuple[float, GroupState]) -> float:
    """The start-up time after these looks."""
    startups = Startups()
    for at, state in looks:
        startups.look(at, state)
    return startups.seconds(TOLD_SECONDS, CONFIG)


def test_what_the_leader_sees_counts_where_it_is_longer() -> None:
    seen = after((0.0, group("a", asked=2)), (60.0, group("a", "b", asked=2)))
    assert seen == 60.0


def test_what_is_only_as_much_longer_as_the_leader_sees_it_later_counts_for_nothing() -> None:
    seen = after((0.0, group("a", asked=2)), (4.0, group("a", "b", asked=2)))
    assert seen == TOLD_SECONDS


def test_each_replica_is_waited_for_from_its_own_request() -> None:
    """The lower of two counts."""
    looks = (0.0, group("a", asked=2)), (30.0, group("a", asked=3)), (40.0, group("a", "b", asked=3))
    assert after(*looks) == 40.0
    assert after(*looks, (50.0, group("a", "b", "c", asked=3))) == 20.0


def test_what_is_not_asked_for_any_more_is_not_waited_for() -> None:
    looks = (0.0, group("a", asked=2)), (30.0, group("a", asked=1)), (40.0, group("a", asked=2))
    assert after(*looks, (50.0, group("a", "b", asked=2))) == 10.0


def test_those_there_at_the_first_look_were_not_waited_for() -> None:
    seen = after((0.0, group("a", "b", asked=2)), (60.0, group("a", "b", asked=2)))
    assert seen == TOLD_SECONDS


def test_one_that_is_lost_was_not_asked_for() -> None:
    """A machine that is gone is given up after minutes, and a crash loop backs off: neither is a start."""
    six = group(*"abcdef", asked=6)
    assert after((0.0, six), (45.0, group(*"abc", asked=6)), (120.0, group(*"abcxyz", asked=6))) == TOLD_SECONDS
    assert after((0.0, six), (45.0, group(*"abcde", asked=6)), (120.0, six)) == TOLD_SECONDS


def test_what_replaces_a_lost_one_is_not_the_one_that_never_came() -> None:
    """Without room for the fifth, each pod that was deployed anew was taken for it."""
    waiting = (0.0, group(*"abcd", asked=4)), (1.0, group(*"abcd", asked=5))
    assert after(*waiting, (100.0, group(*"abc", asked=5)), (105.0, group(*"abce", asked=5))) == TOLD_SECONDS


def test_one_sample_that_was_long_is_outvoted() -> None:
    looks = [(0.0, group("a", asked=1)), (1.0, group("a", asked=2)), (101.0, group("a", "b", asked=2))]
    assert after(*looks) == 100.0
    assert after(*looks, (200.0, group("a", "b", asked=3)), (210.0, group("a", "b", "c", asked=3))) == 10.0


def test_the_next_leader_goes_on_from_what_was_seen() -> None:
    startups = Startups()
    for seconds in (3.0, 60.0, None, 2.0 * NO_ROOM_SECONDS):
        startups.remember(seconds)
    assert startups.seconds(TOLD_SECONDS, CONFIG) == 60.0
    startups.look(0.0, group("a", asked=2))
    startups.look(20.0, group("a", "b", asked=2))
    assert startups.seconds(TOLD_SECONDS, CONFIG) == 20.0


def test_one_that_comes_unasked_says_nothing() -> None:
    seen = after((0.0, group("a", asked=None)), (60.0, group("a", "b", asked=None)))
    assert seen == TOLD_SECONDS


def test_what_took_too_long_was_no_start() -> None:
    """A cluster without room, or a request that a person answers in the morning, says nothing of the next start."""
    late = NO_ROOM_SECONDS + 1.0
    assert after((0.0, group("a", asked=2)), (late, group("a", "b", asked=2))) == TOLD_SECONDS
    waited = (0.0, group("a", asked=2)), (late, group("a", asked=2)), (late + 1.0, group("a", asked=3))
    assert after(*waited, (late + 61.0, group("a", "b", "c", asked=3))) == 60.0, "the request before it is forgotten"


def test_a_clock_that_is_set_back_makes_no_start_of_less_than_nothing() -> None:
    looks = (100.0, group("a", asked=2)), (50.0, group("a", asked=2)), (60.0, group("a", "b", asked=2))
    assert after(*looks) == 10.0


@pytest.mark.slow
def test_pods_on_new_machines_are_asked_for_in_time() -> None:
    """Of a minute their process sees two seconds: what was planned for was a group that answers at once."""
    load = parse_generator("cosine:mean=400,amplitude=240,period=300,seconds=450", 12)
    config = PlanConfig(group="g", sla_seconds=1.0, policy="objective")
    costs = Costs(mean_seconds=0.006)
    options = Options(replicas=3, costs=costs, startup_seconds=60.0, startup_unseen_seconds=58.0)
    outcome = simulate(load, config, options)
    told = [decision.startup_seconds for _, decision in outcome.decisions if decision.startup_seconds is not None]
    assert told[0] < 5.0
    assert 55.0 < told[-1] < 65.0
