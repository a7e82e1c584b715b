"""Ranges of settings, one by one; what the environment makes of them is tested with ``loadtrim.settings``."""

from __future__ import annotations

import msgspec
import pytest

from loadtrim_agent.common.settings import AgentSettings, is_allowed, out_of_range, what_is_allowed

KINDS = {field.name: field.type for field in msgspec.structs.fields(AgentSettings)}


@pytest.mark.parametrize(
    ("name", "least", "too_little"),
    [
        ("sla_seconds", 1e-9, 0.0),
        ("drain_seconds", 1e-9, 0.0),
        ("decision_seconds", 0.1, 0.099),
        ("report_seconds", 0.1, 1e-9),
        ("sla_share", 0.5, 0.499),
        ("min_replicas", 1, 0),
        ("max_replicas", 1, 0),
    ],
)
def test_a_range_begins_where_it_says(name: str, least: float, too_little: float) -> None:
    assert is_allowed(KINDS[name], least)
    assert not is_allowed(KINDS[name], too_little)


@pytest.mark.parametrize(
    ("name", "most", "too_much"),
    [("drain_seconds", "1e9", 1e12), ("decision_seconds", "30", 31.0), ("report_seconds", "30", 1000)],
)
def test_a_range_ends_where_it_says(name: str, most: str, too_much: float) -> None:
    """Reports in each turn of the loop were taken, and one in a quarter of an hour, where milliseconds were meant."""
    assert is_allowed(KINDS[name], float(most))
    assert not is_allowed(KINDS[name], too_much)
    assert f" to {most}," in what_is_allowed(KINDS[name])


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_duration_is_finite(value: float) -> None:
    assert not is_allowed(KINDS["sla_seconds"], value)


def test_a_maximum_may_be_none_or_the_minimum() -> None:
    assert is_allowed(KINDS["max_replicas"], None)
    assert list(out_of_range(AgentSettings(min_replicas=3, max_replicas=3))) == []
    assert [name for name, *_ in out_of_range(AgentSettings(min_replicas=3, max_replicas=2))] == ["max_replicas"]
