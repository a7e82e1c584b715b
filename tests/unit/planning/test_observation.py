"""Reports become one observation: nothing counted twice, silence is not emptiness, what is gone is forgotten."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from loadtrim_agent.planning import observation
from loadtrim_agent.planning.observation import Average, History
from loadtrim_agent.planning.observed import Observation
from loadtrim_agent.planning.shape import shape_of
from loadtrim_agent.planning.values import TAUS_SECONDS, GroupState, MemberState, PlanConfig
from loadtrim_agent.wire.telemetry_records import PartitionReport, ReportRecord, WorkWindow
from unit.planning.virtual_group import TOPIC, T, partition

CONFIG = PlanConfig(group="g")


def group(*members: str, owners: dict[int, str | None] | None = None, joined_at: float = T) -> GroupState:
    return GroupState(
        generation=1,
        leader=members[0] if members else "",
        members={name: MemberState(joined_at=joined_at) for name in members},
        owners={partition(number): owner for number, owner in (owners or {}).items()},
    )


def entry(number: int, **more: Any) -> PartitionReport:
    return PartitionReport(topic=TOPIC, partition=number, **more)


def report(member: str, sequence: int, *entries: PartitionReport, **more: Any) -> ReportRecord:
    more.setdefault("slots_start", T + sequence)
    more.setdefault("slots", (0.05,) * 10)
    return ReportRecord(
        group="g", member=member, at=T + sequence + 1, sequence=sequence, generation=1, partitions=entries, **more
    )


def feed(history: History, seconds: int, member: str = "a", first: int = 0, **more: Any) -> None:
    more.setdefault("arrived", 100)
    for second in range(first, first + seconds):
        history.observe(report(member, second, entry(0, cost_mean=0.005, **more)), T + second + 1)


def seen(history: History, at: float, state: GroupState | None = None) -> Observation:
    return history.observation(T + at, state or group("a", owners={0: "a"}))


def test_rates_settle_at_the_rate() -> None:
    history = History(CONFIG)
    feed(history, 30)
    known = seen(history, 30).partitions[partition(0)]
    assert known.rate_slow == pytest.approx(100.0)
    assert known.rate_fast == pytest.approx(100.0)
    assert known.rate_last == 100.0
    assert known.rate_sd == pytest.approx(0.0, abs=1e-6)
    assert (known.cost, known.reporter, known.state) == (0.005, "a", "running")


def test_a_jump_of_the_rate_is_no_scatter() -> None:
    """From nothing to 100 records/s: what comes at random varies by 10, and the jump must not make it 50."""
    history = History(CONFIG)
    feed(history, 10, arrived=0)
    feed(history, 3, first=10)
    assert seen(history, 13).partitions[partition(0)].rate_sd < 15.0


def test_a_burst_in_the_first_moments_is_no_scatter() -> None:
    """A member's first report is about some milliseconds: 100 records in 0.04 s are no rate to compare others with."""
    history = History(CONFIG)
    history.observe(report("a", 0, entry(0, arrived=100, cost_mean=0.005), interval=0.04), T + 1)
    feed(history, 3, first=1)
    assert seen(history, 4).partitions[partition(0)].rate_sd == pytest.approx(0.0, abs=1e-6)


def test_the_first_report_is_believed_as_it_is() -> None:
    history = History(CONFIG)
    feed(history, 1)
    assert seen(history, 1).partitions[partition(0)].rate_slow == pytest.approx(100.0)


def test_the_fast_rate_follows_in_seconds_the_slow_one_in_tens() -> None:
    history = History(CONFIG)
    feed(history, 60)
    feed(history, 6, first=60, arrived=300)
    known = seen(history, 66).partitions[partition(0)]
    assert known.rate_fast > 270.0
    assert 130.0 < known.rate_slow < 180.0


def test_reports_seen_before_are_ignored_and_counted() -> None:
    history = History(CONFIG)
    feed(history, 5)
    before = seen(history, 5)
    feed(history, 5)
    assert history.ignored == 5
    assert seen(history, 5).slots == before.slots


def test_what_came_over_another_time_than_the_interval() -> None:
    """Asked only half of the second, 50 records; asked again after a hole, 300 in 3 s; not asked: nothing is known."""
    for arrived, observed in ((50, 0.5), (300, 3.0)):
        history = History(CONFIG)
        feed(history, 1, arrived=arrived, observed=observed)
        assert seen(history, 1).partitions[partition(0)].rate_slow == pytest.approx(100.0)
    history = History(CONFIG)
    feed(history, 10)
    feed(history, 3, first=10, arrived=0, observed=0.0)
    assert seen(history, 13).partitions[partition(0)].rate_slow == pytest.approx(100.0)


