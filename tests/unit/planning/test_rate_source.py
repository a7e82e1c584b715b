"""Rates that a monitor measures at the broker, in place of the reports'."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from loadtrim_agent.planning.estimate import estimate_of
from loadtrim_agent.planning.published.rate_sources import LogGrowth, RateSourceName
from loadtrim_agent.planning.rate_source import RateHistory, with_rates
from loadtrim_agent.planning.registry import POLICIES, make_planner, make_policy
from loadtrim_agent.planning.sizing.policy import Measure
from loadtrim_agent.planning.values import Estimate, PlanConfig, Rates, RateUnit
from unit.planning.virtual_group import COST, Fleet, T, even, partition

P0, P1 = partition(0), partition(1)
TAKE_RATES = sorted(
    name
    for name in set(POLICIES) - {"clairvoyant"}
    if name == "objective" or Measure.RATES in getattr(make_policy(name), "needs", ())
)


def told(decision_seconds: float = 1.0) -> RateHistory:
    return RateHistory("iccbdc22", decision_seconds)


def test_growth_is_newest_less_oldest_over_the_time_between() -> None:
    growth = LogGrowth(30.0)
    assert growth.per_second() is None
    growth.add(T, {P0: 1_000, P1: 0})
    assert growth.per_second() is None, "one sample tells nothing"
    growth.add(T + 10, {P0: 3_000, P1: 50})
    assert growth.per_second() == {P0: 200.0, P1: 5.0}


def test_growth_looks_back_over_its_window_only() -> None:
    growth = LogGrowth(30.0)
    for second in range(0, 100, 10):
        growth.add(T + second, {P0: 0 if second < 50 else (second - 50) * 100})
    # The oldest sample within 30 s of 90 s is that of 60 s: (4,000 - 1,000) / 30.
    assert growth.per_second() == {P0: 100.0}


def test_what_shrank_and_what_is_new() -> None:
    """A segment was deleted; a partition was made 5 s ago; another is led by nobody who answers."""
    growth = LogGrowth(30.0)
    growth.add(T, {P0: 9_000, partition(2): 10})
    growth.add(T + 5, {P0: 4_000, P1: 100, partition(2): 20})
    growth.add(T + 10, {P0: 4_500, P1: 600})
    assert growth.per_second() == {P0: 0.0, P1: 100.0}
    growth.add(T + 11, {partition(3): 5})
    assert growth.per_second() == {partition(3): 0.0}


def seen() -> Estimate:
    """Two partitions of 100 records/s each, 1 busy second/s in all."""
    group = Fleet(PlanConfig(group="g"), even(2, 200.0), members=2)
    group.run(30)
    state = group.state()
    found = estimate_of(group.planner.history.observation(group.now, state), state, group.config)
    assert isinstance(found, Estimate)
    return found


def test_records_replace_the_rate_the_work_and_the_curve() -> None:
    before = seen()
    rates = Rates(at=T, unit=RateUnit.RECORDS, per_second={P0: 300.0, P1: 50.0})
    after = with_rates(before, rates, told())
    assert after.rate == pytest.approx(350.0)
    assert after.partitions[P0].rate == pytest.approx(300.0)
    assert after.partitions[P0].work == pytest.approx(300.0 * COST)
    assert after.partitions[P0].curve.mean == pytest.approx(
        [3.0 * x for x in before.partitions[P0].curve.mean], rel=0.05
    )
    assert after.partitions[P1].lag == before.partitions[P1].lag


def test_bytes_are_shares_of_the_groups_work() -> None:
    """1 busy second/s in the group, 3 of 4 bytes in the first partition: 0.75 and 0.25, 150/s and 50/s."""
    after = with_rates(seen(), Rates(at=T, unit=RateUnit.BYTES, per_second={P0: 3_000.0, P1: 1_000.0}), told())
    assert [after.partitions[p].work for p in (P0, P1)] == pytest.approx([0.75, 0.25], rel=0.02)
    assert [after.partitions[p].rate for p in (P0, P1)] == pytest.approx([150.0, 50.0], rel=0.02)
    idle = with_rates(seen(), Rates(at=T, unit=RateUnit.BYTES, per_second={P0: 0.0}), told())
    assert idle.rate == 0.0


def test_a_partition_without_work_gets_the_groups_shape() -> None:
    before = seen()
    nothing = msgspec.structs.replace(before.partitions[P0], work=0.0, rate=0.0, curve=before.curve.scaled(0.0))
    before = replace(before, partitions={**before.partitions, P0: nothing})
    after = with_rates(before, Rates(at=T, unit=RateUnit.RECORDS, per_second={P0: 100.0, P1: 100.0}), told())
    assert after.partitions[P0].work == pytest.approx(100.0 * COST)
    assert after.partitions[P0].curve.mean == before.curve.scaled(100.0 * COST).mean


def test_records_of_which_nobody_knows_the_cost_arrive_all_the_same() -> None:
    before = seen()
    free = {p: msgspec.structs.replace(entry, cost=0.0, work=0.0) for p, entry in before.partitions.items()}
    before = replace(before, partitions=free, cost=0.0, series=(0.0,) * 30)
    after = with_rates(before, Rates(at=T, unit=RateUnit.RECORDS, per_second={P0: 100.0}), told())
    assert (after.rate, after.partitions[P0].rate, after.partitions[P0].work) == (100.0, 100.0, 0.0)


# -- what was told before ----------------------------------------------------------------------------------------------


def test_what_was_told_at_each_decision_is_the_groups_past() -> None:
    """300/s, then 500/s: the reports' 200/s are nowhere in it."""
    past, before = told(), seen()
    with_rates(before, Rates(at=T, unit=RateUnit.RECORDS, per_second={P0: 200.0, P1: 100.0}), past)
    later = replace(before, at=before.at + 1.0)
    after = with_rates(later, Rates(at=T, unit=RateUnit.RECORDS, per_second={P0: 500.0}), past)
    assert after.series == pytest.approx([300.0 * COST, 500.0 * COST])
    assert after.cost == pytest.approx(COST)


