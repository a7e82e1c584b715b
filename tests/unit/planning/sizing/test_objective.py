"""The pool is sized by work curves: up at once, down with patience, and no replica where none can help."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.planning.placement.lateness import LongestFirst
from loadtrim_agent.planning.placement.problem import Item, Limits
from loadtrim_agent.planning.queueing import share_late
from loadtrim_agent.planning.registry import make_policy
from loadtrim_agent.planning.sizing.ineffective_scaling import _all_own
from loadtrim_agent.planning.sizing.need import CHANCE, explain, needed
from loadtrim_agent.planning.sizing.present import PresentPlacement
from loadtrim_agent.planning.values import TAUS_SECONDS, ArrivalCurve, Estimate, PlanConfig, Sizing
from unit.planning.sizing.test_policy import CONFIG, answer_of, entry, memory_of, view
from unit.planning.sizing.test_policy import seconds as seconds_of

PER_MEMBER = 200.0
"""Records/s of 5 ms that one member can do."""


class Run:
    """Decisions one after the other, the memory handed on, as the planner does it."""

    def __init__(self, replicas: int, **more: Any) -> None:
        self.replicas = replicas
        self.now = 1_000.0
        self.memory: dict[str, float] = {}
        self.more = more
        self.last: Sizing | None = None

    def at(self, members_worth: float, *, after: float = 1.0, arrived: bool = True, **more: Any) -> Sizing:
        """A decision ``after`` s at so many members' load; ``arrived``: what was wanted is there."""
        self.now += after
        owners = more.pop("owners", self.replicas)
        items = tuple(
            entry(number, members_worth * PER_MEMBER / 20, owner=f"m{number % owners}") for number in range(20)
        )
        if "throughput" in more:
            more.setdefault("past", seconds_of(self.now, done=more["throughput"]))
        given = view(items, self.replicas, now=self.now, **(self.more | more))
        self.last = answer_of(make_policy("objective"), given, self.memory)
        self.memory = memory_of(self.last)
        if arrived:
            self.replicas = self.last.replicas
        return self.last


# -- how many


def test_the_mean_rate_may_take_98_percent() -> None:
    """W is long, so that only the rate binds: 1.95 of 2 members fit, 1.97 do not."""
    config = structs.replace(CONFIG, sla_seconds=5.0)
    assert Run(1, config=config).at(1.95).replicas == 2
    assert Run(1, config=config).at(1.97).replicas == 3


def dear(estimate: Estimate, cost: float) -> Estimate:
    """Return the same of records that cost so much, and of which nothing was seen yet."""
    taken = {"cost": cost, "in_hand_seconds": cost, "overhead_seconds": cost}
    return replace(estimate, series=(), dispersion=0.0, **taken)


def test_records_that_take_long_need_room_for_those_that_come_together_by_chance() -> None:
    """2.4 busy seconds/s in records of 4 s, 16 s to wait: with 3.2 members one of a thousand waits so long."""
    config = structs.replace(CONFIG, sla_seconds=20.0)
    given = view(tuple(entry(number, 0.2 * PER_MEMBER) for number in range(12)), 1, config=config)
    long = replace(given, estimate=dear(given.estimate, 4.0))
    need = needed(long, 2.4)
    assert (need.required, need.tau_seconds, need.pool) == (pytest.approx(3.2, abs=0.1), CHANCE, 4)
    assert share_late(2.4, 4.0, need.required, 16.0) == pytest.approx(0.001, rel=1e-4)
    told = "to do what comes together by chance within 20 s, of which a record is in hand for 4 s, takes 3.2"
    assert told in explain(long, need)
    tenth = replace(long, estimate=dear(given.estimate, 2.0))
    assert "within 20 s takes" in explain(tenth, need), "so little is not told"
    even = replace(long, estimate=replace(long.estimate, series=(2.4,) * 120))
    unsure = replace(long, estimate=replace(long.estimate, capacity_error=0.25))
    assert "; what the members can give, 1.0, may well be 25 % less" in explain(unsure, need)
    assert "may well be" not in explain(long, need)
    assert needed(even, 2.4).pool == 3, "they come at equal distances, as was seen for two minutes"