def test_no_word_of_a_partition_while_its_owner_reports_is_no_arrivals() -> None:
    history = History(CONFIG)
    feed(history, 20)
    for second in range(20, 40):
        history.observe(report("a", second), T + second + 1)
    known = seen(history, 40).partitions[partition(0)]
    assert known.rate_last == 0.0
    assert known.rate_fast < 1.0
    assert known.rate_slow < 60.0
    feed(history, 1, first=40)
    assert seen(history, 41).partitions[partition(0)].rate_fast < 60.0


def test_no_word_while_the_owner_is_silent_changes_nothing() -> None:
    history = History(CONFIG)
    feed(history, 20)
    assert seen(history, 60).partitions[partition(0)].rate_fast == pytest.approx(100.0)


def test_the_old_owners_last_word_does_not_overwrite_the_new_owners() -> None:
    history = History(CONFIG)
    feed(history, 10)
    history.observe(report("b", 10, entry(0, arrived=60, done=200, lag=7, cost_mean=0.004)), T + 11)
    history.observe(report("a", 10, entry(0, arrived=40, state="gone")), T + 11.1)
    known = seen(history, 11.1, group("a", "b", owners={0: "b"})).partitions[partition(0)]
    assert (known.reporter, known.lag, known.state, known.cost) == ("b", 7, "running", 0.004)


def test_gone_before_the_new_owner_speaks() -> None:
    history = History(CONFIG)
    feed(history, 10)
    history.observe(report("a", 10, entry(0, arrived=40, state="gone")), T + 11)
    assert partition(0) in seen(history, 11).partitions


def test_standing_records_are_the_fewest_or_what_was_there_before() -> None:
    history = History(CONFIG)
    feed(history, 1, lag=150, lag_min=20)
    assert seen(history, 1).partitions[partition(0)].standing_records == 20.0
    history = History(CONFIG)
    feed(history, 1, lag=150)
    assert seen(history, 1).partitions[partition(0)].standing_records == 50.0


def test_who_took_over_in_a_burst_does_not_call_it_a_standing_backlog() -> None:
    """It has seen the partition since the middle of the burst only: what its owner before told counts as well."""
    history, state = History(CONFIG), group("a", "b", owners={0: "b"})
    history.observe(report("a", 0, entry(0, arrived=100, lag=0, lag_min=0, cost_mean=0.005)), T + 1)
    history.observe(report("a", 1, entry(0, arrived=100, state="gone")), T + 2)
    history.observe(report("b", 0, entry(0, lag=40, lag_min=40, observed=0.2)), T + 2)
    assert seen(history, 2, state).partitions[partition(0)].standing_records == 0.0
    history.observe(report("b", 1, entry(0, arrived=100, lag=60, lag_min=35)), T + 3)
    assert seen(history, 3, state).partitions[partition(0)].standing_records == 35.0


def test_a_burst_is_no_backlog_either_where_the_partition_moves_in_every_interval() -> None:
    history, owners = History(CONFIG), "abcd"
    history.observe(report("a", 0, entry(0, arrived=100, lag=0, lag_min=0, cost_mean=0.005)), T + 1)
    for second, (before, owner) in enumerate(itertools.pairwise(owners), 2):
        history.observe(report(before, second, entry(0, arrived=50, state="gone")), T + second)
        history.observe(report(owner, 0, entry(0, lag=40, lag_min=40, observed=0.2)), T + second)
        state = group(*owners, owners={0: owner})
        assert seen(history, second, state).partitions[partition(0)].standing_records == 0.0


def test_windows_become_seconds_worth_of_mean_work() -> None:
    history = History(CONFIG)
    windows = (
        WorkWindow(seconds=0.1, mean=0.5, variance=0, largest=1),
        WorkWindow(seconds=5, mean=2.5, variance=0, largest=3),
    )
    feed(history, 1, work_windows=windows)
    assert seen(history, 1).partitions[partition(0)].shape == shape_of([(0.1, 1.0), (5.0, 5.0)])
    feed(history, 1, first=1)
    assert seen(history, 2).partitions[partition(0)].shape == shape_of([(0.1, 1.0), (5.0, 5.0)])


