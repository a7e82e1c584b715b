"""From what was observed to one picture of the group's load."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs
from msgspec.structs import replace

from loadtrim_agent.planning.estimate import _changed, _filled, estimate_of, late_records, quantile, unit_curve
from loadtrim_agent.planning.observed import Given, Observation
from loadtrim_agent.planning.shape import shape_of
from loadtrim_agent.planning.values import (
    TAUS_SECONDS,
    Estimate,
    GroupState,
    NotReady,
    PlanConfig,
)
from loadtrim_agent.wire.telemetry_records import Capacity, ReportRecord
from unit.planning.virtual_group import COST, Fleet, even, partition

CONFIG = PlanConfig(group="g", sla_seconds=0.5, startup_seconds=7.0, handoff_seconds=0.02)
AT = {tau: index for index, tau in enumerate(TAUS_SECONDS)}


def looked(fleet: Fleet, **changes: Any) -> tuple[Observation, GroupState]:
    state = fleet.state()
    return replace(fleet.planner.history.observation(fleet.now, state), **changes), state


def made(fleet: Fleet, config: PlanConfig = CONFIG, **changes: Any) -> Estimate:
    answer = estimate_of(*looked(fleet, **changes), config)
    assert isinstance(answer, Estimate)
    return answer


def ran(fleet: Fleet, seconds: int = 20) -> Fleet:
    for _ in range(seconds):
        fleet.tick()
    return fleet


# -- the work curve


def test_an_even_stream_has_no_bursts() -> None:
    curve = unit_curve([0.1] * 600)
    for tau in TAUS_SECONDS[1:]:
        assert curve.mean[AT[tau]] == pytest.approx(tau)
        assert curve.stddev[AT[tau]] == pytest.approx(0.0, abs=1e-6)
    assert curve.mean[0] == pytest.approx(0.0, abs=1e-9)


def test_all_of_a_second_at_once() -> None:
    """Every window up to a second holds the whole burst, and so does the window of no length."""
    curve = unit_curve(([1.0] + [0.0] * 9) * 60)
    assert curve.mean == pytest.approx((1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 5.0))


@pytest.mark.parametrize("before", [0.02, 0.1, 0.3, 0.5, 0.8])
def test_a_burst_that_the_edge_of_a_slot_cuts_is_one_burst(before: float) -> None:
    """Within 20 ms at the edge it looked as if it came within 0.2 s: 2 members were asked for where it took 3."""
    slots = ([0.0] * 4 + [before, 1.0 - before] + [0.0] * 4) * 60
    second = ([0.0] * 4 + [before, 0.0] + [0.0] * 4) * 60
    curve = unit_curve(slots, second=second)
    assert curve.mean[:2] == pytest.approx((1.0, 1.0))
    assert curve.stddev[:2] == pytest.approx((0.0, 0.0), abs=1e-6)
    assert unit_curve(slots).mean[0] < 0.97


def test_what_comes_within_two_slots_is_no_burst_of_one() -> None:
    slots = ([0.0] * 4 + [0.5, 0.5] + [0.0] * 4) * 60
    curve = unit_curve(slots, second=[slot / 2.0 for slot in slots])
    assert curve.mean == unit_curve(slots).mean
    assert curve.mean[AT[0.1]] == pytest.approx(0.5)


def test_an_even_stream_has_no_bursts_wherever_it_is_cut() -> None:
    curve = unit_curve([0.1] * 600, second=[0.05] * 600)
    assert curve.mean[AT[0.1]] == pytest.approx(0.1)
    assert curve.mean[0] == pytest.approx(0.0, abs=1e-9)


def test_the_shape_does_not_depend_on_the_level() -> None:
    slots = ([0.5] + [0.0] * 4 + [0.2] * 5) * 60
    once, twice = unit_curve(slots), unit_curve([2 * slot for slot in slots])
    assert twice.mean == pytest.approx(once.mean)
    assert twice.stddev == pytest.approx(once.stddev)


def test_work_that_is_lost_in_the_sum_of_what_came_before_has_no_level() -> None:
    """Its level was 0, what was divided by it ended planning for ten seconds."""
    before = [1.0] * 300 + [0.0] * 400
    assert unit_curve([*before, 1e-18, *[0.0] * 300]).mean == unit_curve([*before, *[0.0] * 301]).mean


def test_slow_ups_and_downs_are_no_bursts() -> None:
    curve = unit_curve([0.1 + 0.05 * math.sin(slot / 300.0) for slot in range(600)])
    assert curve.mean[AT[1.0]] == pytest.approx(1.0, rel=0.02)
    assert curve.stddev[AT[1.0]] < 0.05


def test_windows_longer_than_the_past_go_on_at_the_mean() -> None:
    curve = unit_curve([0.1] * 30)
    assert curve.mean[AT[2.0]] == pytest.approx(2.0)
    assert curve.mean[AT[5.0]] == pytest.approx(5.0)


def test_nothing_arrived() -> None:
    curve = unit_curve([0.0] * 100)
    assert all(math.isfinite(value) for value in (*curve.mean, *curve.stddev))


# -- small parts


def test_quantiles_are_values_that_were_seen() -> None:
    assert quantile([], 0.9) is None
    assert quantile([3.0], 0.01) == 3.0
    assert quantile([5.0, 1.0, 4.0, 2.0, 3.0], 0.5) == 3.0
    assert quantile([float(n) for n in range(1, 101)], 0.99) == 99.0
    assert quantile([1.0, 2.0], 1.0) == 2.0


def test_late_records_of_a_lag() -> None:
    assert late_records(0, 9.0, 0.5) == 0.0
    assert late_records(100, 0.5, 0.5) == 0.0
    assert late_records(100, 1.0, 0.5) == pytest.approx(50.0)
    assert late_records(100, 5.0, 0.5) == pytest.approx(90.0)


# -- the picture


def test_an_even_group() -> None:
    seen = made(ran(Fleet(CONFIG, even(4, 200.0), members=2)))
    assert seen.rate == pytest.approx(200.0)
    assert seen.series[-1] == pytest.approx(1.0)
    assert seen.cost == pytest.approx(COST)
    assert seen.backlog == seen.late == 0.0
    assert seen.capacity_typical == 1.0
    assert seen.startup_seconds == 7.0
    assert seen.handoff_seconds == 0.02
    entry = seen.partitions[partition(0)]
    assert (entry.rate, entry.work) == (pytest.approx(50.0), pytest.approx(0.25))
    assert entry.curve.mean[AT[1.0]] == pytest.approx(0.25, rel=0.02)
    assert seen.members["m01"].utilization == pytest.approx(0.5)


def test_not_ready_says_what_is_missing() -> None:
    short = ran(Fleet(CONFIG, even(4, 200.0)), 2)
    answer = estimate_of(*looked(short), CONFIG)
    assert isinstance(answer, NotReady)
    assert "3 s" in answer.text
    unknown = ran(Fleet(CONFIG, even(4, 200.0), cost=0.0), 5)
    answer = estimate_of(*looked(unknown), CONFIG)
    assert isinstance(answer, NotReady)
    assert "cost" in answer.text


def test_a_group_without_any_load_is_ready_in_time() -> None:
    seen = estimate_of(*looked(ran(Fleet(CONFIG, even(4, 0.0), cost=0.0), 60)), CONFIG)
    assert isinstance(seen, Estimate)
    assert seen.rate == 0.0


def test_what_was_measured_replaces_what_was_set() -> None:
    fleet = ran(Fleet(CONFIG, even(4, 200.0)))
    seen = made(fleet, handoffs_seconds=(0.01,) * 99 + (0.05,), startups_seconds=(2.0, 4.0, 3.0))
    assert seen.handoff_seconds in (0.02, 0.01)
    assert seen.startup_seconds == 4.0


def test_members_that_slice_keep_a_usual_handoff_free() -> None:
    fleet = Fleet(CONFIG, even(4, 200.0))
    assert made(ran(fleet), handoffs_seconds=(0.05,) * 10).overhead_seconds == CONFIG.handoff_seconds
    fleet.reported["slicing_off"] = ""
    ran(fleet, 2)
    record_in_hand = 1.5 * COST
    assert made(fleet, handoffs_seconds=(0.05,) * 10).overhead_seconds == pytest.approx(record_in_hand + 0.05)
    two_hung = made(fleet, handoffs_seconds=(0.05,) * 98 + (0.25,) * 2)
    assert two_hung.overhead_seconds == pytest.approx(record_in_hand + 0.05)
    assert made(fleet, handoffs_seconds=(9.0,)).overhead_seconds == CONFIG.sla_seconds / 2


def test_the_time_of_a_batch_and_of_the_one_before_is_kept_free() -> None:
    """All of the objective was taken to be left for a queue, though a batch takes a fifth of it."""
    fleet = ran(Fleet(CONFIG, even(4, 200.0)))
    alone = made(fleet, handoffs_seconds=(0.2,) * 10)
    assert (alone.in_hand_seconds, alone.overhead_seconds) == (alone.cost, pytest.approx(CONFIG.handoff_seconds))
    assert alone.restoring_seconds == pytest.approx(0.2 - COST)
    fleet.reported["batch_seconds"] = 0.1
    ran(fleet, 2)
    batches = made(fleet, handoffs_seconds=(0.2,) * 10)
    assert batches.in_hand_seconds == pytest.approx(COST + 0.2)
    assert batches.overhead_seconds == pytest.approx(1.5 * COST + 0.2)
    assert batches.restoring_seconds == pytest.approx(0.1 - COST), "who gives it finishes its batch alone"
    name = fleet.join()
    assert made(fleet).members[name].batch_seconds == 0.1, "as the others'"
    fleet.reported["batch_seconds"] = 9.0
    ran(fleet, 2)
    assert made(fleet).members[name].batch_seconds == CONFIG.sla_seconds / 2, "no replica makes a batch shorter"


@pytest.mark.parametrize(("known", "taken"), [(True, 0.0), (False, 0.15)])
def test_a_member_that_tells_of_no_batch_yet_is_taken_to_be_like_the_others(known: bool, taken: float) -> None:
    """Just after a scale-out a third of what batches take was left."""
    fleet = ran(Fleet(CONFIG, even(4, 200.0), members=3))
    observation, _ = looked(fleet)
    tells = dict(zip(sorted(observation.members), (0.1, 0.2, None), strict=True))
    members = {
        name: replace(entry, batch_seconds=tells[name], capacity=entry.capacity._replace(known=known))
        for name, entry in observation.members.items()
    }
    seen = made(fleet, members=members).members
    assert [seen[name].batch_seconds for name in sorted(seen)] == [0.1, 0.2, pytest.approx(taken)]


def test_what_records_take_to_come_is_kept_free() -> None:
    """With producers that linger for 50 ms, 1.5 % of the records were late in a group that slices."""
    fleet = ran(Fleet(CONFIG, even(4, 200.0)))
    fleet.reported["arrival_delay"] = 0.04
    ran(fleet, 60)
    assert made(fleet).overhead_seconds == pytest.approx(1.5 * COST + 0.04, rel=0.02)
    fleet.reported["arrival_delay"] = 5.0
    ran(fleet, 120)
    assert made(fleet).overhead_seconds == 1.5 * COST + CONFIG.sla_seconds / 4, "no replica helps what is late already"
    fleet.reported["arrival_delay"] = None
    before = made(fleet).overhead_seconds
    ran(fleet, 5)
    assert made(fleet).overhead_seconds == before, "a quiet second says nothing else"


def test_a_backlog_splits_into_late_and_not_yet_late() -> None:
    """Twice what the members can do for 4 s: what is older than W is late."""
    fleet = ran(Fleet(CONFIG, even(2, 800.0), members=2), 4)
    seen = made(fleet)
    lag = sum(fleet.lag.values()) * COST
    assert seen.backlog + seen.late == pytest.approx(lag, rel=0.01)
    assert seen.late > seen.backlog > 0.0


@pytest.mark.parametrize(("standing", "waits"), [(1, 0), (2, 1), (5, 4)])
def test_a_record_in_hand_is_no_backlog(standing: int, waits: int) -> None:
    """One of the records that stand is being done, by a member that works on one at a time."""
    config = structs.replace(CONFIG, sla_seconds=600.0)
    observation, state = looked(ran(Fleet(config, even(1, 0.2), members=1, cost=4.0), 60))
    known = structs.replace(observation.partitions[partition(0)], standing_records=float(standing), lag=standing)
    seen = estimate_of(replace(observation, partitions={partition(0): known}), state, config)
    assert isinstance(seen, Estimate)
    assert (seen.backlog, seen.late) == (pytest.approx(4.0 * waits), 0.0)


def behind(fleet: Fleet, known: bool = False, **busy_seconds: float) -> Estimate:
    """Return the estimate where members gave so much while they fell behind."""
    observation, _ = looked(fleet)
    members = {
        name: replace(
            entry,
            behind=Given(busy_seconds[name], busy_seconds[name] / COST) if name in busy_seconds else None,
            capacity=entry.capacity._replace(known=known or name in busy_seconds),
        )
        for name, entry in observation.members.items()
    }
    return made(fleet, members=members)


def uncertain(fleet: Fleet, **told: Capacity) -> float:
    """Return how much less all may give where some say this of what they can."""
    observation, _ = looked(fleet)
    members = {
        name: replace(entry, capacity=told.get(name, entry.capacity)) for name, entry in observation.members.items()
    }
    return made(fleet, members=members).capacity_error


def test_errors_of_what_was_learnt_add_up_by_their_squares() -> None:
    fleet = ran(Fleet(CONFIG, even(4, 200.0), members=3))
    assert uncertain(fleet) == 0.0
    assert uncertain(fleet, m01=Capacity(10.0, 3.0), m02=Capacity(10.0, 4.0)) == pytest.approx(5.0)
    guess = Capacity(9.0, 6.0, known=False)
    assert uncertain(fleet, m01=guess, m02=guess, m03=Capacity(4.0, 1.0)) == pytest.approx(1.0), "a guess tells none"


def test_no_capacity_errs_by_more_than_itself() -> None:
    made_up = ReportRecord(group="g", member="m", at=0.0, sequence=1, generation=1, concurrency=1.0, capacity_error=1e6)
    assert made_up.capacity == Capacity(1.0, 1.0)


@pytest.mark.parametrize("kept_out", ["paused", "blocked"])
def test_dear_partitions_make_the_grain(kept_out: str) -> None:
    """Half of the work comes as records of 3 s each, half as three times as many of 1 s, and what varies is in no slot.

    A partition that is kept out of sizing is in none either: a jump of the others was seen after 24 s beside one.
    """
    observation, state = looked(ran(Fleet(CONFIG, even(3, 2.0), members=1)))
    dear, cheap = (observation.partitions[partition(number)] for number in (0, 1))
    seen = estimate_of(
        replace(
            observation,
            partitions={
                partition(0): structs.replace(dear, cost=3.0, cost_variance=0.0, rate_slow=1.0, rate_fast=1.0),
                partition(1): structs.replace(cheap, cost=1.0, cost_variance=0.5, rate_slow=3.0, rate_fast=3.0),
                partition(2): structs.replace(dear, cost=50.0, state=kept_out, rate_slow=1.0, rate_fast=1.0),
            },
        ),
        state,
        CONFIG,
    )
    assert isinstance(seen, Estimate)
    assert seen.grain == pytest.approx((9.0 + 3.0) / 6.0)


def test_a_member_that_fell_behind_has_what_it_gave_then() -> None:
    """It says 10 and gave 2. A second member that never showed what it can do is taken to be like it."""
    fleet = Fleet(CONFIG, even(4, 200.0))
    fleet.concurrency = dict.fromkeys(fleet.members, 10.0)
    seen = behind(ran(fleet), m01=2.0)
    assert {name: (entry.capacity, entry.told) for name, entry in seen.members.items()} == {
        "m01": (2.0, 10.0),
        "m02": (2.0, None),
    }
    assert seen.capacity_typical == 2.0


def test_a_member_that_says_the_same_and_never_gave_more_is_believed_no_more() -> None:
    """Both say that they know they can give 10. m01 gave 2 while it fell behind, m02 never gave more than 0.5."""
    fleet = Fleet(CONFIG, even(4, 200.0))
    fleet.concurrency = dict.fromkeys(fleet.members, 10.0)
    seen = behind(ran(fleet), known=True, m01=2.0)
    assert {name: entry.capacity for name, entry in seen.members.items()} == {"m01": 2.0, "m02": 2.0}


def test_a_member_that_gave_more_than_that_has_what_it_says() -> None:
    """2 of 4 cost 1 busy second/s each: m02 gives 1.0 of its 10. m01 gave 0.5, and is the weak one."""
    fleet = Fleet(CONFIG, even(4, 400.0))
    fleet.concurrency = dict.fromkeys(fleet.members, 10.0)
    seen = behind(ran(fleet), known=True, m01=0.5)
    assert {name: entry.capacity for name, entry in seen.members.items()} == {"m01": 0.5, "m02": 10.0}


def test_a_member_that_fell_behind_at_what_it_has_contradicts_nothing() -> None:
    """Where whole partitions divide badly: 0.9 of what it says it can give is all that it can."""
    seen = behind(ran(Fleet(CONFIG, even(4, 200.0))), m01=0.9)
    assert {name: (entry.capacity, entry.told) for name, entry in seen.members.items()} == {
        "m01": (1.0, None),
        "m02": (1.0, None),
    }


@pytest.mark.parametrize("state", ["paused", "blocked"])
def test_what_does_not_advance_for_other_reasons_is_kept_out(state: str) -> None:
    fleet = Fleet(CONFIG, even(4, 200.0))
    fleet.states = {partition(0): state}
    seen = made(ran(fleet, 30))
    assert seen.partitions[partition(0)].sized is False
    assert seen.partitions[partition(0)].state == state
    assert seen.partitions[partition(0)].lag > 0
    assert seen.backlog == pytest.approx(0.0, abs=1e-6)
    assert seen.late == pytest.approx(0.0, abs=1e-6)
    assert seen.rate == pytest.approx(150.0)


def test_nobodys_partitions_count_with_what_waits_in_them() -> None:
    fleet = ran(Fleet(CONFIG, even(4, 200.0)))
    fleet.owners[partition(3)] = None
    fleet.lag[partition(3)] = 500.0
    seen = made(fleet)
    assert seen.partitions[partition(3)].owner is None
    assert seen.partitions[partition(3)].lag == 500


def test_partitions_that_nobody_reported_cost_what_their_topic_costs() -> None:
    fleet = ran(Fleet(CONFIG, even(4, 200.0)))
    fleet.owners[partition(9)] = None
    observation, state = looked(fleet)
    seen = estimate_of(observation, replace(state, unowned_lag={partition(9): 30}), CONFIG)
    assert isinstance(seen, Estimate)
    new = seen.partitions[partition(9)]
    assert (new.cost, new.work, new.lag) == (pytest.approx(COST), 0.0, 30)


def test_what_is_on_its_way_counts_as_there() -> None:
    fleet = ran(Fleet(CONFIG, even(4, 200.0)))
    fleet.in_flight = {partition(0): "m02"}
    assert made(fleet).partitions[partition(0)].owner == "m02"


def test_a_member_without_a_report_is_taken_to_be_like_the_others() -> None:
    fleet = Fleet(CONFIG, even(4, 200.0))
    fleet.concurrency = dict.fromkeys(fleet.members, 3.0)
    ran(fleet)
    name = fleet.join()
    seen = made(fleet)
    assert seen.members[name].capacity == 3.0
    assert seen.members[name].age_seconds is None
    assert seen.capacity_typical == 3.0


def test_partitions_that_rise_together_correlate() -> None:
    together = made(ran(Fleet(CONFIG, lambda second: [50.0 + 40.0 * (second * 7 % 5 - 2) / 2] * 4), 60))
    apart = made(
        ran(Fleet(CONFIG, lambda second: [50.0 + 40.0 * ((second + 2 * n) * 7 % 5 - 2) / 2 for n in range(4)]), 60)
    )
    assert 0.0 <= apart.correlation < together.correlation <= 1.0


def test_a_jump_is_no_burst() -> None:
    """Ten seconds of nothing, or of half, and then an even stream: in no window comes more than the stream brings."""
    for before in (0.0, 0.1):
        slots = [before] * 300 + [0.2] * 20
        shape = unit_curve(slots, alike=2)
        assert all(mean <= 1.05 * tau + 0.02 for tau, mean in zip(TAUS_SECONDS, shape.mean, strict=True))


def test_windows_of_another_load_tell_nothing_about_the_shape() -> None:
    """The members' windows reach back half a minute; right after a jump the stream would look like a burst."""
    fleet = ran(Fleet(CONFIG, even(2, 100.0)))
    observation, group = looked(fleet)
    known = observation.partitions[partition(0)]
    jumped = msgspec.structs.replace(
        known, shape=shape_of([(0.1, 1.0), (5.0, 5.0)]), shape_rate=0.1 * known.rate_fast * COST
    )
    partitions = {**observation.partitions, partition(0): jumped}
    answer = estimate_of(replace(observation, partitions=partitions), group, CONFIG)
    assert isinstance(answer, Estimate)
    entry = answer.partitions[partition(0)]
    assert entry.curve.mean[AT[0.1]] == pytest.approx(0.1 * entry.work, rel=0.05)