def test_what_a_record_is_in_hand_for_is_not_left_for_the_queue() -> None:
    """Of 20 s a batch and the one before take 8 s: what waits by chance has 12 s."""
    config = structs.replace(CONFIG, sla_seconds=20.0)
    given = view(tuple(entry(number, 0.2 * PER_MEMBER) for number in range(12)), 1, config=config)
    batches = dear(given.estimate, 1.0)
    batches = replace(batches, in_hand_seconds=9.0, overhead_seconds=9.0, dispersion=3.0)
    need = needed(replace(given, estimate=batches), 2.4)
    alone = needed(replace(given, estimate=replace(batches, in_hand_seconds=1.0)), 2.4)
    assert need.required > alone.required + 0.1


def test_where_the_mean_record_takes_longer_than_the_objective_the_others_have_a_quarter_of_it() -> None:
    """It was a square root of less than nothing. Of costs that vary by as much as their mean some are in time."""
    given = view((entry(0, 0.1 * PER_MEMBER),), 1)
    estimate = replace(dear(given.estimate, 9.0), grain=9.0, dispersion=9.0)
    required = needed(replace(given, estimate=estimate), 0.1).required
    assert share_late(0.1, 18.0, required, 0.125) == pytest.approx(0.001, rel=1e-4)


@pytest.mark.parametrize(
    ("cost", "dispersion", "keeps_up"), [(0.6, 0.0, True), (0.6, 0.6, False), (0.6, 0.001, True), (0.49, 0.0, False)]
)
def test_where_every_record_takes_longer_than_the_objective_replicas_only_keep_up(
    cost: float, dispersion: float, keeps_up: bool
) -> None:
    """None was in time with any number, and one replica after the other was asked for, up to one a partition."""
    items = tuple(entry(number, 0.1 * PER_MEMBER) for number in range(20))
    given = view(items, 3, late=1.0)
    seen = replace(dear(given.estimate, cost), grain=cost, dispersion=dispersion, late=1.0)
    long = replace(given, estimate=seen)
    need = needed(long, 2.0)
    assert (need.pool == 3) is keeps_up
    said = "to keep up takes 2.0; a record takes 0.6 s, so none is done within 0.5 s, whatever is there"
    assert (said in explain(long, need)) is keeps_up


def test_what_a_record_is_in_hand_for_is_told_as_it_is() -> None:
    """It was told as half of the objective, which is the most that is kept free for it."""
    given = view((entry(0, 0.1 * PER_MEMBER),), 1)
    long = replace(given, estimate=replace(dear(given.estimate, 0.4), overhead_seconds=0.25))
    assert "within 0.5 s, of which a record is in hand for 0.4 s, takes" in explain(long, needed(long, 0.1))


@pytest.mark.parametrize(("objective_seconds", "replicas"), [(0.5, 3), (10.0, 2), (100.0, 2)])
def test_the_error_of_a_level_counts_where_an_error_would_be_late(objective_seconds: float, replicas: int) -> None:
    """1.95 of a member's load: with a horizon of 5 s and an objective of 10 an error is seen before it is late.

    The error is 0.1 by single seconds, and 0.012 by the sums that a longer objective allows. With it, a third member
    would be asked for: two do up to 1.96.
    """
    run = Run(1, config=structs.replace(CONFIG, sla_seconds=objective_seconds))
    waits = run.at(1.95, error=0.1, lag=1, lag_seconds=0.8 * objective_seconds, owners=1)
    assert waits.replicas == replicas


def test_bursts_need_more_than_the_mean() -> None:
    """All of a second at once: work w in W - o = 0.485 s needs w / 0.485 members."""
    at_once = ArrivalCurve((1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 5.0), (0.0,) * 7)
    items = tuple(entry(number, 0.9 * PER_MEMBER / 8, mean=(0.9 / 8,) * 5 + (1.8 / 8, 4.5 / 8)) for number in range(8))
    need = needed(view(items, 1, curve=at_once), 0.9)
    assert need.pool == 2
    assert need.required == pytest.approx(0.9 / 0.485)
    assert need.tau_seconds == 0.0
    answer = answer_of(make_policy("objective"), view(items, 1, curve=at_once))
    assert answer.replicas == 2
    assert "burst" in answer.text