def test_windows_that_do_not_reach_over_a_second_tell_no_shape() -> None:
    """Who has just taken it over knows the half second around one burst, as if it came for half a second only."""
    history = History(CONFIG)
    short, long = (
        tuple(WorkWindow(seconds=tau, mean=0.5 * max(1.0, tau), variance=0, largest=1) for tau in taus)
        for taus in ((0.1, 0.25, 0.5), (0.1, 0.25, 0.5, 1.0, 2.0))
    )
    feed(history, 1, work_windows=short)
    assert seen(history, 1).partitions[partition(0)].shape == ()
    feed(history, 1, first=1, work_windows=long)
    shape = shape_of([(0.1, 1.0), (0.25, 1.0), (0.5, 1.0), (1.0, 1.0), (2.0, 2.0)])
    assert seen(history, 2).partitions[partition(0)].shape == shape
    history.observe(report("b", 0, entry(0, arrived=100, cost_mean=0.005, work_windows=short)), T + 3)
    assert seen(history, 3).partitions[partition(0)].shape == shape


@pytest.mark.parametrize("tiny", [5e-324, 1e-300, 9e-13])
def test_work_too_small_to_divide_by_is_none(tiny: float) -> None:
    """The ranges of the records allow it. Its quotients are no finite numbers, and no decision was made then."""
    history = History(CONFIG)
    windows = tuple(
        WorkWindow(seconds=seconds, mean=mean, variance=0.0, largest=mean)
        for seconds, mean in ((0.1, 1e24), (5.0, tiny))
    )
    history.observe(report("a", 0, entry(0, arrived=10, cost_mean=tiny, work_windows=windows)), T + 1)
    known = seen(history, 1).partitions[partition(0)]
    assert (known.cost, known.shape) == (None, ())


def test_a_second_that_two_owners_share_is_one_second() -> None:
    """All of it came while one of them had it: a burst a second is no scatter, whoever hears it."""
    history = History(CONFIG)
    feed(history, 20)
    for second, (old, new) in enumerate((("a", "b"), ("b", "c"), ("c", "d")), 20):
        history.observe(report(new, second, entry(0, arrived=100, cost_mean=0.005, observed=0.6)), T + second + 1)
        history.observe(report(old, second, entry(0, observed=0.4, state="gone")), T + second + 1.01)
    known = seen(history, 23.01, group("d", owners={0: "d"})).partitions[partition(0)]
    assert known.rate_sd == pytest.approx(0.0, abs=1e-6)
    assert known.rate_slow == pytest.approx(100.0, rel=0.02)


def test_slots_of_all_members_add_up_to_the_last_that_all_have_told() -> None:
    history = History(CONFIG)
    feed(history, 5)
    for second in range(4):
        history.observe(report("b", second, slots=(0.01,) * 10, speed=2.0), T + second + 1)
    both = group("a", "b", owners={0: "a", 1: "b"})
    slots = seen(history, 5, both).slots
    assert len(slots) == 40
    assert slots == pytest.approx([0.07] * 40)


def test_slots_of_another_length_are_left_out_and_counted() -> None:
    history = History(CONFIG)
    history.observe(report("a", 0, slot_seconds=0.5), T + 1)
    assert history.ignored == 1
    assert seen(history, 1).slots == ()


def test_further_parts_of_a_report_change_only_partitions() -> None:
    history = History(CONFIG)
    history.observe(report("a", 0, entry(0, arrived=10), instance="pod", busy_seconds=0.4), T + 1)
    history.observe(report("a", 1, entry(1, arrived=20), slots_start=0.0, slots=()), T + 1.01)
    known = seen(history, 1.1, group("a", owners={0: "a", 1: "a"}))
    assert known.members["a"].instance == "pod"
    assert known.members["a"].busy_seconds == 0.4
    assert len(known.slots) == 10
    assert known.partitions[partition(1)].rate_slow == pytest.approx(20.0)


def test_owners_without_a_recent_report_are_stale() -> None:
    history = History(CONFIG)
    feed(history, 5)
    state = group("a", "b", owners={0: "a", 1: "b"})
    assert seen(history, 5, state).stale == (("b", None),)
    assert seen(history, 8.0, state).stale == (("b", None),)
    assert [name for name, _ in seen(history, 8.1, state).stale] == ["a", "b"]
    fresh = group("a", "b", owners={0: "a", 1: "b"}, joined_at=T + 5)
    assert seen(history, 6.0, fresh).stale == ()
    idle = group("a", "b", owners={0: "a"})
    assert seen(history, 6.0, idle).stale == ()


