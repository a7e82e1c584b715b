"""Replicas are of no use where less is done than if each did its part, by more than chance."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from loadtrim_agent.planning.history import Second
from loadtrim_agent.planning.sizing.ineffective_scaling import ScalingEffect, before_up, watch
from loadtrim_agent.planning.sizing.policy import View
from unit.planning.sizing.test_policy import entry, view

BEGIN = 1_000
IN_TURN = (0, 1)
"""Half a record a second."""


class Watched:
    """A group that is saturated all the time, looked at once a second."""

    def __init__(self, replicas: int, cost: float, varies: bool = False) -> None:
        self.replicas, self.cost, self.varies = replicas, cost, varies
        self.done: list[int] = []
        self.idle: set[str] = set()
        """Members that have done nothing yet."""
        self.effect = ScalingEffect()

    def view(self) -> View:
        now = BEGIN + len(self.done)
        items = tuple(entry(number, 300.0, owner=f"m{number % self.replicas}") for number in range(12))
        past = tuple(
            Second(at=at, done=done, busy_seconds=0.0, given_seconds=0.0, latency_seconds=0.0, judged=0, lag=0)
            for at, done in enumerate(self.done, BEGIN + 1)
        )
        seen = view(items, self.replicas, lag=9, now=now + 0.3, late=1e4, throughput=float(self.done[-1]), past=past)
        dispersion = self.cost if self.varies else 0.0
        members = {
            name: replace(member, has_begun=name not in self.idle) for name, member in seen.estimate.members.items()
        }
        estimate = replace(seen.estimate, cost=self.cost, grain=self.cost, dispersion=dispersion, members=members)
        return replace(seen, estimate=estimate)

    def does(self, done: Sequence[int]) -> int:
        """Return how many replicas there were when the last of them brought nothing, after so many records a second."""
        found = 0
        for each in done:
            self.done.append(each)
            self.effect, found = watch(self.view(), self.effect)
            if found:
                break
        return found

    def up(self, replicas: int) -> None:
        self.effect = before_up(self.view(), self.effect)
        self.replicas = replicas


def test_a_group_that_does_no_more_with_twice_the_members_is_seen_at_once() -> None:
    group = Watched(2, cost=0.005)
    assert group.does([200] * 10) == 0
    group.up(4)
    assert group.does([200] * 7) == 4
    assert len(group.done) == 16, "five seconds after all of them own something"


def test_few_records_by_chance_make_no_replica_useless() -> None:
    """Of records of 2 s one member does half a one a second, two of them one. In their first seconds they did none."""
    group = Watched(1, cost=2.0, varies=True)
    assert group.does(IN_TURN * 20) == 0
    group.up(2)
    assert group.does([0] * 7) == 0
    assert group.effect.up_from == 1, "that is not known yet"
    assert group.does([2, 0] * 20) == 0
    assert group.effect.up_from is None, "now it is"


def test_what_cannot_be_told_from_chance_is_counted_for_as_long_as_before() -> None:
    """Twenty records tell a rate to a quarter, where what they cost varies by as much as its mean."""
    group = Watched(1, cost=2.0, varies=True)
    assert group.does(IN_TURN * 20) == 0
    group.up(2)
    assert group.does(IN_TURN * 19) == 0
    assert group.effect.up_from == 1
    assert group.does(IN_TURN * 3) == 0
    assert group.effect.up_from is None
    same = Watched(1, cost=2.0)
    same.does(IN_TURN * 20)
    same.up(2)
    assert same.does(IN_TURN * 20) == 2, "where all cost the same, that is no chance"


def test_replicas_that_come_after_others_are_counted_from_then_on() -> None:
    """Two were asked for together. The first came, and what both would have done was not done."""
    group = Watched(2, cost=0.005)
    group.does([400] * 10)
    group.up(3)
    assert group.does([600] * 4) == 0
    group.replicas = 6
    assert group.does([1200] * 5) == 0
    assert group.effect.up_from == 2
    assert group.does([1200] * 2) == 0
    assert group.effect.up_from is None


def test_replicas_that_are_asked_for_before_others_are_judged_are_judged_with_them() -> None:
    group = Watched(2, cost=0.005)
    group.does([200] * 10)
    group.up(3)
    group.does([200] * 3)
    group.up(4)
    assert group.does([200] * 7) == 4
    assert (group.effect.ineffective_replicas, group.effect.up_from) == (4, None)


def test_members_that_have_done_nothing_yet_are_not_judged() -> None:
    """A first record that loads a model takes ten seconds. Then the group was refused replicas for five minutes."""
    group = Watched(2, cost=0.005)
    assert group.does([400] * 10) == 0
    group.up(4)
    group.idle = {"m2", "m3"}
    assert group.does([400] * 12) == 0
    group.idle = set()
    assert group.does([800] * 7) == 0
    assert group.effect.up_from is None, "it is known, and they helped"


def test_a_member_that_never_does_anything_puts_the_judgement_off_for_as_long_as_a_wrong_one_lasts() -> None:
    group = Watched(2, cost=0.005)
    assert group.does([400] * 10) == 0
    group.up(4)
    group.idle = {"m2", "m3"}
    assert group.does([400] * 400) == 4
    assert len(group.done) == 10 + 300 + 6


def test_further_ups_do_not_put_off_the_judgement_of_members_that_never_do_anything() -> None:
    """Each began the wait anew: a group climbed to its maximum with replicas that brought nothing."""
    group = Watched(2, cost=0.005)
    assert group.does([400] * 10) == 0
    for replicas in (3, 4):
        group.up(replicas)
        group.idle = {f"m{number}" for number in range(2, replicas)}
        assert group.does([400] * 200) == (4 if replicas == 4 else 0)
    assert len(group.done) == 10 + 300 + 6
