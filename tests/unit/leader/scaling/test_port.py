"""The values of the scaling port."""

from __future__ import annotations

import pytest

from loadtrim_agent.leader.scaling.none import NoneScaler
from loadtrim_agent.leader.scaling.port import ScaleRequest


def wanted(**changes: object) -> ScaleRequest:
    fields: dict[str, object] = {"group": "g", "replicas": 3, "generation": 1, "sequence": 1, "reason": "r"}
    return ScaleRequest(**(fields | changes))  # type: ignore[arg-type]


def test_plan_and_reason_are_no_part_of_the_wish() -> None:
    assert wanted().asks_the_same(wanted(generation=2, sequence=9, reason="other"))
    assert wanted(victims=("a", "b")).asks_the_same(wanted(victims=("b", "a")))


@pytest.mark.parametrize("change", [{"group": "h"}, {"replicas": 4}, {"victims": ("a",)}])
def test_everything_else_is(change: dict[str, object]) -> None:
    assert not wanted().asks_the_same(wanted(**change))


def test_nothing_asks_the_same_as_no_wish() -> None:
    assert not wanted().asks_the_same(None)


def test_no_replicas_is_refused() -> None:
    with pytest.raises(ValueError, match="no leader"):
        wanted(replicas=0)


def test_a_victim_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice: a, a"):
        wanted(victims=("a", "a"))


async def test_none_says_what_to_do() -> None:
    outcome = await NoneScaler().request(wanted())
    assert "LOADTRIM_SCALER" in outcome.detail
    assert "3 replicas" in outcome.detail
