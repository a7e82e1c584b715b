"""What real meters tell, as the leader's first stages read it; and what went wrong when this was tried on loads."""

from __future__ import annotations

import math

import pytest

from loadtrim_agent.common.partition import Partition
from loadtrim_agent.metering.meter import Meter, MeterConfig
from loadtrim_agent.planning.estimate import estimate_of
from loadtrim_agent.planning.forecast import forecast
from loadtrim_agent.planning.observation import History
from loadtrim_agent.planning.values import TAUS_SECONDS, Estimate, GroupState, MemberState, PlanConfig
from unit.planning.virtual_group import noisy

T = 1_700_000_000.0
COST = 0.005
P, Q = Partition("orders", 0), Partition("orders", 1)
CONFIG = PlanConfig(group="g", sla_seconds=0.5)


class Member:
    """One partition, its meter, and user code that takes COST a record and is never late."""

    def __init__(self, name: str, partition: Partition) -> None:
        self.name = name
        self.partition = partition
        self.meter = Meter(MeterConfig(group="g", sla_seconds=0.5, instance=name))
        self.meter.acquired(partition, T, 0, 0)
        self.offset = 0
        self.sequence = 0

    def batch(self, at: float, count: int) -> None:
        self.offset += count
        self.meter.fetched(self.partition, at, [at] * count, next_offset=self.offset, end_offset=self.offset)
        ends = [at + COST * number for number in range(1, count + 1)]
        self.meter.done(self.partition, ends[-1], [end - at for end in ends], [COST] * count, self.offset)

    def report(self, at: float, history: History) -> None:
        self.meter.observed(self.partition, at, self.offset)
        history.observe(self.meter.report(at, self.name, 1, self.sequence), at)
        self.sequence += 1


def group(*members: Member) -> GroupState:
    topics = frozenset({"orders"})
    return GroupState(
        generation=1,
        leader="a",
        members={member.name: MemberState(instance=member.name, topics=topics, joined_at=T) for member in members},
        owners={member.partition: member.name for member in members},
    )


def played(seconds: int, bursts: dict[str, tuple[float, ...]], counts: dict[str, int]) -> tuple[Estimate, list[Member]]:
    """Members a and b; ``bursts``: when in each second records come, ``counts``: how many each time."""
    members = [Member("a", P), Member("b", Q)]
    history = History(CONFIG)
    for second in range(seconds):
        for member in members:
            for offset in bursts[member.name]:
                member.batch(T + second + offset, counts[member.name])
        for member in members:
            member.report(T + second + 0.95, history)
    state = group(*members)
    made = estimate_of(history.observation(T + seconds, state), state, CONFIG)
    assert isinstance(made, Estimate)
    return made, members


def test_bursts_of_all_members_at_once_are_one_burst_of_the_group() -> None:
    made, _ = played(40, {"a": (0.3,), "b": (0.3,)}, {"a": 60, "b": 20})
    assert made.curve.mean == pytest.approx((1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 5.0), rel=0.03)
    assert made.series[-20:] == pytest.approx([80 * COST] * 20, rel=0.01)
    work = {p: made.partitions[p].work for p in (P, Q)}
    assert work == pytest.approx({P: 60 * COST, Q: 20 * COST}, rel=0.02)
    assert made.partitions[P].curve.mean[0] == pytest.approx(60 * COST, rel=0.05)
    assert made.partitions[P].lag_high == pytest.approx(60, abs=2)


def test_single_records_of_all_partitions_at_once_are_a_burst_in_each() -> None:
    """A partition's windows are without their own record only where the group does not come at once."""
    made, _ = played(40, {"a": (0.3,), "b": (0.3,)}, {"a": 1, "b": 1})
    for partition in (P, Q):
        assert made.partitions[partition].curve.mean[0] == pytest.approx(COST, rel=0.05)


def test_a_partition_without_records_has_no_burst() -> None:
    made, _ = played(40, {"a": (0.3,), "b": ()}, {"a": 60, "b": 0})
    assert made.partitions[Q].lag_high == 0


def test_members_that_burst_in_turn_need_less_together_than_each_alone() -> None:
    made, _ = played(40, {"a": (0.2,), "b": (0.7,)}, {"a": 40, "b": 40})
    level = sum(made.partitions[p].work for p in (P, Q))
    assert level * made.curve.mean[0] == pytest.approx(40 * COST, rel=0.05)
    # A partition's own burst is not made smaller by what others do.
    assert made.partitions[P].curve.mean[0] == pytest.approx(40 * COST, rel=0.05)


def test_an_even_stream_is_even_in_every_partition() -> None:
    made, _ = played(40, {"a": tuple(n / 20 for n in range(19)), "b": (0.1,)}, {"a": 4, "b": 1})
    curve = made.partitions[P].curve
    assert curve.mean[0] <= 2 * 4 * COST
    for tau, mean in zip(TAUS_SECONDS[3:], curve.mean[3:], strict=True):
        assert mean == pytest.approx(tau * made.partitions[P].work, rel=0.15)


def test_what_an_evicted_member_got_is_not_taken_for_a_fall_of_the_load() -> None:
    members = [Member("a", P), Member("b", Q)]
    history = History(CONFIG)
    for second in range(40):
        for member in members:
            if member.name == "a" or second < 30:
                for offset in range(10):
                    member.batch(T + second + offset / 10, 5)
                member.report(T + second + 0.95, history)
        if second in (20, 38):
            history.observation(T + second + 1, group(*members))
    stayed = group(members[0])
    left = GroupState(generation=2, leader="a", members=stayed.members, owners={P: "a", Q: "a"}, unowned_lag={})
    slots = history.observation(T + 40, left).slots
    seconds = [sum(slots[index : index + 10]) for index in range(len(slots) % 10, len(slots), 10)]
    assert min(seconds[2:]) == pytest.approx(100 * COST, rel=0.1)


def test_a_missing_second_does_not_bring_back_the_load_of_two_minutes_ago() -> None:
    """The hump of a while ago, two dips (a member left with its last second untold): the level is that of now."""
    hump = [1.0 + 0.6 * math.sin(math.pi * second / 100) for second in range(118)]
    for missing in (8, 22):
        hump[-missing] *= 0.8
    for end in range(100, len(hump) + 1):
        made = forecast(hump[:end], 2.0)
        newest = hump[end - 3 : end]
        assert min(newest) - 0.05 <= made.level <= max(newest) + 0.1


@pytest.mark.parametrize("seed", [4, 14, 18])
def test_a_run_of_good_luck_is_hardly_a_trend(seed: int) -> None:
    """Noise of 10 % on a constant load; these seeds have ten seconds in a row that rise."""
    rates = noisy(1, 2.85, 0.1, seed)
    load = [rates(second)[0] for second in range(420)]
    for end in range(100, len(load) + 1):
        assert forecast(load[max(0, end - 120) : end], 5.0).ahead < 1.06 * 2.85
