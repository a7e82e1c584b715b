"""Rates that a monitor measures at the broker, in place of the reports'."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from loadtrim_agent.core.plan.estimate import estimate
from loadtrim_agent.core.plan.monitored import Growth, MonitorName, monitored
from loadtrim_agent.core.plan.values import Estimate, PlanConfig, Rates, RateUnit
from unit.core.plan.virtual_group import COST, Fleet, T, even, partition

P0, P1 = partition(0), partition(1)


def test_growth_is_newest_less_oldest_over_the_time_between() -> None:
    growth = Growth(30.0)
    assert growth.per_second() is None
    growth.add(T, {P0: 1_000, P1: 0})
    assert growth.per_second() is None, "one sample tells nothing"
    growth.add(T + 10, {P0: 3_000, P1: 50})
    assert growth.per_second() == {P0: 200.0, P1: 5.0}


def test_growth_looks_back_over_its_window_only() -> None:
    growth = Growth(30.0)
    for second in range(0, 100, 10):
        growth.add(T + second, {P0: 0 if second < 50 else (second - 50) * 100})
    # The oldest sample within 30 s of 90 s is that of 60 s: (4,000 - 1,000) / 30.
    assert growth.per_second() == {P0: 100.0}


def test_what_shrank_and_what_is_new() -> None:
    """A segment was deleted; a partition was made 5 s ago; another is led by nobody who answers."""
    growth = Growth(30.0)
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
    found = estimate(group.planner.history.observation(group.now, state), state, group.config)
    assert isinstance(found, Estimate)
    return found


def test_records_replace_the_rate_the_work_and_the_curve() -> None:
    before = seen()
    rates = Rates(at=T, unit=RateUnit.RECORDS, per_second={P0: 300.0, P1: 50.0})
    after = monitored(before, rates)
    assert after.rate == pytest.approx(350.0)
    assert after.partitions[P0].rate == pytest.approx(300.0)
    assert after.partitions[P0].work == pytest.approx(300.0 * COST)
    assert after.partitions[P0].curve.mean == pytest.approx(
        [3.0 * x for x in before.partitions[P0].curve.mean], rel=0.05
    )
    assert after.partitions[P1].lag == before.partitions[P1].lag


def test_bytes_are_shares_of_the_groups_work() -> None:
    """1 busy second/s in the group, 3 of 4 bytes in the first partition: 0.75 and 0.25, 150/s and 50/s."""
    after = monitored(seen(), Rates(at=T, unit=RateUnit.BYTES, per_second={P0: 3_000.0, P1: 1_000.0}))
    assert [after.partitions[p].work for p in (P0, P1)] == pytest.approx([0.75, 0.25], rel=0.02)
    assert [after.partitions[p].rate for p in (P0, P1)] == pytest.approx([150.0, 50.0], rel=0.02)
    idle = monitored(seen(), Rates(at=T, unit=RateUnit.BYTES, per_second={P0: 0.0}))
    assert idle.rate == 0.0


def test_a_partition_without_work_gets_the_groups_shape() -> None:
    before = seen()
    nothing = msgspec.structs.replace(before.partitions[P0], work=0.0, rate=0.0, curve=before.curve.scaled(0.0))
    before = replace(before, partitions={**before.partitions, P0: nothing})
    after = monitored(before, Rates(at=T, unit=RateUnit.RECORDS, per_second={P0: 100.0, P1: 100.0}))
    assert after.partitions[P0].work == pytest.approx(100.0 * COST)
    assert after.partitions[P0].curve.mean == before.curve.scaled(100.0 * COST).mean


# -- in the planner ----------------------------------------------------------------------------------------------------


class Monitored(Fleet):
    """A group whose leader is told rates by a monitor."""

    rates_told: Rates | None = None

    def state(self):  # type: ignore[no-untyped-def]
        return replace(super().state(), rates=self.rates_told)


@pytest.mark.parametrize("monitor", [name for name in MonitorName if name is not MonitorName.REPORTS])
def test_a_monitor_that_does_not_tell_holds(monitor: MonitorName) -> None:
    """No fewer without it (I7), and it says why; with it the policy goes by what it tells."""
    config = PlanConfig(group="g", objective_seconds=0.5, policy="linear", packer="sticky", monitor=monitor)
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