def test_a_standard_deviation_is_kept_free() -> None:
    rough = ArrivalCurve(TAUS_SECONDS, (0.6,) * len(TAUS_SECONDS))
    assert Run(2).at(1.9).replicas == 2
    assert Run(2, curve=rough).at(1.9).replicas == 3


def test_a_standing_backlog_is_worked_off() -> None:
    assert Run(2).at(1.9).replicas == 2
    assert Run(2, backlog=0.9).at(1.9).replicas == 2
    assert Run(2, backlog=6.0).at(1.9).replicas > 10, "what waits and is not yet late wants W"


def test_late_work_is_worked_off_soon_where_a_doubled_group_can() -> None:
    """What is behind it is late as long as it is there, and it takes the same replica-time soon or slowly."""
    assert Run(2, late=1.0).at(1.5).replicas == 2, "0.1 of a member for 10 s"
    assert Run(2, late=12.0).at(1.5).replicas == 3, "1.2 members for 10 s"
    assert Run(2, late=12.0, startup_seconds=20.0).at(1.5).replicas == 2, "a replica must stay longer than it starts"
    easy = structs.replace(CONFIG, sla_share=0.8)
    assert Run(2, late=12.0, config=easy).at(1.5).replicas == 2, "a minute of late records in five is permitted"


def test_a_large_late_backlog_at_most_doubles_the_group_unless_its_time_asks_for_more() -> None:
    assert Run(2, late=200.0).at(1.9).replicas == 4
    assert Run(2, late=3000.0).at(1.9).replicas == 13, "3000 s in 300 s take 10 members"
    quick = structs.replace(CONFIG, catchup_seconds=30.0)
    assert Run(2, late=200.0, config=quick).at(1.9).replicas == 9


def test_one_partition_too_large_is_said_and_not_answered() -> None:
    """One of 3 members' work beside nine small ones: the rest needs one more member, never three."""
    items = (
        entry(0, 3.0 * PER_MEMBER, unsplittable=True),
        *(entry(number, 0.09 * PER_MEMBER) for number in range(1, 10)),
    )
    answer = answer_of(make_policy("objective"), view(items, 2))
    assert answer.replicas == 2
    assert "orders-0" in answer.text
    assert "too large" in answer.text


def test_whole_partitions_that_do_not_divide_ask_for_another_member() -> None:
    """Three of 0.65: two members have the capacity, but two on one member are late."""
    items = tuple(entry(number, 0.65 * PER_MEMBER) for number in range(3))
    answer = answer_of(make_policy("objective"), view(items, 2))
    assert (answer.replicas, answer.reason) == (3, "placement")
    assert "the share permits 0.1 % over time" in answer.text
    kept = answer_of(make_policy("objective:placement_gain=5"), view(items, 2))
    assert kept.replicas == 2
    assert "late" in kept.text


WELL = {"m0": (0.49, 0.49), "m1": (0.32, 0.32, 0.32)}
"""Just fits; dealt out largest first it is 0.81 and 1.13."""


def lying(owned: dict[str, tuple[float, ...]]) -> tuple[Item, ...]:
    works = [(member, work) for member, each in owned.items() for work in each]
    return tuple(entry(number, work * PER_MEMBER, owner=member) for number, (member, work) in enumerate(works))


def test_partitions_that_lie_better_than_they_can_be_dealt_out_ask_for_nobody() -> None:
    items = lying(WELL)
    assert late_dealt(items, 2, 1.0) > 0.9
    answer = answer_of(make_policy("objective"), view(items, 2))
    assert (answer.replicas, answer.reason) == (2, "fits")
    assert (
        answer_of(make_policy("objective"), view(items, 3)).replicas == 3
    )  # it is not known how they would lie on two


def test_what_a_move_mends_asks_for_nobody() -> None:
    """0.96 and 0.98 after an exchange of the first ones."""
    badly = lying({"m0": (0.49, 0.32, 0.32), "m1": (0.32, 0.49)})
    assert answer_of(make_policy("objective"), view(badly, 2)).replicas == 2
    counting = structs.replace(CONFIG, packer="sticky")
    assert answer_of(make_policy("objective"), view(badly, 2, config=counting)).replicas == 3


