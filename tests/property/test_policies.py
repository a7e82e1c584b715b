"""What holds for every policy in every group: bounds, one answer for one input, no crash, and blind means hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from hash_seeds import same_under_two_hash_seeds
from loadtrim_agent.planning.history import Second
from loadtrim_agent.planning.registry import POLICIES, make_planner
from loadtrim_agent.planning.sizing.policy import MEASURED, Future, Measure, View
from loadtrim_agent.planning.values import GroupState, PlanConfig, Reason
from unit.planning.sizing.test_policy import entry, seconds, tomorrow, view
from unit.planning.virtual_group import Fleet, T, even, steps

EVERYTHING = MEASURED | {Measure.FUTURE}
NAMES = sorted(POLICIES)
REASONS = {reason.value for reason in Reason}


@st.composite
def views(draw: st.DrawFn) -> list[View]:
    """A group and a few looks at it, each with another load, some of them with nothing measured."""
    partitions = draw(st.integers(0, 6))
    config = PlanConfig(
        group="g",
        sla_seconds=draw(st.sampled_from([0.001, 0.5, 30.0])),
        min_replicas=draw(st.integers(1, 3)),
        max_replicas=draw(st.sampled_from([None, 3, 8])),
        packer=draw(st.sampled_from(["trim", "ffd", "mwf", "closer24", "sticky"])),
    )
    now, result = T, []
    for _ in range(draw(st.integers(1, 4))):
        now += draw(st.sampled_from([1.0, 1.0, 16.0, 400.0]))
        replicas = draw(st.integers(1, 8))
        items = tuple(
            entry(
                number,
                draw(st.sampled_from([0.0, 1e-6, 1.0, 90.0, 200.0, 1e6])),
                owner=draw(st.sampled_from([None, "m0", f"m{replicas - 1}", "gone"])),
                lag=draw(st.sampled_from([0, 7, 5_000, 10**9])),
                lag_high=draw(st.sampled_from([0, 50, 10**9])),
                lag_low=draw(st.sampled_from([0, 10**9])),
            )
            for number in range(partitions)
        )
        past: tuple[Second, ...] = ()
        if draw(st.integers(0, 3)):
            past = seconds(
                now,
                done=draw(st.sampled_from([0.0, 100.0, 1e6])),
                busy=draw(st.sampled_from([0.0, 0.5, 1.3])),
                replicas=replicas,
                latency=draw(st.sampled_from([0.0, 0.3, 1e6])),
                lag=draw(st.sampled_from([0.0, 1e9])),
                slope=draw(st.sampled_from([-1e6, 0.0, 1e6])),
                count=draw(st.sampled_from([1, 3, 120])),
            )
        made = view(
            items,
            replicas,
            config=config,
            now=now,
            backlog=draw(st.sampled_from([0.0, 1e6])),
            late=draw(st.sampled_from([0.0, 1e6])),
            lag_seconds=draw(st.sampled_from([0.0, 3.0, 1e6])),
            generation=draw(st.integers(1, 3)),
            future=draw(st.sampled_from([tomorrow(items, now), tomorrow(items, now, 0)])),
            past=past,
            replicas_max=min(config.max_replicas or 8, max(1, partitions)),
        )
        if draw(st.integers(0, 4)) == 0:
            made = replace(made, estimate=replace(made.estimate, cost=0.0))
        result.append(made)
    return result


# -- as the leader uses them -------------------------------------------------------------------------------------------


def group_with(name: str, rates: Any, members: int, **changes: Any) -> Fleet:
    config = PlanConfig(group="g", sla_seconds=0.5, startup_seconds=3.0, policy=name, packer="sticky", **changes)
    if name != "clairvoyant":
        return Fleet(config, rates, members=members)
    group = Fleet(structs.replace(config, policy="objective"), rates, members=members)
    future = Future(begins_at=T, partitions=tuple(group.partitions), records=tuple(tuple(rates(n)) for n in range(200)))
    group.planner = make_planner(config, future)
    return group


@pytest.mark.parametrize("name", NAMES)
def test_without_members_every_policy_holds(name: str) -> None:
    group = group_with(name, even(4, 100.0), 2)
    group.run(5)
    nobody = GroupState(generation=2, leader="", members={}, owners=dict.fromkeys(group.partitions))
    decision = group.planner.decide(group.now, nobody)
    assert (decision.outcome, decision.reason_code) == ("hold", "nobody")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_blind_never_means_fewer(name: str) -> None:
    """I7: three replicas for next to nothing; one of them falls silent before any policy has let go."""
    group = group_with(name, steps(6, (0, 500.0), (8, 1.0)), 3)
    for _ in range(8):
        group.step()
    before = group.history[-1].replicas_wanted
    group.silent.add(min(group.members))
    for _ in range(5):
        group.tick()  # nobody decides until the silence shows
    decision = group.decide()
    assert decision.reason_code == "blind"
    assert decision.replicas_wanted >= before


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_new_leader_goes_on_with_what_was_remembered(name: str) -> None:
    """The heir reads the reports and the last decision, and decides what the old one would have."""
    group = group_with(name, steps(6, (0, 200.0), (20, 500.0)), 2)
    for _ in range(24):
        group.step()
    heir = group_with(name, group.rates, 2)
    for record, received_at in group.reports:
        heir.planner.observe(record, received_at)
    heir.planner.remember(group.history[-1])
    group.tick()
    for record, received_at in group.reports[-len(group.members) :]:
        heir.planner.observe(record, received_at)
    old, new = group.planner.decide(group.now, group.state()), heir.planner.decide(group.now, group.state())
    assert new.replicas_wanted == old.replicas_wanted
    assert new.reason_code == old.reason_code


SCRIPT = """
from unit.planning.virtual_group import steps
from property.test_policies import NAMES, group_with
from loadtrim_agent.wire.codec import encode

for name in NAMES:
    group = group_with(name, steps(7, (0, 60.0), (10, 900.0), (30, 30.0)), 2)
    group.run_scaled(45, startup=2)
    for decision in group.history:
        print(encode(decision).decode())
"""


@pytest.mark.slow
def test_the_same_bytes_under_two_hash_seeds() -> None:
    printed = same_under_two_hash_seeds(SCRIPT)
    assert printed.count("\n") == 45 * len(NAMES)