def test_a_silent_members_arrivals_are_taken_to_go_on() -> None:
    history = History(CONFIG)
    for second in range(20):
        history.observe(report("a", second), T + second + 1)
        if second < 10:
            history.observe(report("b", second), T + second + 1)
    slots = seen(history, 20, group("a", "b", owners={0: "a", 1: "b"})).slots
    assert len(slots) == 200
    assert slots[50] == pytest.approx(0.1)
    assert slots[150] == pytest.approx(0.1, rel=0.05)


def test_a_silent_member_that_owns_nothing_hides_nobody_s_arrivals() -> None:
    """It is frozen, or is killed while it drains, and stays in the group for its session timeout."""
    history = History(CONFIG)
    for second in range(5):
        history.observe(report("b", second), T + second + 1)
    feed(history, 20)
    state = group("a", "b", owners={0: "a"})
    known = seen(history, 20, state)
    assert (known.silent, known.stale) == ({"b"}, ())
    assert len(known.slots) == 200
    assert known.slots[150] == pytest.approx(0.05)  # nothing is put in for one that gets nothing
    feed(history, 200, first=20)
    assert seen(history, 225, state).slots, "with everybody silent the last picture stays"


def test_handoffs_startups_and_lateness() -> None:
    history = History(CONFIG)
    history.observe(report("a", 0, handoffs=(0.01, -1.0), startup_seconds=4.0, late={"queued": 2}), T + 1)
    history.observe(report("b", 0, handoffs=(0.02,), startup_seconds=-1.0, late={"queued": 1, "blocked": 1}), T + 1)
    first = seen(history, 1)
    assert first.handoffs_seconds == (0.01, 0.02)
    assert first.startups_seconds == (4.0,)
    assert first.late_records == {"blocked": 1, "queued": 3}
    assert seen(history, 2).late_records == {}


def test_what_is_gone_for_five_minutes_is_forgotten() -> None:
    history = History(CONFIG)
    feed(history, 10, arrived=500)
    for second in (*range(10), *range(400, 410)):
        history.observe(report("b", second, entry(1, arrived=10)), T + second + 1)
    state = group("b", owners={1: "b"})
    assert len(seen(history, 410, state).slots) <= 3000
    before = history.ignored
    feed(history, 1, first=3)
    assert history.ignored == before, "its sequence starts anew"
    back = seen(history, 410, group("a", "b", owners={0: "a"}))
    assert back.partitions[partition(0)].rate_slow == pytest.approx(100.0)


def test_what_records_took_to_come_is_forgotten_after_five_minutes() -> None:
    """Its producers linger no more, or nothing is fetched as it comes; a leader that is new would know nothing."""
    history = History(CONFIG)
    for second in range(400):
        delay = 0.04 if second == 0 else 0.02 if second == 350 else None
        history.observe(report("a", second, entry(0), arrival_delay=delay), T + second + 1)
        known = seen(history, second + 1).members["a"].arrival_delay
        assert known == (0.04 if second <= 300 else None if second < 350 else 0.02), second


def leaving_group(history: History) -> None:
    """Two members with a partition each and 0.5 busy seconds/s each; ``b`` goes at 20.9 and told up to 20."""
    for second in range(20):
        for member, number in (("a", 0), ("b", 1)):
            history.observe(report(member, second, entry(number, arrived=100, cost_mean=0.005)), T + second + 1)
        seen(history, second + 1.1, group("a", "b", owners={0: "a", 1: "b"}))
    seen(history, 20.9, group("a", owners={0: "a", 1: "a"}))
    both = [entry(number, arrived=100, cost_mean=0.005) for number in (0, 1)]
    # From 20.9 on the new owner tells what comes for both.
    history.observe(report("a", 20, *both, slots=(0.05,) * 9 + (0.1,)), T + 21)
    history.observe(report("a", 21, *both, slots=(0.1,) * 10), T + 22)


def test_a_member_that_goes_without_a_word_is_no_dip_of_the_load() -> None:
    history = History(CONFIG)
    leaving_group(history)
    slots = seen(history, 22.1, group("a", owners={0: "a", 1: "a"})).slots
    assert slots[-20:] == pytest.approx([0.1] * 20, rel=0.05)