def test_what_is_late_alone_does_not_hide_that_the_others_lie_well() -> None:
    """One partition is larger than any member: nothing helps it, and nothing is asked for."""
    items = lying({"m0": (0.48, 0.48), "m1": (0.315, 0.315, 0.315), "m2": (1.3,)})
    items = (*items[:5], structs.replace(items[5], unsplittable=True))
    answer = answer_of(make_policy("objective"), view(items, 3))
    assert (answer.replicas, answer.reason) == (3, "unsplittable")


def test_what_a_move_would_mend_does_not_depend_on_what_was_asked_first() -> None:
    items = lying({"m0": (0.26, 0.38, 0.38), "m1": (0.4, 0.35), "m2": (0.49, 0.55)})
    given = view(items, 3)
    present, again = PresentPlacement(given), PresentPlacement(given)
    again.late(3, 1.05)
    assert present.late(3, 1.0) == again.late(3, 1.0)


def late_dealt(items: tuple[Item, ...], count: int, objective_seconds: float = 0.5) -> float:
    """With so many members of capacity 1, dealt out."""
    return LongestFirst(items, Limits(objective_seconds=objective_seconds, overhead_seconds=0.015)).late([1.0] * count)


def in_bursts(works: list[float], noise: float) -> tuple[Item, ...]:
    """All of a second's work at once, per partition, and how much of it varies from one second to the next."""
    return tuple(
        entry(number, work * PER_MEMBER, mean=(work,) * 5 + (2 * work, 5 * work), stddev=(work * noise,) * 7)
        for number, work in enumerate(works)
    )


def at_last(past: list[tuple[Item, ...]], now: tuple[Item, ...], replicas_max: int) -> int:
    """Replicas wanted after a past in which no more than ``replicas_max`` were to be had; now all may be."""
    at_once = ArrivalCurve((1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 5.0), (0.0,) * 7)
    memory: dict[str, float] = {}
    for second, items in enumerate(past):
        given = view(items, replicas_max, now=1000.0 + second, curve=at_once, replicas_max=replicas_max)
        memory = memory_of(answer_of(make_policy("objective"), given, memory))
    given = view(now, 4, now=1000.0 + len(past), curve=at_once)
    return answer_of(make_policy("objective"), given, memory | {"wanted": 4.0}).replicas


@pytest.mark.slow
def test_what_is_late_in_a_partition_that_has_a_member_to_itself_is_not_the_placements() -> None:
    """Two partitions near what one member can do: no replica helps them, so none is bought when the load falls."""
    hot = in_bursts([0.47, 0.47, *[0.1] * 7], noise=0.1)
    alone = [late_dealt(hot, count) for count in (5, 9)]
    assert alone == [0.0, 0.0]
    fallen = in_bursts([0.25, 0.25, *[0.09] * 7], noise=0.15)
    assert at_last([hot] * 60, fallen, 9) == at_last([fallen] * 60, fallen, 9) == 4


@pytest.mark.slow
def test_no_replica_that_brings_next_to_nothing_is_bought_to_make_up_for_the_past() -> None:
    """A time with too few replicas to keep the share; then a load at which four do as well as nine but for a hair."""
    badly = in_bursts([0.3] * 3, noise=0.1)
    now = in_bursts([0.25, 0.25, *[0.09] * 7], noise=0.15)
    late = [late_dealt(now, count) for count in (4, 9)]
    assert 0.0 < late[0] - late[1] < 0.001
    assert at_last([badly] * 60, now, 2) == 4


