"""Values that cannot be are refused, and instances are counted as the orchestrator counts them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from loadtrim_agent.planning.registry import PACKERS, POLICIES, make_packer, make_policy
from loadtrim_agent.planning.sizing.policy import Measure
from loadtrim_agent.planning.values import ArrivalCurve, GroupState, MemberState, PlanConfig, units_of


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"sla_seconds": 0.0}, "sla_seconds"),
        ({"sla_share": 1.0}, "sla_share"),
        ({"sla_share": 0.4}, "sla_share"),
        ({"min_replicas": 0}, "replicas"),
        ({"min_replicas": 3, "max_replicas": 2}, "replicas"),
        ({"min_replicas": 1.5}, "min_replicas is 1.5"),
        ({"max_replicas": math.nan}, "max_replicas is nan"),
        ({"mode": "off"}, "off"),
        *(
            ({f"{name}_seconds": value}, f"{name}_seconds is .*; allowed is a number of seconds above 0")
            for name in ("sla", "catchup")
            for value in (math.nan, math.inf, -1.0, 0.0, None)
        ),
        *(
            ({f"{name}_seconds": value}, f"{name}_seconds is .*; allowed is a number of seconds from 0.1 to 30")
            for name in ("decision", "report")
            for value in (math.nan, math.inf, -1.0, 1e-9, 1000.0, None)
        ),
        *(
            ({f"{name}_seconds": value}, f"{name}_seconds is .*; give a finite number of 0 or more")
            for name in ("startup", "handoff")
            for value in (math.nan, math.inf, -1.0, None)
        ),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        PlanConfig(**changes)


def test_units_are_instances() -> None:
    group = GroupState(
        generation=1,
        leader="a",
        members={
            "d": MemberState(),
            "e": MemberState(instance=None),
            "c": MemberState(instance="x", leaving=True),
            "a": MemberState(instance="x"),
            "b": MemberState(instance="y", leaving=True),
        },
        owners={},
    )
    assert [(unit.instance, unit.members, unit.leaving) for unit in units_of(group)] == [
        ("d", ("d",), False),
        ("x", ("a", "c"), False),
        ("y", ("b",), True),
    ]


def test_a_curve_scales() -> None:
    assert ArrivalCurve((1.0, 2.0), (0.5, 0.0)).scaled(2.0) == ArrivalCurve((2.0, 4.0), (1.0, 0.0))


@pytest.mark.parametrize("name", sorted(PACKERS))
def test_packers_are_found_by_their_names(name: str) -> None:
    assert make_packer(name).name == name


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_policies_are_found_by_their_names(name: str) -> None:
    assert make_policy(name, frozenset(Measure)).name == name