def test_the_last_word_of_a_member_that_is_gone_replaces_what_was_put_in_for_it() -> None:
    history = History(CONFIG)
    leaving_group(history)
    history.observe(report("b", 20, entry(1, arrived=45, state="gone"), slots=(0.05,) * 9), T + 22)
    slots = seen(history, 22.1, group("a", owners={0: "a", 1: "a"})).slots
    assert slots[-20:] == pytest.approx([0.1] * 20, rel=0.05)


def test_what_was_given_away_before_its_owner_went_is_not_put_in_twice() -> None:
    """The new owner tells from the handoff on, which is when the plan was made; the old one stays a little longer."""
    history = History(CONFIG)
    for second in range(21):
        for member, number in (("a", 0), ("b", 1)):
            if second < 20 or member == "a":
                history.observe(report(member, second, entry(number, arrived=100, cost_mean=0.005)), T + second + 1)
        seen(history, second + 1.0, group("a", "b", owners={0: "a", 1: "b" if second < 20 else "a"}))
    # "a" took it at 20.0 and says so a little later; "b" says nothing more and goes at 21.5.
    history.observe(report("a", 21, slots_start=T + 20.0, slots=(0.05,) * 10), T + 21.2)
    seen(history, 21.5, group("a", owners={0: "a", 1: "a"}))
    slots = seen(history, 21.6, group("a", owners={0: "a", 1: "a"})).slots
    assert slots[-10:] == pytest.approx([0.1] * 10, rel=0.05)


def test_what_was_advised_was_given_away_then_though_its_owner_went_before_the_next_look() -> None:
    """A victim is stopped as soon as it is empty: the new owner tells from the advice on."""
    history = History(CONFIG)
    for second in range(20):
        for member, number in (("a", 0), ("b", 1)):
            history.observe(report(member, second, entry(number, arrived=100, cost_mean=0.005)), T + second + 1)
        seen(history, second + 1.0, group("a", "b", owners={0: "a", 1: "b"}))
    history.advised([partition(1)])
    history.observe(report("a", 20, entry(0, arrived=100, cost_mean=0.005), slots=(0.1,) * 10), T + 21)
    slots = seen(history, 21.0, group("a", owners={0: "a", 1: "a"})).slots
    assert slots[-20:] == pytest.approx([0.1] * 20, rel=0.05)


def test_a_member_without_a_recent_report_is_silent_whether_it_owns_something_or_not() -> None:
    history = History(CONFIG)
    feed(history, 5)
    state = group("a", "b", "c", owners={0: "a"}, joined_at=T)
    assert seen(history, 3.0, state).silent == frozenset()
    known = seen(history, 6.0, state)
    assert known.silent == {"b", "c"}
    assert known.stale == ()


def test_halves_of_slots_add_up_and_are_halves_where_an_older_member_does_not_tell_them() -> None:
    history = History(CONFIG)
    history.observe(report("a", 0, slots=(0.2, 0.0), slots_second=(0.2, 0.0)), T + 1.2)
    history.observe(report("b", 0, slots=(0.1, 0.3), speed=2.0), T + 1.2)
    known = seen(history, 1.2, group("a", "b", owners={0: "a", 1: "b"}))
    assert known.slots == pytest.approx((0.4, 0.6))
    assert known.second_halves == pytest.approx((0.3, 0.3))


def test_slots_stay_whole_when_old_ones_are_dropped() -> None:
    history = History(CONFIG)
    for second in range(1200):
        history.observe(report("b", second, slots=(0.1, *[0.0] * 9), slots_second=(0.1, *[0.0] * 9)), T + second + 1)
        known = seen(history, second + 1, group("a", "b", owners={0: "a", 1: "b"}))
        assert known.second_halves == known.slots, "the other one is a second behind"
        history.observe(report("a", second, slots=(0.0,) * 10, slots_second=(0.0,) * 10), T + second + 1)


