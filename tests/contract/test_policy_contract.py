"""What every policy keeps to, whatever the group: those of the registry, and the template for a new one.

A policy that is entered in ``POLICIES`` is tested here; one that is not registered yet takes a line in ``MAKERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from contract.templates import template
from loadtrim_agent.planning.parameters import described
from loadtrim_agent.planning.policy_state import PolicyState, read_state, written_state
from loadtrim_agent.planning.registry import POLICIES
from loadtrim_agent.planning.sizing.policy import Measure, Policy, View
from loadtrim_agent.planning.values import Reason, Sizing
from property.test_policies import views
from unit.planning.sizing.test_policy import tomorrow, view
from unit.planning.virtual_group import T

MAKERS: dict[str, Callable[..., Policy]] = {
    **POLICIES,
    "lag_per_replica": template("policy").LagPerReplica,
}
NAMES = sorted(MAKERS)
NUMBERS_MAX = 64
"""A state travels with every decision, so it is short."""


def played(policy: Policy, looks: Sequence[View]) -> list[Sizing]:
    """The answers to several looks, each with the state of the one before."""
    answers: list[Sizing] = []
    for look in looks:
        answers.append(policy.decide(look, answers[-1].state if answers else policy.state()))
    return answers


def through_json(state: PolicyState) -> PolicyState | None:
    """A state as the next leader reads it."""
    data = msgspec.json.encode(written_state(state))
    return read_state(type(state), msgspec.json.decode(data, type=dict[str, float]))


@pytest.mark.parametrize("name", NAMES)
def test_it_says_its_name_what_it_looks_at_and_what_can_be_set(name: str) -> None:
    policy = MAKERS[name]()
    assert policy.name == name
    assert getattr(policy, "needs", frozenset()) <= frozenset(Measure)
    for parameter in described(policy.kind):
        assert parameter.meaning
        assert parameter.allowed
        assert parameter.default or "default:" in parameter.meaning
    MAKERS[name](policy.kind())  # as the registry makes it where parameters are given


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(looks=views())
def test_every_answer_is_within_the_bounds_and_the_next_leader_goes_on_from_it(name: str, looks: list[View]) -> None:
    policy = MAKERS[name]()
    answers = played(policy, looks)
    for look, answer in zip(looks, answers, strict=True):
        assert look.replicas_min <= answer.replicas <= look.replicas_max
        assert type(answer.replicas) is int
        assert answer.reason in set(Reason)
        assert answer.text
        assert "\n" not in answer.text
        assert "nan" not in answer.text
        assert answer.state.wanted == answer.replicas
    assert played(policy, looks) == answers, "an instance does not change"
    for answer in answers:
        assert type(answer.state) is policy.state
        assert len(written_state(answer.state)) < NUMBERS_MAX
        assert through_json(answer.state) == answer.state
        interrupted = answer.state.interrupted()
        assert type(interrupted) is policy.state
        assert interrupted.wanted == answer.state.wanted
        assert through_json(interrupted) == interrupted
    if len(looks) > 1:
        heir = MAKERS[name]()
        assert heir.decide(looks[-1], through_json(answers[-2].state)) == answers[-1]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("wire", [{}, {"wanted": 2.0}, {"wanted": 2.0, "of_another_version": 1.0}])
def test_the_state_of_another_version_is_read(name: str, wire: dict[str, float]) -> None:
    policy = MAKERS[name]()
    state = read_state(policy.state, wire)
    assert state is not None
    empty = view((), 2, replicas_max=3, future=tomorrow((), T))
    assert policy.decide(empty, state).state.wanted is not None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("more", [{}, {"past": ()}, {"generation": 9}])
def test_a_group_without_partitions_has_an_answer(name: str, more: dict[str, Any]) -> None:
    policy = MAKERS[name]()
    answer = policy.decide(view((), 2, future=tomorrow((), T), **more), policy.state())
    assert answer.replicas == 1, "no more than can have a partition, and one to lead"
