"""A policy's state and its bytes: what an earlier version wrote is read, what cannot be read is said and forgotten."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from loadtrim_agent.planning.planner import UNREADABLE
from loadtrim_agent.planning.policy_state import PolicyState, StatePart, read_state, written_state
from loadtrim_agent.planning.registry import make_planner
from loadtrim_agent.planning.values import PlanConfig
from unit.planning.virtual_group import Fleet, even


class Part(StatePart, frozen=True, kw_only=True):
    began: float | None = msgspec.field(name="began_at", default=None)


class Everything(PolicyState, frozen=True, kw_only=True):
    part: Part = Part()
    notes: tuple[float, ...] = msgspec.field(name="up", default=())
    asked: dict[int, float] = msgspec.field(default_factory=dict)
    late: dict[float, int] = msgspec.field(default_factory=dict)


FULL = Everything(wanted=3, part=Part(began=7.5), notes=(4.9, 3.5), asked={5: 8.0}, late={0.125: 2})
WIRE = {"asked_5": 8.0, "began_at": 7.5, "late_0.125": 2.0, "up_0": 4.9, "up_1": 3.5, "wanted": 3.0}


def test_a_state_is_a_flat_object_of_numbers_and_back() -> None:
    assert written_state(FULL) == WIRE
    assert list(written_state(FULL)) == sorted(WIRE)
    assert read_state(Everything, WIRE) == FULL
    assert written_state(Everything()) == {}
    assert read_state(Everything, {}) == Everything()


def test_keys_of_another_version_are_ignored() -> None:
    assert read_state(Everything, WIRE | {"of_a_later_one": 1.0}) == FULL
    assert read_state(PolicyState, WIRE) == PolicyState(wanted=3)


@pytest.mark.parametrize(
    "wrong", [{"wanted": 2.5}, {"wanted": float("nan")}, {"asked_many": 1.0}, {"began_at": float("inf")}]
)
def test_what_cannot_be_read_is_no_exception(wrong: dict[str, float]) -> None:
    assert read_state(Everything, wrong) is None


def test_a_new_leader_says_that_it_could_not_read_a_state_and_starts_anew() -> None:
    config = PlanConfig(group="g", sla_seconds=0.5)
    group = Fleet(config, even(8, 300.0), members=3)
    decision = group.run(5)
    planner = make_planner(config)
    for report, received_at in group.reports:
        planner.observe(report, received_at)
    planner.remember(msgspec.structs.replace(decision, state={"wanted": 2.5}))
    first, second = (planner.decide(group.now + later, group.state()) for later in (0.0, 1.0))
    assert first.reason.endswith(UNREADABLE)
    assert first.state["wanted"] == first.replicas_wanted
    assert UNREADABLE not in second.reason
    other = make_planner(structs.replace(config, policy="fixed"))
    other.remember(msgspec.structs.replace(decision, state={"wanted": 2.5}))
    assert UNREADABLE not in other.decide(group.now, group.state()).reason, "another policy's"