class TestTheOpeningSecond:
    """Slots end at T + 1.0; what is known of the second after it is told apart."""

    def test_the_members_add_up(self) -> None:
        history = History(CONFIG)
        history.observe(report("a", 0, slots_open=(0.0, 0.4)), T + 1.2)
        history.observe(report("b", 0, slots_open=(0.0, 0.2), speed=0.5), T + 1.2)
        known = seen(history, 1.2, group("a", "b", owners={0: "a", 1: "b"}))
        assert known.opening == pytest.approx(0.4 + 0.1)
        assert sum(known.slots) == pytest.approx(0.5 + 0.25)

    def test_slots_that_others_have_not_told_yet_count(self) -> None:
        history = History(CONFIG)
        history.observe(report("a", 0), T + 1.2)
        history.observe(report("b", 0, slots=(0.05,) * 12, slots_open=(0.3,)), T + 1.4)
        assert seen(history, 1.4, group("a", "b", owners={0: "a", 1: "b"})).opening == pytest.approx(0.1 + 0.3)

    def test_it_is_no_longer_than_a_second(self) -> None:
        """Else a burst of the second after it would look like a jump."""
        history = History(CONFIG)
        history.observe(report("a", 0), T + 1.2)
        history.observe(report("b", 0, slots=(0.0,) * 19, slots_open=(0.1, 0.7)), T + 2.1)
        assert seen(history, 2.1, group("a", "b", owners={0: "a", 1: "b"})).opening == pytest.approx(0.1)

    def test_a_later_report_takes_the_place_of_an_earlier_one(self) -> None:
        history = History(CONFIG)
        history.observe(report("a", 0, slots_open=(0.0, 0.4)), T + 1.2)
        history.observe(report("a", 1, slots=(0.0, 0.4, *[0.0] * 8), slots_open=(0.2,)), T + 2.2)
        assert seen(history, 2.2).opening == pytest.approx(0.2)

    def test_who_is_gone_tells_nothing(self) -> None:
        history = History(CONFIG)
        history.observe(report("a", 0), T + 1.2)
        history.observe(report("b", 0, slots_open=(0.0, 0.2)), T + 1.2)
        assert seen(history, 1.2).opening == 0.0


# -- numbers that nobody measured


def test_a_slot_of_tomorrow_is_not_taken_for_the_newest() -> None:
    """A stranger's report with slots 10^6 s ahead shut the real ones out for good."""
    history = History(CONFIG)
    feed(history, 5)
    history.observe(report("stranger", 0, slots_start=T + 1e6), T + 5)
    history.observe(report("stranger", 1, slots_start=T - 1e6), T + 5)
    assert history.left_out["slot_time"] == 2
    feed(history, 5, first=5)
    assert len(seen(history, 10).slots) == 100
    assert sum(seen(history, 10).slots) == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("part", "why"), [({"slots_start": T - 1e4}, "slot_time"), ({"slot_seconds": 0.5}, "slot_length")]
)
def test_a_member_whose_slots_are_left_out_is_not_heard(part: dict[str, float], why: str) -> None:
    """It counted as one for which nothing comes, so the group shrank under its load."""
    history = History(CONFIG)
    feed(history, 5)
    for second in range(5):
        history.observe(report("b", second, **part), T + second + 1)
    both = group("a", "b", owners={0: "a", 1: "b"})
    now = seen(history, 5.1, both)
    assert (now.silent, now.left_out, [member for member, _ in now.stale]) == ({"b"}, {"b": why}, ["b"])
    history.observe(report("b", 5), T + 6)
    feed(history, 1, first=5)
    assert (seen(history, 6.1, both).silent, seen(history, 6.1, both).left_out) == (frozenset(), {})


def test_a_member_whose_slots_are_forgotten_hides_nobody_s() -> None:
    """It told of the time five minutes ago, so nothing was left of what the other one told, and no plan was made."""
    history = History(CONFIG)
    feed(history, 5)
    for second in range(5):
        history.observe(report("b", second, slots_start=T + second - 300.0), T + second + 1)
    now = seen(history, 5.1, group("a", "b", owners={0: "a", 1: "b"}))
    assert len(now.slots) == 50
    assert now.left_out == {"b": "slot_time"}


def test_a_report_of_long_ago_among_others_silences_nobody() -> None:
    history = History(CONFIG)
    feed(history, 5)
    history.observe(report("a", 999, slots_start=T - 1e4), T + 5)
    assert seen(history, 5.1).stale == ()


def test_slots_are_compared_by_the_brokers_clock() -> None:
    """The leader's clock is an hour ahead: what the members tell is as near to the broker's stamp as ever."""
    history = History(CONFIG)
    for second in range(5):
        history.observe(report("a", second), T + 3600 + second + 1, T + second + 1)
    assert history.ignored == 0
    assert len(seen(history, 3605).slots) == 50