def test_what_members_know_of_the_second_that_has_begun_is_left_out() -> None:
    """It would look like a jump beside a past that is the monitor's."""
    rates = Rates(at=T, unit=RateUnit.RECORDS, per_second={P0: 1.0, P1: 1.0})
    assert with_rates(replace(seen(), opening=5.0), rates, told()).opening == 0.0


def test_one_value_per_second_whatever_the_rhythm_of_the_decisions() -> None:
    often, seldom = told(), told(4.0)
    for decision in range(6):
        often.add(T + 0.4 * decision, float(decision))
    assert often.per_second() == (1.0, 3.0, 5.0)
    for at, rate in ((0.0, 1.0), (4.02, 2.0), (7.98, 3.0)):
        seldom.add(T + at, rate)
    assert seldom.per_second() == (1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 3.0)


def test_it_is_bounded_and_begins_anew_after_a_silence() -> None:
    past = told()
    assert past.per_second() == ()
    for second in range(500):
        past.add(T + second, float(second))
    assert past.per_second() == tuple(float(second) for second in range(380, 500))
    past.add(T + 509, 7.0)
    assert past.per_second()[-11:] == (499.0,) * 10 + (7.0,), "a few decisions that held are a gap"
    past.add(T + 520, 8.0)
    assert past.per_second() == (8.0,)
    rare = told(30.0)
    rare.add(T, 1.0)
    rare.add(T + 30, 2.0)
    assert rare.per_second() == (*(1.0,) * 30, 2.0)


# -- in the planner ----------------------------------------------------------------------------------------------------


class Monitored(Fleet):
    """A group whose leader is told rates by a monitor."""

    rates_told: Rates | None = None

    def state(self):  # type: ignore[no-untyped-def]
        return replace(super().state(), rates=self.rates_told)