def wanted_at(share: float, loads: list[float]) -> list[int]:
    """Replicas that are wanted second by second for loads (members' worth) in one burst a second on 5 partitions."""
    at_once = ArrivalCurve((1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 5.0), (0.0,) * 7)
    memory: dict[str, float] = {}
    answers = []
    for second, load in enumerate(loads):
        part = load / 5
        items = tuple(entry(number, part * PER_MEMBER, mean=(part,) * 5 + (2 * part, 5 * part)) for number in range(5))
        config = structs.replace(CONFIG, sla_share=share)
        there = answers[-1] if answers else 1
        given = view(items, there, config=config, now=1000.0 + second, curve=at_once)
        sizing = answer_of(make_policy("objective"), given, memory)
        memory = memory_of(sizing)
        answers.append(sizing.replicas)
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("load", [1.3, 1.45, 1.58, 1.71])
def test_the_price_counts_the_replicas_that_there_are_not_those_that_would_be_kept(load: float) -> None:
    """With the margin of giving back one more would be kept: as long as it is not there, its good is not either."""
    at_once = ArrivalCurve((1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 5.0), (0.0,) * 7)
    items = in_bursts([load / 5] * 5, noise=0.058)
    config = structs.replace(CONFIG, sla_share=0.99)
    memory: dict[str, float] = {}
    wanted = 1
    for second in range(25):
        known = view(items, wanted, config=config, now=1000.0 + second, curve=at_once, error=0.01 * load)
        sizing = answer_of(make_policy("objective"), known, memory)
        memory, wanted = memory_of(sizing), sizing.replicas
    late = late_dealt(items, wanted)
    assert late <= 0.01 * load


@pytest.mark.slow
def test_what_was_saved_up_buys_no_smaller_group_under_a_constant_load() -> None:
    """Noise looked large for 80 s, so five were there and nothing was late. With three 2.2 % would be, 20 times what is
    permitted: for the seconds until that is spent, replicas are not sent away and called back."""
    at_once = ArrivalCurve((1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 5.0), (0.0,) * 7)
    known = {noise: in_bursts([1.23 / 5] * 5, noise) for noise in (0.1, 0.05)}
    late = late_dealt(known[0.05], 3)
    assert late == pytest.approx(0.022 * 1.23, rel=0.05)
    memory, wanted = {"wanted": 5.0}, []
    for second, noise in enumerate([0.1] * 80 + [0.05] * 10):
        given = view(known[noise], 5, now=1000.0 + second, curve=at_once, error=0.006)
        sizing = answer_of(make_policy("objective"), given, memory)
        memory = memory_of(sizing)
        wanted.append(sizing.replicas)
    assert set(wanted) == {5}


@pytest.mark.slow
def test_what_may_be_late_by_placement_follows_from_the_share() -> None:
    """A load that rises and falls: the less has to be in time, the fewer replicas are there for the placement."""
    swell = [1.2 + 0.5 * math.sin(second / 20.0) for second in range(250)]
    costs = [sum(wanted_at(share, swell)) for share in (0.9, 0.95, 0.999)]
    assert costs == sorted(set(costs))
    assert costs[0] < 0.9 * costs[-1]


@pytest.mark.slow
def test_under_a_constant_load_nothing_is_saved_up_and_spent() -> None:
    """At every level, whether partitions divide over it or not, the number stays once it is found."""
    for level in range(5, 25):
        answers = wanted_at(0.95, [level / 10.0] * 60)
        assert len(set(answers[5:])) == 1, level


def test_up_to_the_most_and_said() -> None:
    answer = Run(2, replicas_max=3).at(9.0)
    assert answer.replicas == 3
    again = Run(3, replicas_max=3).at(9.0)
    assert (again.replicas, again.reason) == (3, "at_max")
    assert "3" in again.text


def test_the_forecast_is_prepared_for() -> None:
    answer = Run(2).at(1.5, ahead=2.5)
    assert answer.replicas == 3
    assert "expected" in answer.text
    assert answer.load_factor == pytest.approx(2.5 / 1.5)


def test_without_load_the_least_is_enough() -> None:
    run = Run(3)
    run.at(0.0)
    assert run.at(0.0, after=3.0).replicas == 1


# -- when


def test_up_at_once_in_one_step() -> None:
    run = Run(1)
    assert run.at(0.9).reason == "fits"
    answer = run.at(6.5)
    assert (answer.replicas, answer.reason) == (7, "needs_more")
    assert answer.rejected[0].replicas == 1


def test_down_only_after_patience() -> None:
    run = Run(3)
    assert run.at(2.5).replicas == 3
    first = run.at(0.8)
    assert (first.replicas, first.reason) == (3, "patience")
    assert first.rejected[0].replicas == 1
    assert run.at(0.8).replicas == 3
    answer = run.at(0.8)
    assert (answer.replicas, answer.reason) == (1, "needs_less")