@pytest.mark.parametrize("ago", [500.0, 1e5, T - 0.1])
def test_what_a_member_did_not_tell_is_filled_for_minutes_at_most(ago: float) -> None:
    """Each 0.1 s since then was filled: 1.3 s and 468 MB for three days, and from 1970 on the process was killed."""
    history = History(CONFIG)
    feed(history, 5)
    history.observe(report("b", 0, entry(1, arrived=100, cost_mean=0.005), slots_start=T - ago), T + 5, T - ago)
    both = group("a", "b", owners={0: "a", 1: "b"})
    history.observation(T + 5, both)
    history.observation(T + 6, group("a", owners={0: "a", 1: "a"}))
    assert len(history._filled["b"]) <= 2400


def test_a_member_goes_while_the_leaders_clock_is_a_day_ahead() -> None:
    history, day = History(CONFIG), 86_400.0
    for second in range(5):
        for number, member in enumerate("ab"):
            told = report(member, second, entry(number, arrived=100, cost_mean=0.005))
            history.observe(told, T + day + second + 1, T + second + 1)
    history.observation(T + day + 5, group("a", "b", owners={0: "a", 1: "b"}))
    history.observation(T + day + 6, group("a", owners={0: "a", 1: "a"}))
    assert len(history._filled["b"]) <= 700
    assert len(seen(history, day + 6).slots) == 50


def test_a_made_up_sequence_does_not_silence_its_member() -> None:
    history = History(CONFIG)
    feed(history, 5)
    history.observe(report("a", 2**62, slots_start=T + 4), T + 5)
    feed(history, 5, first=5)
    assert history.ignored == 0
    assert seen(history, 10).members["a"].received_at == T + 10


def test_strangers_are_forgotten_before_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "MEMBERS_MAX", 10)
    monkeypatch.setattr(observation, "PARTITIONS_MAX", 20)
    history = History(CONFIG)
    feed(history, 5)
    seen(history, 5)
    for number in range(100):
        history.observe(report(f"stranger-{number}", 1, entry(100 + number, arrived=1)), T + 6)
    assert len(history._members) <= 11
    assert len(history._told) <= 11
    assert len(history._partitions) <= 20
    assert history.left_out["partition"] == 81
    feed(history, 1, first=5)
    assert history.left_out["copy"] == 0
    assert seen(history, 6).members["a"].received_at == T + 6


def test_an_average_fades_with_the_time_in_which_nothing_came() -> None:
    average = Average(10.0)
    average.add(100.0, 1.0, 0.0, 0.0)
    assert average.value() == pytest.approx(100.0)
    kept = math.exp(-0.5)
    assert average.value(5.0) == pytest.approx(100.0 * kept / (kept + 10.0 * (1.0 - kept)))


def test_a_window_of_no_length_holds_what_the_two_shortest_have_in_common() -> None:
    """0.3 in one length and 0.5 in two of them: 0.1 comes at once, with each."""
    shortest = TAUS_SECONDS[1]
    instant, *_ = shape_of([(shortest, 0.3), (2 * shortest, 0.5), (60.0, 60.0)])
    assert instant == pytest.approx(0.1)
    instant, *_ = shape_of([(shortest, 0.2), (2 * shortest, 0.5), (60.0, 60.0)])
    assert instant == 0.0


def test_few_records_are_remembered_longer() -> None:
    """One in 5 s for ten minutes, 30 wanted: over 150 s. A hundred a second need no more than what is asked for."""
    few, many = Average(20.0, least=30.0), Average(20.0, least=30.0)
    for second in range(600):
        few.add(float(second % 5 == 0), 1.0, 1.0, 0.0)
        many.add(100.0, 1.0, 1.0, 0.0)
    assert few.time_constant == pytest.approx(150.0, rel=0.05)
    assert many.time_constant == 20.0
    nothing = Average(20.0, least=30.0)
    nothing.add(0.0, 1.0, 1.0, 0.0)
    assert nothing.time_constant == 180.0, "no longer than slots are kept"


