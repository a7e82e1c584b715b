"""The diagrams of docs/protocol.md are those of the tables."""

from __future__ import annotations

import enum

import pytest

from loadtrim_agent.protocol.assigned_partition import AssignedEvent
from loadtrim_agent.protocol.membership_table import Trigger
from sim.diagrams import PAGE, drawn


def test_the_page_shows_the_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == drawn(page), "draw them again: PYTHONPATH=agent:tests python -m sim.diagrams"


@pytest.mark.parametrize("kind", [Trigger, AssignedEvent])
def test_mermaid_can_read_every_label(kind: type[enum.Enum]) -> None:
    assert [each.name for each in kind if set(":;\n") & set(each.value)] == []


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="membership are missing"):
        drawn("# A page\n")