def falling(run: Run, members_worth: float, seconds: int) -> Sizing:
    """A decision a second later, under a load that has been seen to fall for so many seconds."""
    run.now += 1.0
    items = tuple(entry(number, members_worth * PER_MEMBER / 20) for number in range(20))
    given = view(items, run.replicas, now=run.now, **run.more)
    seen = replace(given.forecast, slope=-0.01 * members_worth, window_seconds=seconds)
    answer = answer_of(make_policy("objective"), replace(given, forecast=seen), run.memory)
    run.memory, run.replicas = memory_of(answer), answer.replicas
    return answer


def test_the_longer_the_load_has_been_falling_the_less_patience_is_needed() -> None:
    waited = {}
    for seconds in (8, 15, 30, 60):
        run = Run(3)
        run.at(2.5)
        waited[seconds] = next(number for number in range(10) if falling(run, 1.5, seconds).replicas == 2)
    assert waited == {8: 2, 15: 1, 30: 0, 60: 0}


def test_after_a_regret_a_falling_load_is_waited_for_like_any_other() -> None:
    run = Run(2)
    decisions_until_down(run)
    run.at(1.8)
    assert falling(run, 0.8, 60).reason == "patience"
    assert falling(run, 0.8, 60).reason == "patience"
    assert falling(run, 0.8, 60).reason == "patience"


def test_patience_starts_anew_when_the_load_comes_back() -> None:
    run = Run(3)
    run.at(0.8)
    run.at(2.5)
    assert run.at(0.8, after=5.0).reason == "patience"


def test_down_to_the_most_that_was_needed_meanwhile() -> None:
    run = Run(4)
    run.at(0.8)
    run.at(1.8)
    assert run.at(0.8).replicas == 2


def test_down_wants_a_margin() -> None:
    """1.94 members' worth fit two by a hair: a group of three stays."""
    run = Run(3)
    for _ in range(10):
        answer = run.at(1.94)
    assert (answer.replicas, answer.reason) == (3, "fits")
    assert answer.rejected[0].replicas == 2


def decisions_until_down(run: Run) -> int:
    for count in range(1, 400):
        if run.at(0.8).replicas == 1:
            return count
    raise AssertionError("never")


@pytest.mark.slow
def test_patience_doubles_after_a_regret_and_decays() -> None:
    run = Run(2)
    assert decisions_until_down(run) == 3
    run.at(1.8)
    assert decisions_until_down(run) == 5
    run.at(1.8)
    assert decisions_until_down(run) in (8, 9)
    run.at(1.8, after=60.0)
    slow = decisions_until_down(run)
    run.at(1.8, after=900.0)
    assert slow <= 9
    assert decisions_until_down(run) == 3


@pytest.mark.slow
@pytest.mark.parametrize(("startup", "decisions"), [(1.0, 3), (10.0, 5), (30.0, 23), (60.0, 67)])
def test_patience_is_longer_where_a_replica_takes_long_to_start(startup: float, decisions: int) -> None:
    """Twice what a slope that loses 3 % a second leaves of the start-up time: 30 - 19.4 s, 60 - 27.1 s."""
    run = Run(3, startup_seconds=startup)
    run.at(2.9)
    assert decisions_until_down(run) == decisions


@pytest.mark.slow
@pytest.mark.parametrize(("startup", "first", "then"), [(10.0, 5, 7), (30.0, 23, 31), (60.0, 67, 67)])
def test_a_regret_doubles_patience_which_adds_nothing_at_a_minute(startup: float, first: int, then: int) -> None:
    """It halves every minute, so that the longer half of two minutes is over when it counts."""
    run = Run(2, startup_seconds=startup)
    run.at(1.8)
    assert decisions_until_down(run) == first
    run.at(1.8)
    assert decisions_until_down(run) == then


@pytest.mark.slow
def test_an_up_long_after_a_down_is_no_regret() -> None:
    run = Run(2)
    decisions_until_down(run)
    run.at(1.8, after=20.0)
    assert decisions_until_down(run) == 3
    slow_start = Run(2, startup_seconds=30.0)
    decisions_until_down(slow_start)
    slow_start.at(1.8, after=20.0)
    assert decisions_until_down(slow_start) > 3


