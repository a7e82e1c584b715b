"""Landau'24's controller: when it looks, what it asks the packer, and that a group does as it says."""

from __future__ import annotations

import pytest

from loadtrim_agent.planning.registry import PACKERS
from loadtrim_agent.planning.values import PlanConfig
from loadtrim_agent.wire.telemetry_records import DecisionRecord
from unit.planning.virtual_group import Fleet, even, steps


def config(packer: str = "mwf", **parameters: float) -> PlanConfig:
    return PlanConfig(group="g", policy="landau24", packer=packer, parameters=parameters)


def test_as_many_as_the_packer_opens() -> None:
    """8 partitions of 0.25 (50/s x 5 ms): three fill a bin of 5/6, so 3 bins."""
    fleet = Fleet(config(), even(8, 400.0), members=1)
    fleet.run_scaled(12)
    assert fleet.history[-1].replicas_wanted == 3
    assert len(fleet.members) == 3
    assert sorted(len(fleet._owned(member)) for member in fleet.members) == [2, 3, 3]


def test_it_watches_until_somebody_is_over_the_limit() -> None:
    """0.6 fits 5/6 and stays; 0.9 does not, and is packed at once, long before 30 s have passed."""
    fleet = Fleet(config(interval_seconds=1e6), steps(8, (0, 120.0), (20, 180.0)), members=1)
    fleet.run_scaled(20)
    calm: list[DecisionRecord] = fleet.history[5:]
    assert {one.reason_code for one in calm} == {"fits"}
    fleet.run_scaled(10)
    assert fleet.history[-1].replicas_wanted == 2
    assert any("carries more than 83%" in one.reason for one in fleet.history)


def test_it_looks_again_when_its_interval_has_passed() -> None:
    """Twice what is needed: nobody is over a limit, so only the interval shrinks the group."""
    fleet = Fleet(config(interval_seconds=10.0), steps(8, (0, 240.0), (10, 80.0)), members=2)
    fleet.run_scaled(40)
    assert fleet.history[-1].replicas_wanted == 1
    assert len(fleet.members) == 1


def test_as_run_it_is_packed_anew_above_all_that_a_member_can_do() -> None:
    """0.9 of a member is above C (0.75) and not above the limit: its hysteresis. 1.2 is, long before 1e6 s are over."""
    chosen = PlanConfig(group="g", policy="landau24_as_run", packer="mwf", parameters={"interval_seconds": 1e6})
    fleet = Fleet(chosen, steps(8, (0, 120.0), (20, 180.0), (40, 240.0)), members=1)
    fleet.run_scaled(40)
    assert fleet.history[-1].replicas_wanted == 1
    fleet.run_scaled(10)
    assert fleet.history[-1].replicas_wanted == 2
    assert any("carries more than 100%" in one.reason for one in fleet.history)


@pytest.mark.parametrize(("packer", "count"), [("range", 6), ("roundrobin", 6), ("sticky", 6), ("kd_n", 1)])
def test_packers_that_only_count_ask_for_the_most_or_for_what_is_there(packer: str, count: int) -> None:
    """One member could do it all; ``kd_n`` leaves every partition where it is."""
    fleet = Fleet(config(packer), even(6, 60.0), members=1)
    fleet.run_scaled(8)
    assert fleet.history[-1].replicas_wanted == count


@pytest.mark.slow
@pytest.mark.parametrize("packer", sorted(PACKERS))
def test_every_packer_in_a_group_that_scales(packer: str) -> None:
    """Under the policy that asks it and under one that does not: everything is owned, nobody who goes owns anything."""
    for policy in ("landau24", "objective"):
        chosen = PlanConfig(group="g", policy=policy, packer=packer, max_replicas=4)
        fleet = Fleet(chosen, steps(8, (0, 100.0), (6, 400.0), (14, 100.0)), members=2)
        fleet.run_scaled(24)
        assert all(one.outcome != "hold" for one in fleet.history[5:]), fleet.history[-1].reason
        owners = set(fleet.owners.values())
        assert owners <= fleet.members.keys()
        assert owners.isdisjoint(fleet.history[-1].victims)