def test_a_new_members_first_records_do_not_make_its_partitions_dear() -> None:
    """A batch of one record takes as long as a full one: three members' work looked like ten's, and was asked for."""
    history, owners = History(CONFIG), {0: "b", 1: "b"}
    for second in range(60):
        parts = [entry(number, arrived=2, done=2, cost_mean=0.1) for number in owners]
        history.observe(report("a", second, *parts, slots=(0.04,) * 10), T + second + 1)
    first = report("b", 60, entry(0, arrived=2, done=1, cost_mean=0.9), entry(1, arrived=2), slots=(0.36,) * 10)
    history.observe(first, T + 61)
    history.observe(report("a", 60, slots=(0.0,) * 10), T + 61)
    got = seen(history, 61, group("a", "b", owners=owners))
    assert got.partitions[partition(0)].cost == pytest.approx((1 * 0.9 + 10 * 0.1) / 11)
    assert got.partitions[partition(1)].cost == 0.1
    assert sum(got.slots[-10:]) == pytest.approx(3.6 * (0.9 + 1.0) / 11 / 0.9)
    assert got.members["b"].work_rate == pytest.approx(sum(got.slots[-10:]))
    for second in range(61, 81):
        parts = [entry(number, arrived=3, done=3, cost_mean=0.9) for number in owners]
        history.observe(report("b", second, *parts, slots=(0.54,) * 10), T + second + 1)
        history.observe(report("a", second, slots=(0.0,) * 10), T + second + 1)
    got = seen(history, 81, group("a", "b", owners=owners))
    assert [got.partitions[partition(number)].cost for number in owners] == [0.9, 0.9], "it knows what they cost"
    assert sum(got.slots[-10:]) == pytest.approx(5.4)


def test_a_report_before_the_first_record_is_done_takes_nothing_from_what_the_owner_before_told() -> None:
    """It made the new member the one that had told last, so that nothing tempered its first record."""
    history = History(CONFIG)
    history.observe(report("a", 0, entry(0, arrived=2, done=2, cost_mean=0.1)), T + 1)
    history.observe(report("b", 1, entry(0, lag=5)), T + 2)
    history.observe(report("b", 2, entry(0, arrived=1, done=1, cost_mean=0.88)), T + 3)
    got = seen(history, 3, group("a", "b", owners={0: "b"}))
    assert got.partitions[partition(0)].cost == pytest.approx((1 * 0.88 + 10 * 0.1) / 11)


def test_the_cost_of_an_owner_before_is_taken_at_the_new_ones_speed() -> None:
    history = History(CONFIG)
    history.observe(report("a", 0, entry(0, arrived=2, done=2, cost_mean=0.1), speed=2.0), T + 1)
    history.observe(report("b", 1, entry(0, arrived=2, done=10, cost_mean=0.2), speed=0.5), T + 2)
    got = seen(history, 2, group("a", "b", owners={0: "b"}))
    assert got.partitions[partition(0)].cost == pytest.approx((10 * 0.2 + 10 * 0.4) / 20)


def test_where_nobody_told_before_a_new_member_is_believed() -> None:
    history = History(CONFIG)
    history.observe(report("a", 0, entry(0, arrived=2, done=1, cost_mean=0.9)), T + 1)
    assert seen(history, 1).partitions[partition(0)].cost == 0.9
    history.observe(report("a", 1, entry(0, arrived=2, done=1, cost_mean=0.5)), T + 2)
    assert seen(history, 2).partitions[partition(0)].cost == 0.5, "its own word is no other's"


def test_a_cost_without_arrivals_is_tempered_too() -> None:
    history = History(CONFIG)
    history.observe(report("a", 0, entry(0, arrived=2, done=2, cost_mean=0.1)), T + 1)
    history.observe(report("b", 1, entry(0, lag=2, cost_mean=0.9), slots=(0.0,) * 10), T + 2)
    assert seen(history, 2, group("a", "b", owners={0: "b"})).partitions[partition(0)].cost == 0.1


def test_a_cost_that_is_next_to_nothing_makes_no_work_endless() -> None:
    """Whoever may write reports could have stopped planning for as long as slots are kept: NaN and infinity in them."""
    history = History(CONFIG)
    history.observe(report("a", 0, entry(0, arrived=2, done=2, cost_mean=1e5)), T + 1)
    history.observe(report("b", 1, entry(0, arrived=2, done=1, cost_mean=5e-324), slots=(0.0, 1e9) * 5), T + 2)
    got = seen(history, 2, group("b", owners={0: "b"}))
    assert (max(got.slots), got.partitions[partition(0)].cost) == (1e9, 1e5), "it is no cost"
