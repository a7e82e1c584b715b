"""The table of the membership: complete, named effects that exist, every phase reached and left."""

from __future__ import annotations

import enum

import pytest

from loadtrim_agent.common.errors import InvariantError
from loadtrim_agent.protocol.assigned_partition import AssignedEvent
from loadtrim_agent.protocol.membership_state import Occurrence
from loadtrim_agent.protocol.membership_table import TRANSITIONS, Effect, Phase, Trigger
from sim.diagrams import PAGE, drawn
from sim.driver import Driver

PAIRS = [(phase, trigger) for phase in Phase for trigger in Trigger]


def test_every_phase_has_a_row_and_every_trigger_comes_somewhere() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert {trigger for row in TRANSITIONS.values() for trigger in row} == set(Trigger)


def test_every_phase_is_reached() -> None:
    reached = {transition.to for row in TRANSITIONS.values() for transition in row.values() if transition is not None}
    assert reached == set(Phase) - {Phase.IDLE}


def test_every_effect_is_used_and_is_the_method_of_its_name() -> None:
    used = {effect for row in TRANSITIONS.values() for t in row.values() if t is not None for effect in t.effects}
    methods = Driver().machine.membership._effects.methods
    assert used == set(Effect) == set(methods)
    assert {effect.value: method.__name__ for effect, method in methods.items()} == {e.value: e.value for e in Effect}


def test_what_may_come_at_any_time_is_in_every_row() -> None:
    for row in TRANSITIONS.values():
        assert {Trigger.REBALANCE_WANTED, Trigger.GENERATION_ENDS, Trigger.COORDINATOR_FOUND, Trigger.LEFT} <= set(row)


def test_only_leaving_ends_a_failure_and_nothing_ends_having_left() -> None:
    changes = {
        phase: {trigger for trigger, transition in TRANSITIONS[phase].items() if transition is not None}
        for phase in (Phase.LEFT, Phase.FAILED)
    }
    assert changes == {Phase.LEFT: {Trigger.LEFT}, Phase.FAILED: {Trigger.LEFT}}


@pytest.mark.parametrize(("phase", "trigger"), [pair for pair in PAIRS if pair[1] not in TRANSITIONS[pair[0]]])
def test_what_the_table_does_not_name_is_a_contradiction(phase: Phase, trigger: Trigger) -> None:
    membership = Driver().machine.membership
    membership.phase = phase
    with pytest.raises(InvariantError, match=f"membership: {trigger.name} in {phase.name}"):
        membership._fire(Occurrence(trigger), 0.0)
    assert membership.phase is phase


def test_the_page_shows_the_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == drawn(page), "draw them again: PYTHONPATH=agent:tests python -m sim.diagrams"


@pytest.mark.parametrize("kind", [Trigger, AssignedEvent])
def test_mermaid_can_read_every_label(kind: type[enum.Enum]) -> None:
    assert [each.name for each in kind if set(":;\n") & set(each.value)] == []


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="membership are missing"):
        drawn("# A page\n")