@pytest.mark.parametrize("monitor", [name for name in RateSourceName if name is not RateSourceName.REPORTS])
def test_a_monitor_that_does_not_tell_holds(monitor: RateSourceName) -> None:
    """No fewer without it (I7), and it says why; with it the policy goes by what it tells."""
    config = PlanConfig(group="g", sla_seconds=0.5, policy="linear", packer="sticky", monitor=monitor)
    group = Monitored(config, even(4, 40.0), members=3)
    blind = group.run(8)
    assert (blind.outcome, blind.reason_code, blind.replicas_wanted) == ("hold", "blind", 3)
    assert f"the monitor {monitor} does not tell what arrives" in blind.reason
    assert blind.monitor == monitor
    group.rates_told = Rates(at=T, unit=RateUnit.RECORDS, per_second={partition(n): 100.0 for n in range(4)})
    told = group.step()
    # 400 / (200 x 0.9) = 2.2: 3; the reports' 40/s would need one.
    assert told.replicas_wanted == 3
    assert "400 records/s arrive" in told.reason
    group.rates_told = None
    assert group.step().replicas_wanted == 3


def records(total: float) -> Rates:
    return Rates(at=T, unit=RateUnit.RECORDS, per_second={partition(n): total / 4 for n in range(4)})


def watched(policy: str, total: float) -> Monitored:
    """One member that can do 200 records/s; the reports tell ``total``."""
    packer = "mwf" if policy.startswith("landau24") else "sticky"
    config = PlanConfig(group="g", sla_seconds=0.5, policy=policy, packer=packer, monitor="iccbdc22")
    return Monitored(config, even(4, total), members=1)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [name for name in TAKE_RATES if name != "dhalion_adapted"])
def test_every_policy_that_takes_a_rate_takes_the_monitors(policy: str) -> None:
    """620/s by the monitor need more than 3 of 200/s; the reports' 40/s need one. DS2-adapted waits for lag as well.

    DS2 is played without its over-provisioning, which makes two of one.
    """
    choice = f"{policy}:overprovisioning=0" if policy.startswith("ds2") else policy
    group = watched(choice, 40.0)
    assert group.run(5).replicas_wanted == 1
    group.rates_told = records(620.0)
    decision = group.run(20)
    assert max(decision.replicas_wanted, *(entry.replicas for entry in decision.rejected), 0) >= 4


def test_dhalion_takes_the_monitors_rate_over_what_is_done() -> None:
    """The reports' 300/s over 200/s done ask for 1.5 x 1.2: 2 replicas; the monitor's 600/s for 4."""
    group = watched("dhalion_adapted:lag_threshold_seconds=0.1", 300.0)
    group.rates_told = records(600.0)
    decision = group.run(20)
    assert decision.replicas_wanted == 4
    assert any("3.00 times what is done comes" in entry.reason for entry in group.history)


@pytest.mark.parametrize("policy", ["ds2_modern:overprovisioning=0", "ds2_modern_adapted", "li_ku", "objective"])
def test_a_monitor_that_tells_less_counts_too(policy: str) -> None:
    group = watched(policy, 150.0)
    group.rates_told = records(40.0)
    decision = group.run(20)
    assert decision.rate == 40.0
    assert decision.work == pytest.approx(40.0 * COST, rel=0.01)
    assert decision.replicas_wanted == 1


def test_the_next_leader_knows_what_was_told() -> None:
    """The mean of the last minute, of which it was told the last second itself."""
    group = watched("ds2_modern:cooldown_seconds=1000", 40.0)
    group.rates_told = records(600.0)
    decisions = [group.step() for _ in range(12)]
    group.planner = make_planner(group.config)
    for report, at in group.reports:
        group.planner.observe(report, at)
    for decision in decisions:
        group.planner.remember(msgspec.structs.replace(decision, state={}))
    group.rates_told = records(100.0)
    share = sum(1 for decision in decisions if decision.outcome != "hold")
    rate = (600.0 * share + 100.0) / (share + 1)
    assert f"{rate:.0f} records/s arrive" in group.step().reason