def test_patience_is_bounded() -> None:
    run = Run(2)
    for _ in range(12):
        run.memory["fit_since"] = 0.0
        run.at(0.8)
        run.at(1.8)
    assert run.memory["patience"] <= 300.0


# -- replicas that bring nothing


@pytest.mark.slow
def test_futile_scaling_is_noticed_and_not_repeated() -> None:
    """The group does 200 records/s however many there are: something else is the bottleneck."""
    stuck = {"late": 20.0, "backlog": 5.0, "throughput": 200.0}
    run = Run(2, replicas_max=20)
    assert run.at(1.9, throughput=200.0).replicas == 2
    grown = run.at(3.0, **stuck).replicas
    assert grown > 2
    answers = [run.at(30.0, **stuck) for _ in range(8)]
    assert {answer.reason for answer in answers[6:]} <= {"futile", "fits", "at_max"}
    held = run.replicas
    later = [run.at(30.0, late=400.0, backlog=200.0, throughput=200.0) for _ in range(100)]
    assert {answer.replicas for answer in later} == {held}


def test_who_has_shrunk_may_grow_again_to_where_it_was_futile() -> None:
    stuck = {"late": 20.0, "backlog": 5.0, "throughput": 200.0}
    run = Run(2, replicas_max=20)
    run.at(1.9, throughput=200.0)
    while "futile_until" not in run.memory:
        run.at(3.0, after=4.0, **stuck)
    found = run.replicas
    for _ in range(10):
        run.at(0.5, throughput=100.0)
    assert run.replicas == 1
    assert 1 < run.at(2.9, throughput=200.0).replicas < found
    assert run.at(19.0, throughput=200.0).replicas == found
    assert f"up to {found} brought no throughput" in (run.last.text if run.last else "")


def test_members_that_own_nothing_yet_are_not_judged() -> None:
    stuck = {"late": 20.0, "backlog": 5.0, "throughput": 200.0}
    run = Run(2, replicas_max=20)
    run.at(1.9, throughput=200.0)
    for _ in range(10):
        run.at(3.0, after=4.0, owners=2, **stuck)
    assert "futile_until" not in run.memory
    for _ in range(3):
        run.at(3.0, after=4.0, **stuck)
    assert "futile_until" in run.memory


def test_who_waits_for_its_first_partition_does_not_own_one() -> None:
    def of(*owners: str | None, moving: int | None = None) -> bool:
        items = tuple(
            structs.replace(entry(number, 20.0, owner=owner), movable=number != moving)
            for number, owner in enumerate(owners)
        )
        return _all_own(view(items, 3))

    assert of("m0", "m1", "m2")
    assert not of("m0", "m1", "m2", moving=2), "it is on its way"
    assert not of("m0", "m1", None), "nobody is no member"
    assert of("m0", "m1", "m2", None)


def test_what_an_older_leader_remembered_is_understood() -> None:
    """It knew no number of replicas that had been futile."""
    run = Run(2)
    run.at(1.9, throughput=200.0)
    run.memory |= {"futile_until": run.now + 300.0}
    assert run.at(2.9, throughput=200.0).replicas == 2


def test_replicas_that_helped_are_not_futile() -> None:
    run = Run(2, replicas_max=20)
    run.at(1.9, throughput=200.0)
    run.at(3.0, late=20.0, backlog=1.0, throughput=200.0)
    for _ in range(8):
        run.at(3.0, late=20.0, backlog=1.0, throughput=600.0)
    assert run.at(9.0, late=20.0, backlog=1.0, throughput=600.0).reason != "futile"


def test_a_backlog_that_went_away_is_not_futile() -> None:
    run = Run(2, replicas_max=20)
    run.at(1.9, throughput=200.0)
    run.at(3.0, late=20.0, throughput=200.0)
    for _ in range(8):
        run.at(3.0, throughput=200.0)
    assert run.at(9.0).reason == "needs_more"


def test_z_follows_the_share() -> None:
    assert PlanConfig(sla_share=0.999).z == pytest.approx(1.0)
    assert PlanConfig(sla_share=0.5).z == pytest.approx(0.0)
    assert PlanConfig(sla_share=0.99).z == pytest.approx(2.326 / 3.090, abs=1e-3)