def test_windows_longer_than_the_past_go_on_at_the_mean_level() -> None:
    """Means are of one busy second a second: a window that is longer by a second holds one more."""
    lengths = TAUS_SECONDS[1:]
    means, sds = _filled([None] * len(lengths))
    assert means == pytest.approx(lengths)
    assert sds == [0.0] * len(lengths)
    means, sds = _filled([(1.25, 0.5), *[None] * (len(lengths) - 1)])
    assert means == pytest.approx([1.25 + tau - lengths[0] for tau in lengths])
    assert sds == [0.5] * len(lengths)


# -- shares of single partitions


@pytest.mark.parametrize(
    ("rate", "last", "believed"),
    [
        *((0.8, 2.6, False), (0.8, 3.5, False), (0.8, 4.5, True), (0.8, 0.0, False)),
        *((100.0, 119.0, False), (100.0, 122.0, True), (100.0, 80.0, True)),
    ],
)
def test_of_few_records_chance_makes_many_come_together(rate: float, last: float, believed: bool) -> None:
    """Four standard errors of records that come by chance, of which few are no normal variable."""
    entry: Any = SimpleNamespace(rate_slow=rate, rate_fast=last, rate_sd=math.sqrt(rate))
    assert _changed(entry, rate) is believed


def test_what_never_varied_changes_by_the_least() -> None:
    entry: Any = SimpleNamespace(rate_slow=10.0, rate_fast=10.5, rate_sd=0.0)
    assert _changed(entry, 10.0)
    assert not _changed(entry, 10.5)
